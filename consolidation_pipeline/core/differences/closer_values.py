"""Values of other claims: all words of a text may be in a longer one, of which its value belongs to another claim."""

from collections import Counter
from collections.abc import Sequence

from consolidation_pipeline.core.differences.alignment import Alignment
from consolidation_pipeline.core.differences.reading import Token
from consolidation_pipeline.core.literals.measurements import name_quantity

# Kinds of tokens that stand for a value or name.
_VALUE_KINDS = ("value", "name", "code")


def find_closer_value(alignment: Alignment, *, is_longer_a: bool) -> tuple[Token, Token] | None:
    """Return a value that the longer text alone has for a claim of the shorter one, and the value that this one has.

    "The cache lives for 300 seconds, since sessions live for 60 seconds" has all words of "the cache lives for 60
    seconds", but nearer to those of the claim stands another value of the same measure. Values of a list are no others.
    """
    a, b = alignment.a, alignment.b
    longer, shorter, places = (a, b, alignment.of_b) if is_longer_a else (b, a, alignment.of_a)
    taken, counts = {*places.values()}, Counter(token.key for token in longer)
    left = [token for at, token in enumerate(longer) if at not in taken and token.kind in _VALUE_KINDS]
    first = {token.key: token for token in reversed(longer)}
    for at, place in places.items() if left else ():
        own, value = shorter[at], longer[place]
        if own.kind not in _VALUE_KINDS:
            continue
        words = {longer[other].key for one, other in places.items() if _is_word_of(shorter[one], own)}
        # Words that the longer text has twice may be paired with those of the other claim.
        claim = [first[key] for key in words if counts[key] == 1] or [first[key] for key in words]
        for token in left if claim else ():
            is_listed = abs(token.place - value.place) == 1
            is_other = token.key != value.key and _measure(token) == _measure(value)
            if is_other and not is_listed and _distance(token, claim) < _distance(value, claim):
                return token, own
    return None


def _is_word_of(token: Token, value: Token) -> bool:
    """Return True for a word in the clause of a value."""
    return token.kind == "word" and token.clause == value.clause


def _distance(token: Token, claim: Sequence[Token]) -> tuple[bool, int]:
    """Return how far a token stands from the words of a claim: whether in another segment, and the number of tokens."""
    return min((token.segment != word.segment, abs(token.place - word.place)) for word in claim)


def _measure(token: Token) -> tuple[str, str]:
    """Return the kind of a value, and what the unit of a number measures."""
    return token.kind, name_quantity(token.key.partition(":")[2].partition(" ")[2])
