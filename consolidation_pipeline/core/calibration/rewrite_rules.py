"""Rewrite rules for synthetic pairs: synonyms, contractions and abbreviations, opposites and negation."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Words that people in a hurry leave out, without any loss.
_ARTICLES = re.compile(r"\b(?:the|a|an|that|just|also|really|very|then)\s+(?=[a-z])")

FUNCTION_WORDS = frozenset(
    """
    about above after again against also although always another because been before being below between both cannot
    could does doing done down during each either else every from further have having here however instead into itself
    just like made make many more most much must need never none only other over same shall should since some such than
    that their them then there these they this those through under until upon very were what when where whether which
    while will with within without would your
    """.split()
)

_CONTRACTIONS = {
    "do not": "don't",
    "does not": "doesn't",
    "did not": "didn't",
    "is not": "isn't",
    "are not": "aren't",
    "was not": "wasn't",
    "should not": "shouldn't",
    "cannot": "can't",
    "it is": "it's",
    "we have": "we've",
    "I have": "I've",
    "you are": "you're",
}
_UNITS = {
    "seconds": "s",
    "milliseconds": "ms",
    "minutes": "min",
    "hours": "h",
    "percent": "%",
    "megabytes": "MB",
    "gigabytes": "GB",
}
_SYNONYMS = {
    "use": "employ",
    "uses": "employs",
    "using": "employing",
    "make sure": "ensure",
    "need to": "have to",
    "because": "since",
    "in order to": "to",
    "error": "failure",
    "errors": "failures",
    "fix": "repair",
    "fixed": "repaired",
    "check": "verify",
    "checks": "verifies",
    "checked": "verified",
    "checking": "verifying",
    "find": "locate",
    "get": "obtain",
    "show": "display",
    "shows": "displays",
    "help": "assist",
    "problem": "issue",
    "problems": "issues",
    "function": "routine",
    "method": "approach",
    "correctly": "properly",
    "incorrect": "wrong",
    "always": "every time",
    "instead of": "rather than",
    "many": "numerous",
    "only": "solely",
    "return": "give back",
    "returns": "gives back",
    "create": "set up",
    "creates": "sets up",
    "change": "modify",
    "changed": "modified",
    "build": "construct",
    "large": "big",
    "quickly": "fast",
    "however": "but",
    "therefore": "so",
    "try": "attempt",
    "tried": "attempted",
    "handle": "deal with",
    "handles": "deals with",
    "keep": "retain",
    "choose": "select",
    "each": "every",
    "want": "wish",
    "buy": "purchase",
    "tell me": "let me know",
    "how do i": "what is the way to",
    "can i": "may i",
    "begin": "set out",
}
_OPPOSITES = {
    "enable": "disable",
    "enabled": "disabled",
    "enables": "disables",
    "add": "remove",
    "added": "removed",
    "adds": "removes",
    "adding": "removing",
    "increase": "decrease",
    "increases": "decreases",
    "increasing": "decreasing",
    "before": "after",
    "allow": "block",
    "allows": "blocks",
    "allowed": "blocked",
    "start": "stop",
    "starts": "stops",
    "above": "below",
    "include": "exclude",
    "includes": "excludes",
    "included": "excluded",
    "open": "close",
    "opened": "closed",
    "first": "last",
    "more": "fewer",
    "valid": "invalid",
    "correct": "incorrect",
    "public": "private",
    "ascending": "descending",
    "minimum": "maximum",
    "success": "failure",
    "true": "false",
    "install": "uninstall",
    "connect": "disconnect",
    "encode": "decode",
    "lock": "unlock",
    "read": "write",
    "upgrade": "downgrade",
}
_BARE_FORM = {
    "works": "work",
    "fails": "fail",
    "needs": "need",
    "returns": "return",
    "uses": "use",
    "handles": "handle",
}
_DENIABLE = re.compile(
    r"\b(?:(?P<helper>is|are|was|were|should|must|can|could|will|would|does|do|did)(?!\s+not\b|n['’]t)"
    rf"|(?P<verb>{'|'.join(_BARE_FORM)}))\b(?=\s+\w)",
    re.IGNORECASE,
)
_DENIED = re.compile(r"\b(is|are|was|were|should|must|can|could|will|would|does|do|did) not ", re.IGNORECASE)


def respell(text: str) -> str | None:
    """Return the text without articles, contracted, with units abbreviated and other punctuation; None if nothing
    changes.
    """
    changed = _swap(_ARTICLES.sub("", text), _CONTRACTIONS)
    for long, short in _UNITS.items():
        changed = re.sub(rf"(?<=\d)\s+{long}\b", f" {short}" if short != "%" else "%", changed)
    changed = changed.replace(";", ",").replace("!", ".").rstrip(".")
    return changed if changed != text else None


def replace_synonyms(text: str) -> str | None:
    """Return the text with synonyms from a small table; None if it has none of its words."""
    return _swapped(text, _SYNONYMS)


def replace_opposite(text: str) -> str | None:
    """Return the text with its first word of a small table turned into its opposite; None if it has no such word."""
    both = _OPPOSITES | {low: high for high, low in _OPPOSITES.items()}
    return _swapped(text, both, most=1)


def negate(text: str) -> str | None:
    """Return the text with its first statement negated, or stated if it is negated; None if no statement is found."""
    if _DENIED.search(text):
        return _DENIED.sub(r"\1 ", text, count=1)
    match = _DENIABLE.search(text)
    if match is None:
        return None
    denied = f"does not {_BARE_FORM[match['verb'].lower()]}" if match["verb"] else f"{match[0]} not"
    return text[: match.start()] + denied + text[match.end() :]


def _swapped(text: str, table: Mapping[str, str], *, most: int = 0) -> str | None:
    changed = _swap(text, table, most=most)
    return changed if changed != text else None


def _swap(text: str, table: Mapping[str, str], *, most: int = 0) -> str:
    """Return ``text`` with whole words of ``table`` replaced, longest first; ``most`` = 0 replaces all occurrences."""
    words = "|".join(sorted(map(re.escape, table), key=len, reverse=True))
    lower = {word.lower(): other for word, other in table.items()}

    def other(match: re.Match[str]) -> str:
        found = lower[match[0].lower()]
        return found[0].upper() + found[1:] if match[0][0].isupper() else found

    return re.sub(rf"(?<![\w-])(?:{words})(?![\w-])", other, text, count=most, flags=re.IGNORECASE)
