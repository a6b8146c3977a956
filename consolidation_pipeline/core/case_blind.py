"""Regular expressions that ignore the case of letters; far faster than ``re.IGNORECASE`` where none matches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

# Letters that ``re`` takes for others without regard to case, but ``str.lower`` does not, or makes two letters of.
_UNEQUAL = re.compile("[\u0130\u0131\u017f\u0345-\u03ff\u1e9e\u1f00-\u1fff\u212a\u212b\ufb05\ufb06]")
# What may have capitals in an expression for texts in lower case: escapes and the names of groups.
_SYNTAX = re.compile(r"\\.|\(\?P[<=>]\w*", re.DOTALL)


@dataclass(frozen=True)
class CaseBlindPattern:
    """A regular expression with the methods of ``re.Pattern`` that are in use here, compiled when it is first used.

    ``re`` tries the alternatives of ``a|b`` one after the other if it ignores case, and skips most of them by their
    first letter if not. So a text is first searched in lower case.
    """

    pattern: str
    flags: int

    @cached_property
    def lower(self) -> re.Pattern[str]:
        """The expression for texts in lower case."""
        return re.compile(self.pattern, self.flags)

    @cached_property
    def exact(self) -> re.Pattern[str]:
        """The expression for texts in any case."""
        return re.compile(self.pattern, self.flags | re.IGNORECASE)

    def search(self, text: str) -> re.Match[str] | None:
        """Return the first match in ``text``."""
        return None if _is_plain(text) and not self.lower.search(text.lower()) else self.exact.search(text)

    def match(self, text: str) -> re.Match[str] | None:
        """Return the match at the beginning of ``text``."""
        return None if _is_plain(text) and not self.lower.match(text.lower()) else self.exact.match(text)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """Return the match of the whole ``text``."""
        return None if _is_plain(text) and not self.lower.fullmatch(text.lower()) else self.exact.fullmatch(text)

    def findall(self, text: str) -> list[str]:
        """Return all matches in ``text``; the expression has at most one group."""
        return [] if _is_plain(text) and not self.lower.search(text.lower()) else self.exact.findall(text)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """Yield the matches in ``text``."""
        if not _is_plain(text) or self.lower.search(text.lower()):
            yield from self.exact.finditer(text)

    def sub(self, replacement: str | Callable[[re.Match[str]], str], text: str, count: int = 0) -> str:
        """Return ``text`` with the replacement for each match."""
        if _is_plain(text) and not self.lower.search(text.lower()):
            return text
        return self.exact.sub(replacement, text, count=count)


def ignore_case(pattern: str, flags: int = 0) -> CaseBlindPattern:
    """Return a regular expression that ignores the case of letters.

    Args:
        pattern: With letters in lower case only.
        flags: Others of ``re``.

    Raises:
        ValueError: It has a capital.
    """
    if capital := re.search("[A-Z]", _SYNTAX.sub("", pattern)):
        raise ValueError(f"the pattern {pattern!r} has the capital {capital[0]}; write it in lower case")
    return CaseBlindPattern(pattern, flags)


def _is_plain(text: str) -> bool:
    """Return True if a pattern in lower case matches ``text.lower()`` wherever it matches ``text`` in any case."""
    return text.isascii() or _UNEQUAL.search(text) is None
