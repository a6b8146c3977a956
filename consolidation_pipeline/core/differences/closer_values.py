"""Values of other claims: all words of a text may be in a longer one, of which its value belongs to another claim."""

from collections import Counter
from collections.abc import Sequence

from consolidation_pipeline.core.differences.alignment import Alignment
from consolidation_pipeline.core.differences.reading import VALUE_KINDS, Token
from consolidation_pipeline.core.literals.measurements import name_quantity

# Governors of a former value and of the one that takes its place: "from 5 to 7", "von 5 auf 7", "de 5 a 7".
_FROM = frozenset(("from", "de"))
_TO = frozenset("to auf zu nach a à".split())


def find_closer_value(alignment: Alignment, *, is_longer_a: bool) -> tuple[Token, Token] | None:
    """Return a value that the longer text alone has for a claim of the shorter one, and the value that this one has.

    "The cache lives for 300 seconds, since sessions live for 60 seconds" has all words of "the cache lives for 60
    seconds", but nearer to those of the claim stands another value of the same measure. Values of a list are no others.
    "From 5 to 7" has another value than "5".
    """
    a, b = alignment.a, alignment.b
    longer, shorter, places = (a, b, alignment.of_b) if is_longer_a else (b, a, alignment.of_a)
    taken, counts = {*places.values()}, Counter(token.key for token in longer)
    left = [token for at, token in enumerate(longer) if at not in taken and token.kind in VALUE_KINDS]
    first = {token.key: token for token in reversed(longer)}
    for at, place in places.items() if left else ():
        own, value = shorter[at], longer[place]
        if own.kind not in VALUE_KINDS:
            continue
        words = {longer[other].key for one, other in places.items() if _is_word_of(shorter[one], own)}
        # Words that the longer text has twice may be paired with those of the other claim.
        claim = [first[key] for key in words if counts[key] == 1] or [first[key] for key in words]
        for token in left if claim else ():
            if token.key == value.key or token.kind != value.kind:
                continue
            is_listed = abs(token.place - value.place) == 1
            is_nearer = not is_listed and _distance(token, claim) < _distance(value, claim)
            if (is_nearer and _measure(token) == _measure(value)) or _replaces(token, value, own):
                return token, own
    return None


def _is_word_of(token: Token, value: Token) -> bool:
    """Return True for a word in the clause of a value."""
    return token.kind == "word" and token.clause == value.clause


def _distance(token: Token, claim: Sequence[Token]) -> tuple[bool, int]:
    """Return how far a token stands from the words of a claim: whether in another segment, and the number of tokens."""
    return min((token.segment != word.segment, abs(token.place - word.place)) for word in claim)


def _measure(token: Token) -> str:
    """Return what the unit of a number measures."""
    return name_quantity(token.key.partition(":")[2].partition(" ")[2])


def _replaces(new: Token, former: Token, own: Token) -> bool:
    """Return True for 3.1 in "from 2.8 to 3.1", unless the other text has "from 2.8" too."""
    is_behind = new.place == former.place + 1 and new.governor in _TO
    return is_behind and former.governor in _FROM and own.governor != "from"
