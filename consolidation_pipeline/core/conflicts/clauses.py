"""The clauses of a text: what each speaks of, what it denies, and whether it reports, demands, asks or supposes it."""

from dataclasses import dataclass, field
from enum import IntEnum, auto

from consolidation_pipeline.core.conflicts.word_roles import Role, Word
from consolidation_pipeline.core.literals.negation import QUESTION

# Looking a member up in its class costs as much as reading a word.
_CONTENT, _SUBJECTS = Role.CONTENT, (Role.SUBJECT, Role.SPEAKER)
_NONE: frozenset[str] = frozenset()


class Mood(IntEnum):
    """Mood of a clause: advice or fact, as what happened, what should be, a question, a condition."""

    PLAIN = auto()
    REPORTED = auto()
    WISHED = auto()
    ASKED = auto()
    SUPPOSED = auto()


# Not frozen, though nothing changes one: that would cost a tenth of the time to read a text.
@dataclass(slots=True, unsafe_hash=True)
class Clause:
    """Part of a sentence, from ``start`` to ``end``. Words are stems, and both ends of a scale are one word.

    ``denied``: for each negation, the word that it denies, and one without which the rest is about something else: the
    clause's first for "without", else the same again. ``low``, ``high``: the scales of which just that end is
    named. ``left``: what stands before a ``before`` or ``after``.
    """

    words: frozenset[str]
    denied: tuple[tuple[str, str], ...]
    low: frozenset[str]
    high: frozenset[str]
    left: frozenset[str]
    mood: Mood
    start: int = field(compare=False)
    end: int = field(compare=False)

    @property
    def is_charged(self) -> bool:
        """True if the clause can contradict one that is not."""
        return bool(self.denied or self.low or self.left)


class Draft:
    """A clause while it is read."""

    __slots__ = (
        "_light",
        "denied",
        "end",
        "ends",
        "is_condition",
        "is_question",
        "left",
        "names",
        "roles",
        "start",
        "subject",
        "waiting",
    )

    def __init__(self, start: int) -> None:
        self.start, self.end = start, start
        self.names: list[str] = []
        self.ends: list[tuple[str, int]] = []
        self.denied: list[tuple[str, str]] = []
        self.left: list[str] = []
        self.roles: set[Role] = set()
        self.subject: Role | None = None
        self.is_question = self.is_condition = False
        # Negations that wait for the word that they deny, and a verb that might be it.
        self.waiting: list[bool] = []
        self._light = ""

    def add(self, word: Word, end: int) -> None:
        """Take the next word, which ends at ``end``."""
        self.end = end
        role, name, scale_end, is_light, _, _ = word
        if role is not _CONTENT:
            self.roles.add(role)
            if self.subject is None and not self.names and role in _SUBJECTS:
                self.subject = role
        if not name:
            return
        if scale_end:
            self.ends.append((name, scale_end))
            if name == "before" and not self.left:
                self.left = list(self.names)
        self.names.append(name)
        if self.waiting and (self._light or not is_light):
            self._resolve(word.name)
        elif self.waiting:
            self._light = name

    def deny(self, end: int, *, is_adjunct: bool = False) -> None:
        """Take a negation: it denies the next word that says something, or the last one if none follows."""
        self.end = end
        self.waiting.append(is_adjunct)

    def _resolve(self, name: str) -> None:
        self.denied += [(name, self.names[0] if is_adjunct else name) for is_adjunct in self.waiting]
        self.waiting, self._light = [], ""

    def clause(self, text: str) -> Clause:
        """Return the finished clause."""
        if self.waiting:
            self._resolve(self._light or self.names[-1])
        low = high = _NONE
        if self.ends:
            ends = set(self.ends)
            low = frozenset(name for name, end in ends if end < 0 and (name, 1) not in ends)
            high = frozenset(name for name, end in ends if end > 0 and (name, -1) not in ends)
        words = frozenset(self.names)
        return Clause(
            words,
            tuple(self.denied),
            low,
            high,
            frozenset(self.left) if self.left else _NONE,
            self.mood(text),
            self.start,
            self.end,
        )

    def mood(self, text: str) -> Mood:
        """Mood of the clause."""
        if (self.is_question and self.subject is not Role.SPEAKER) or QUESTION.match(text, self.start):
            return Mood.ASKED
        if self.is_condition:
            return Mood.SUPPOSED
        if Role.WISH in self.roles:
            return Mood.WISHED
        if self.subject is Role.SPEAKER or (
            Role.RULE not in self.roles and (self.subject is Role.SUBJECT or Role.REPORT in self.roles)
        ):
            return Mood.REPORTED
        return Mood.PLAIN
