"""What a text denies, and where two texts say the opposite of each other."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from consolidation_pipeline.core.notation import BLANK
from consolidation_pipeline.core.opposites import SCALES, stem

_NEGATION = re.compile(
    rf"""(?<![\w-])(?:
        (?P<neutral>
            (?:do|does|did|must|should|can)(?:{BLANK}?not|n['’]?t){BLANK}(?:forget|hesitate)
            |(?:never|cannot){BLANK}(?:forget|hesitate)
            |not{BLANK}(?:only|just|merely|simply)
            |(?:whether{BLANK}or|why){BLANK}not
            |or{BLANK}not(?={BLANK}*(?:[.,;:!?)]|$))
            |not?{BLANK}(?:more|less|fewer|later|earlier|longer|sooner){BLANK}than
            |(?:do|does|did)(?:{BLANK}?not|n['’]?t){BLANK}know{BLANK}(?:if|how|what|whether|why)
            |no{BLANK}(?:doubt|problem|matter|wonder)
            |nothing{BLANK}but)
        |not|never|none|nothing|nobody|nowhere|neither|cannot|without|no(?!\.?{BLANK}?\d)
        |(?:do|does|did|is|are|was|were|has|have|had|ca|wo|should|would|could|must|need|might)n['’]?t
        |(?:unable|yet){BLANK}to|fail(?:s|ed|ing|ure)?{BLANK}to|refus(?:es?|ed|ing){BLANK}to
        |avoid(?:s|ed|ing)?|lack(?:s|ed|ing)?|instead{BLANK}of|rather{BLANK}than
        |stop(?:s|ped|ping)?(?={BLANK}\w+ing\b)
    )(?![\w-])|(?<![\w-])non-(?=\w)""",
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
_UNREMARKABLE = frozenset(
    """
    a about again all also always am an and any are as at be because been being both but by can could did do does
    doing each ever few for from further had has have having he her here him his how i if in into is it its itself
    just longer may me might most must my of only or other our over own same shall she should so some such than that
    the their them then there these they this those to too us very via was we were what when
    where which while who why will with would you your
    """.split()
)
_CLAUSE_END = re.compile(
    r"[.!?;:,](?=\s|$)|[()\n—–]|\s-+\s|(?=\b(?:instead of|rather than)\b)"
    r"|\b(?:and|but|because|while|whereas|although|though|so|then|which|since|or|if|when)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_](?:[\w.'’+-]*[^\W_])?")
# "turn caching off" and "turn off caching": the only uses of on and off that are opposites.
_SWITCH = re.compile(r"\b(?:turn|switch)(?:s|es|ed|ing)?((?:\s+\w+){0,3}?)\s+(on|off)\b", re.IGNORECASE)
# Dice overlap from which two clauses speak of the same: near-misses share nearly all, other clauses about a half.
_SAME_TOPIC = 0.65
# A word in more clauses than this finds no pairs, or two pasted logs would make millions.
_RARE = 30


def negations(text: str) -> Iterator[re.Match[str]]:
    """Where ``text`` denies something; ``not only``, ``don't forget`` and their like deny nothing."""
    return (match for match in _NEGATION.finditer(text) if not match["neutral"])


@dataclass(frozen=True)
class _Clause:
    """Part of a sentence: its words by their stems, where opposites are one word, and which of them it denies."""

    text: str = field(compare=False)
    words: frozenset[str]
    denied: bool
    low: frozenset[str]
    high: frozenset[str]

    def denies(self, shared: frozenset[str]) -> bool:
        """Whether negations and the low ends of the scales in ``shared`` add up to a denial."""
        return (self.denied + len((self.low - self.high) & shared)) % 2 == 1


@lru_cache(maxsize=1024)
def _clauses(text: str) -> tuple[_Clause, ...]:
    clauses = dict.fromkeys(_clause(part) for part in _CLAUSE_END.split(text))
    return tuple(clause for clause in clauses if clause.words)


def _clause(text: str) -> _Clause:
    denied = sum(1 for _ in negations(text)) % 2 == 1
    plain = _SWITCH.sub(lambda match: match[1] + (" enable" if match[2].casefold() == "on" else " disable"), text)
    words = (word.casefold() for word in _WORD.findall(_NEGATION.sub(" ", plain)))
    stems = {stem(word) for word in words if word not in _UNREMARKABLE}
    ends = {SCALES[name] for name in stems & SCALES.keys()}
    low = frozenset(scale for scale, is_low in ends if is_low)
    high = frozenset(scale for scale, is_low in ends if not is_low)
    return _Clause(text.strip(), frozenset(stems - SCALES.keys()) | low | high, denied, low, high)


def disputes(a: str, b: str) -> Iterator[tuple[str, str]]:
    """A clause of each text, where they are each other's best match and one denies what the other says."""
    ours, theirs = _clauses(a), _clauses(b)
    if not any(clause.denied or clause.low for clause in (*ours, *theirs)):
        return
    matched = _matched(ours, theirs)
    disputed = [(x, y) for x, y in matched if _differ(ours[x], theirs[y])]
    agreed = set(matched) - set(disputed)
    settled = {x for x, _ in agreed}, {y for _, y in agreed}
    for x, y in disputed:
        if x not in settled[0] and y not in settled[1]:
            yield ours[x].text, theirs[y].text


def _differ(a: _Clause, b: _Clause) -> bool:
    shared = a.words & b.words
    return a.denies(shared) != b.denies(shared)


def _matched(ours: tuple[_Clause, ...], theirs: tuple[_Clause, ...]) -> list[tuple[int, int]]:
    """Pairs of positions whose Dice overlap is at least _SAME_TOPIC and, for both, the best they have."""
    # One shared word says little, except about texts that have no more.
    enough = min(2, *(len(frozenset().union(*(clause.words for clause in side))) for side in (ours, theirs)))
    overlap: dict[tuple[int, int], float] = {}
    for x, y in sorted(_candidates(ours, theirs)):
        shared = len(ours[x].words & theirs[y].words)
        dice = 2 * shared / (len(ours[x].words) + len(theirs[y].words))
        if shared >= enough and dice >= _SAME_TOPIC:
            overlap[x, y] = dice
    best_ours: dict[int, float] = {}
    best_theirs: dict[int, float] = {}
    for (x, y), dice in overlap.items():
        best_ours[x] = max(dice, best_ours.get(x, 0.0))
        best_theirs[y] = max(dice, best_theirs.get(y, 0.0))
    return [(x, y) for (x, y), dice in overlap.items() if dice == best_ours[x] == best_theirs[y]]


def _candidates(ours: tuple[_Clause, ...], theirs: tuple[_Clause, ...]) -> set[tuple[int, int]]:
    """Pairs of positions whose clauses share a word that is rare on both sides."""
    places = _places(ours), _places(theirs)
    rare = (word for word in places[0].keys() & places[1].keys() if all(len(side[word]) <= _RARE for side in places))
    return {(x, y) for word in rare for x in places[0][word] for y in places[1][word]}


def _places(clauses: tuple[_Clause, ...]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for position, clause in enumerate(clauses):
        for word in clause.words:
            places.setdefault(word, []).append(position)
    return places
