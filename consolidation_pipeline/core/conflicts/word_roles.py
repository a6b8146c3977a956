"""Roles of words in a clause: carry content, name one end of a scale, join, demand, report or deny."""

import re
from enum import IntEnum, auto
from functools import lru_cache
from typing import NamedTuple

from consolidation_pipeline.core.conflicts.antonyms import SCALES
from consolidation_pipeline.core.text.stems import stem


class Role(IntEnum):
    """Role of a word beside carrying content."""

    CONTENT = auto()
    FILLER = auto()
    SUBJECT = auto()
    SPEAKER = auto()
    WISH = auto()
    REPORT = auto()
    RULE = auto()
    JOIN = auto()
    IF = auto()
    SWITCH = auto()
    STOP = auto()


class Word(NamedTuple):
    """A word: its stem or the name of its scale, "" if it says nothing; ``end`` is -1 at the low end, 1 at the high.

    A plain word can only add to the clause in which it stands: it neither begins nor ends one, nor denies.
    """

    role: Role
    name: str = ""
    end: int = 0
    is_light: bool = False
    may_deny: bool = False
    is_plain: bool = False


def _words(role: Role, words: str) -> dict[str, Role]:
    return dict.fromkeys(words.split(), role)


_ROLES = {
    **_words(
        Role.FILLER,
        """
        about again all also am and any as at be been being both by could each even few for from further having here
        him how in into just longer me might most of on only other our over own same so some such than them then there
        these those to too us very via what where who why will with would you actually already anymore currently
        directly ever generally now really simply still usually yet quite rather
        """,
    ),
    # What a statement about something begins with; a command begins with its verb.
    **_words(
        Role.SUBJECT,
        "it it's that's there's this that the a an he she they her his its my our their your there current",
    ),
    **_words(Role.SPEAKER, "i we"),
    **_words(
        Role.WISH,
        """
        should must shall ought shouldn't mustn't needn't need needs needed want wants wanted like wish ensure ensures
        ensuring
        """,
    ),
    **_words(
        Role.REPORT,
        """
        do does did doing is are was were has have had don't doesn't didn't isn't aren't wasn't weren't hasn't haven't
        hadn't dont doesnt didnt isnt arent wasnt werent hasnt havent hadnt fails failed unable lacks lacked
        """,
    ),
    # A rule is neither a report nor a wish: "may", "can", "always", "never".
    **_words(Role.RULE, "may can will always never cannot can't cant won't wont"),
    **_words(Role.JOIN, "and but because while whereas although though so then which since or"),
    **_words(Role.IF, "if when whenever once"),
    **_words(Role.SWITCH, "turn turns turned turning switch switches switched switching"),
}
# Those of them that carry content too.
_TELLING = frozenset(
    """
    need needs needed want wants wanted ensure ensures ensuring fails failed lacks lacked unable
    turn turns turned turning switch switches switched switching
    """.split()
)
# A word at which a negation may begin; whether it does shows together with the next ones.
_MAY_DENY = re.compile(
    r"not?|non-|never|none|nothing|nobody|nowhere|neither|cannot|can|without|unless|whether|why|or|do|does|did|must|should"
    r"|(?:do|does|did|is|are|was|were|has|have|had|ca|wo|should|would|could|must|need|might)n['’]?t"
    r"|to|unable|yet|fail(?:s|ed|ing|ure)?|refus(?:es?|ed|ing)|avoid(?:s|ed|ing)?|lack(?:s|ed|ing)?|instead|rather"
    r"|stop(?:s|ped|ping)?"
)
# Verbs that say less than what follows them: "never call commit" denies the commit.
_LIGHT = frozenset(
    map(stem, "call use make do get have let keep perform run try need allow cause seem appear able".split())
)


@lru_cache(maxsize=1 << 16)
def read_word(written: str) -> Word:
    """Return the role of ``written``, one word or punctuation mark."""
    word = written.casefold().replace("’", "'")
    if not (word[0].isalnum() or word == "non-"):
        return Word(Role.STOP)
    role = _ROLES.get(word, Role.CONTENT)
    may_deny = _MAY_DENY.fullmatch(word) is not None
    if role is not Role.CONTENT and word not in _TELLING:
        return Word(role, may_deny=may_deny, is_plain=not may_deny and role not in (Role.JOIN, Role.IF))
    name = stem(word)
    scale, is_low = SCALES.get(name, ("", False))
    return Word(
        role,
        scale or name,
        (-1 if is_low else 1) if scale else 0,
        name in _LIGHT,
        may_deny,
        not may_deny and role is not Role.SWITCH,
    )
