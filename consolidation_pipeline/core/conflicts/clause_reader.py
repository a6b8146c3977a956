"""Cuts a text into its clauses."""

import re

from consolidation_pipeline.core.conflicts.clauses import Clause, Draft, Mood
from consolidation_pipeline.core.conflicts.word_roles import Role, Word, read_word
from consolidation_pipeline.core.literals.negation import NEGATION, SWITCH

# More distinct clauses than this are not read: two pasted logs would make millions of pairs.
_MOST = 400
_TOKEN = re.compile(
    r"[Nn][Oo][Nn]-(?=\w)|[^\W_](?:[\w.'’+-]*[^\W_])?|[.!?;:,](?=\s|$)|[()\n—–]|(?<=\s)-+(?=\s)", re.MULTILINE
)
_GERUND = re.compile(r"\s+\w+ing\b", re.IGNORECASE)
# Looking a member up in its class costs as much as reading a word.
_CONTENT, _FILLER, _STOP = Role.CONTENT, Role.FILLER, Role.STOP
_ON = {"on": read_word("enable"), "off": read_word("disable")}


def read_clauses(text: str) -> tuple[Clause, ...]:
    """Return the first 400 distinct clauses of ``text`` that say anything, in order."""
    found: dict[Clause, None] = {}
    for draft in _Reader(text).drafts():
        if draft.names:
            found.setdefault(draft.clause(text))
            if len(found) == _MOST:
                break
    return tuple(found)


class _Reader:
    """Cuts a text into drafts of clauses."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.draft: Draft | None = None
        # The clause that "instead of" and ", not" refer to, if this sentence has one.
        self.main: Draft | None = None
        self.supposed = self.dropping = self.after_comma = self.goes_on = False
        self.switch = (-1, read_word("on"))

    def drafts(self) -> list[Draft]:
        """Return the drafts of all clauses in order."""
        ready: list[Draft] = []
        skip = 0
        for match in _TOKEN.finditer(self.text):
            start, end = match.span()
            if start < skip:
                continue
            word = read_word(match[0])
            draft = self.draft
            if word.is_plain and draft is not None and self.switch[0] < start:
                # Most words, so they come first: they take no more than this.
                draft.end = end
                if word.role is _CONTENT and not (word.end or draft.waiting):
                    draft.names.append(word.name)
                elif word.role is not _FILLER:
                    draft.add(word, end)
            elif word.role is _STOP:
                self._stop(match[0], ready)
            else:
                skip = self._take(word, start, end, ready)
        self._close(ready)
        return ready

    def _take(self, word: Word, start: int, end: int, ready: list[Draft]) -> int:
        """Read a word, or the negation that it begins; the result is where to go on."""
        denial = NEGATION.match(self.text, start) if word.may_deny else None
        if denial:
            return self._deny(denial, word, ready) or end
        if word.role is Role.SWITCH:
            self._find_switch(start)
            if self.switch[0] > start:
                return end
        elif start == self.switch[0]:
            word = self.switch[1]
        self._word(word, start, end, ready)
        return end

    def _word(self, word: Word, start: int, end: int, ready: list[Draft]) -> None:
        if word.role is Role.JOIN:
            self._close(ready)
            self.supposed = self.text.startswith("so that", start)
            self.goes_on = self.text[start:end] in ("and", "but", "or", "then", "which")
        elif word.role is Role.IF and not self._is_short():
            self._close(ready)
            self.supposed = True
        elif not self.dropping:
            self._current(start).add(word, end)

    def _deny(self, denial: re.Match[str], word: Word, ready: list[Draft]) -> int:
        """Read a negation; 0 if it is to be read as plain words after all."""
        start, end = denial.span()
        if denial["neutral"]:
            return end
        if denial["contrast"] or (self.after_comma and self.draft is None and denial[0].casefold() == "not"):
            self._contrast(start, end, ready)
            return end
        if denial["purpose"]:
            if not self._is_short():
                self._close(ready)
                self.dropping = True
                return end
            if "revent" in denial[0].casefold():
                return 0
        if denial[0].casefold() == "unless" and not self._is_short():
            self._close(ready)
            self.supposed = True
        if not self.dropping:
            draft = self._current(start)
            draft.roles.add(word.role)
            draft.deny(end, is_adjunct=denial[0].casefold() == "without")
        return end

    def _contrast(self, start: int, end: int, ready: list[Draft]) -> None:
        """``use a instead of b`` denies ``use b``; ``it did a instead of b`` does not tell whether b is right."""
        main = self.draft or self.main
        self._close(ready)
        self.dropping = main is None or main.mood(self.text) not in (Mood.PLAIN, Mood.WISHED) or not main.names
        if main is not None and not self.dropping:
            draft = self._current(start)
            draft.roles = main.roles & {Role.WISH}
            if not _GERUND.match(self.text, end):
                draft.names = main.names[:1]
            draft.deny(end)

    def _current(self, start: int) -> Draft:
        if self.draft is None:
            self.draft = Draft(start)
            self.draft.is_condition, self.supposed = self.supposed, False
            if self.goes_on and self.main is not None:
                self.draft.subject = self.main.subject
        return self.draft

    def _is_short(self) -> bool:
        """Return True if the clause so far needs the words that follow: "retry if", "make sure to"."""
        return self.draft is not None and 1 <= len(self.draft.names) < 2

    def _find_switch(self, start: int) -> None:
        found = SWITCH.match(self.text, start)
        if found:
            self.switch = found.start(1), _ON[found[1].casefold()]

    def _stop(self, mark: str, ready: list[Draft]) -> None:
        if self.draft is not None and mark == "?":
            self.draft.is_question = not self.text.startswith(("why", "Why"), self.draft.start)
        self._close(ready)
        self.after_comma = mark == ","
        if mark in ".!?;\n":
            self.main = None

    def _close(self, ready: list[Draft]) -> None:
        if self.draft is not None:
            ready.append(self.draft)
            self.main = self.draft if self.draft.names else self.main
        self.draft = None
        self.supposed = self.dropping = self.after_comma = self.goes_on = False
