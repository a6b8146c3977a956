"""Slots of claims: sentences that say the same but for what stands in one place of both."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

from consolidation_pipeline.core.case_blind import ignore_case
from consolidation_pipeline.core.differences.language_loader import load_language
from consolidation_pipeline.core.differences.reading import VALUE_KINDS, Token
from consolidation_pipeline.core.knowledge.change_words import Span
from consolidation_pipeline.core.knowledge.claims import Claim
from consolidation_pipeline.core.knowledge.named_things import is_label, is_name
from consolidation_pipeline.core.knowledge.rival_claims import Comparison

# Words of English sentences that find fault: what they contrast is no fact of then and now.
WRONG = frozenset("incorrect incorrectly wrong wrongly".split())
FAULTS = WRONG | frozenset(
    "bug issue problem error mistake because fails failed causing expected properly correctly".split()
)
# Units of one measure.
_TIMES = frozenset(("s", "min", "h", "d"))
# Governors of when something begins, and when it ends.
ENDS = frozenset(("from", "until"))
# Most words that take the place of others.
_LONGEST_SLOT = 4
# Verbs that say where or how something is, by the keys of their tokens.
STATE_VERBS = frozenset(
    ("do with", *"be begin do has have hold keep lie listen live reside run sit start stay store use".split())
)
# Verbs that say where or how something is, beside an amount, also in other languages.
STATES = STATE_VERBS | frozenset(
    """
    lauf lausch lauscht lieg speich steh verwend wohn ejecut encontr escuch funcion guard usar viv
    enregistr exécut héberg trouv utilis vivr écout
    """.split()
)
# A time of day, which may be written as a decimal.
_CLOCK = re.compile(r"(\d{1,2})[.:h](\d\d)(?: ?h)?")
# Cues that stand at a verb, and a colon that no time or URL has.
_VERB_CUES, _COLON = ("tense", "modality"), re.compile(r":(?=\s)")
# What stands behind and before the holder of a part that one has.
_HOLDS = ignore_case(
    r"\s+(?:now\s+)?(?:owns|leads|maintains|manages|heads|chairs|(?:is|are)\s+(?:now\s+)?(?:the|our|my)\b)"
)
_HELD = ignore_case(r"\b(?:is|are)\s+(?:now\s+)?(?:the\s+|our\s+)?$")
_COPULA = r"\b(?:is|are|was|were|ist|sind|war|waren|es|son|era|eran|fue|est|sont|était|étaient)"
_COPULA_BEHIND = ignore_case(rf"\s+{_COPULA}\b")
_COPULA_BEFORE = ignore_case(rf"{_COPULA}\s+(?:[\w.-]+\s+){{0,2}}$")


def may_be_states(before: Claim, after: Claim) -> bool:
    """Return True unless one of two sentences alone is a plan, or either tells an event or finds fault."""
    if before.is_plan != after.is_plan:
        return False
    return not any(one.is_event or finds_fault(one, WRONG) for one in (before, after))


def is_one_slot(before: Claim, after: Claim, comparison: Comparison) -> bool:
    """Return True if sentences that differ in a value, a name or a negation are statements on one slot, not events."""
    if comparison.first is None or comparison.other is None:
        return False
    if not may_be_states(before, after):
        return False
    words, others = (
        {t.key for t in one.tokens if t.kind == "word"} - two.keys for one, two in ((after, before), (before, after))
    )
    if any(one in words and other in others for one, other in _pair_modifiers(after, before)):
        return False
    if _open_differently(before, after) and not all(_may_open_slot(claim) for claim in (before, after)):
        return False
    old = [t for t in before.tokens if t.kind in VALUE_KINDS and t.key not in after.keys]
    new = [t for t in after.tokens if t.kind in VALUE_KINDS and t.key not in before.keys]
    clocks = [[_CLOCK.fullmatch(token.text) for token in side] for side in (old, new)]
    if len(old) == len(new) and all(a and b and a.groups() == b.groups() for a, b in zip(*clocks, strict=True)) and old:
        return False  # "7:40", "7.40 h"
    dated = [sum(map(is_date, side)) for side in (old, new)]
    if any(0 < count < len(side) for count, side in zip(dated, (old, new), strict=True)):
        return False
    pairs = ((before, old), (after, new))
    return not any(names_thing(claim, token) for claim, side in pairs for token in side)


def fill_one_slot(before: Claim, after: Claim, cue: Span) -> bool:
    """Return True if two sentences say the same but for one run of words, in the same place of both.

    The words of ``cue`` and verbs of a state, such as "runs" and "uses", count for neither.
    """
    behind = next((token.start for token in after.tokens if token.start >= cue[1]), -1)
    words = [token for token in before.tokens if token.key not in STATE_VERBS]
    others = [token for token in after.tokens if token.key not in STATE_VERBS and not cue[0] <= token.start < cue[1]]
    # "Now at 04:00, since the backup runs at 02:00": the reason is of something else.
    told = {token.clause for token in others if token.start == behind}
    own = [token for token in others if token.clause in told]
    claimed = {token.key for token in words if token.kind == "word"}
    if 2 * len(claimed & {token.key for token in own}) > len(claimed):
        others = own
    shared = {token.key for token in words} & {token.key for token in others}
    told |= {token.clause for token in others if token.key in shared}
    others = [token for token in others if token.clause in told]
    old, new = _find_runs(words, shared), _find_runs(others, shared)
    if not shared or len(old) != 1 or len(new) != 1 or max(len(old[0]), len(new[0])) > _LONGEST_SLOT:
        return False
    if len(old[0]) > len(shared) and not any(token.kind in VALUE_KINDS for token in old[0]):
        return False
    if any(len({token.phrase for token in run}) > 1 for run in (*old, *new)):
        return False
    was, now = old[0][0], new[0][0]
    if was.kind == now.kind == "value" and measure(was) != measure(now):
        return False
    counted = [run[1].key for run in (old[0], new[0]) if run[0].kind == "value" and run[1:] and run[1].gap == "tight"]
    if len({*counted}) > 1 or {was.governor, now.governor} == ENDS:
        return False  # "4 workers", "9 alerts"; "from 8", "until 12"
    if any(t.kind == "word" and t.governor == "time" and len(run) > 1 for run in (old[0], new[0]) for t in run):
        return False  # "in the evening every 30 minutes"
    if _has_amount(before, old[0]) != _has_amount(after, new[0]):
        return False
    if any(names_thing(claim, token) for claim, run in ((before, old[0]), (after, new[0])) for token in run):
        return False
    if was is words[0] and _is_subject(before, old[0]) and not is_beside_copula(after, new[0]):
        return False
    if now.start == behind:
        return True
    if was is words[0] or now is others[0]:
        return _names_holder(before, old[0]) and _names_holder(after, new[0])
    return _is_same_place(before, was, after, now) and all(
        _is_value_of(one, word) for one, word in ((before, was), (after, now))
    )


def _has_amount(claim: Claim, words: Sequence[Token]) -> bool:
    """Return True if words have a value or "monthly", and no date: "Jan" may be a name."""
    adverbs = load_language(claim.language).time_adverbs
    return any((token.kind == "value" and not is_date(token)) or token.text.lower() in adverbs for token in words)


def _is_subject(claim: Claim, words: Sequence[Token]) -> bool:
    """Return True if "is" or "was" stands behind words."""
    return _COPULA_BEHIND.match(claim.text[words[-1].start + len(words[-1].text) :]) is not None


def is_beside_copula(claim: Claim, words: Sequence[Token]) -> bool:
    """Return True if "is" or "was" stands behind words, or before them."""
    return _is_subject(claim, words) or _COPULA_BEFORE.search(claim.text[: words[0].start]) is not None


def have_same_words(before: Claim, after: Claim) -> bool:
    """Return True if two claims differ in values, names and negations only: without words of a change, they say so."""
    words, others = (
        {token.key for token in one.tokens if token.kind == "word"} - two.keys
        for one, two in ((before, after), (after, before))
    )
    opposites = load_language(after.language).opposites
    return all(opposites.get(key, frozenset()) & words for key in others) and len(words) == len(others)


def stand_in_opposite_places(before: Claim, after: Claim) -> bool:
    """Return True for "in production" and "in staging", "in the morning" and "in the evening": both may hold."""
    opposites = load_language(after.language).opposites
    there = {t.key for t in before.tokens if t.gap == "link" and t.key not in after.keys}
    here = {t.key for t in after.tokens if t.gap == "link" and t.key not in before.keys}
    return any(opposites.get(key, frozenset()) & there for key in here)


def are_apart(before: Claim, after: Claim, topic: Sequence[Token], rest: Sequence[Token]) -> bool:
    """Return True if two sentences are about different things of one kind: the web app, the mobile app."""
    new, old = (
        {t.key: t for t in topic if t.key not in before.keys | STATE_VERBS},
        {t.key: t for t in rest if t.key not in after.keys | STATE_VERBS},
    )
    opposites = load_language(after.language).opposites
    if any(opposites.get(key, frozenset()) & old.keys() for key in new):
        return True
    if any(map(is_name, new.values())) and any(map(is_name, old.values())):
        return True
    if any(_is_linked_alike(after, one, before, two) for one in new.values() for two in old.values()):
        return True
    if _open_differently(before, after) and after.tokens[0].key in new and before.tokens[0].key in old:
        return True
    return any(one in new and two in old for one, two in _pair_modifiers(after, before))


def _is_linked_alike(after: Claim, one: Token, before: Claim, two: Token) -> bool:
    """Return True if two words stand behind the same word and preposition: "the move to Rome", "the move to Turin"."""
    if "value" in (one.kind, two.kind) or one.gap != two.gap or one.gap not in ("link", "of"):
        return False
    if one.governor != two.governor and one.gap == "link":
        return False
    heads = [claim.tokens[: claim.tokens.index(word)][-1:] for claim, word in ((after, one), (before, two))]
    return all(heads) and heads[0][0].key == heads[1][0].key


def _open_differently(before: Claim, after: Claim) -> bool:
    """Return True if two sentences open with different words before the same one: "Rome branch", "Turin branch"."""
    was, now = ([token.key for token in claim.tokens[:2]] for claim in (before, after))
    return len(was) == len(now) == 2 and was[1] == now[1] and was[0] not in after.keys and now[0] not in before.keys


def _may_open_slot(claim: Claim) -> bool:
    """Return True if a sentence opens with a value, or with who has a part that one has, and not with its subject."""
    return claim.tokens[0].kind == "value" or _names_holder(claim, claim.tokens[:1])


def _pair_modifiers(after: Claim, before: Claim) -> Iterator[tuple[str, str]]:
    """Yield the words that stand right beside the same word in both sentences."""
    for step in (-1, 1):
        places = {token.key: at for at, token in enumerate(before.tokens)}
        for at, token in enumerate(after.tokens):
            place = places.get(token.key)
            if place is None or not (0 <= at + step < len(after.tokens) and 0 <= place + step < len(before.tokens)):
                continue
            pairs = ((after, at), (before, place))
            if all(claim.tokens[max(i, i + step)].gap == "tight" for claim, i in pairs):
                yield after.tokens[at + step].key, before.tokens[place + step].key


def _names_holder(claim: Claim, words: Sequence[Token]) -> bool:
    """Return True if words name who has a part that one has: "Ann Lee owns it", "the lead is Ann"."""
    rest = claim.text[words[-1].start + len(words[-1].text) :]
    return _HOLDS.match(rest) is not None or _HELD.search(claim.text[: words[0].start]) is not None


def _is_same_place(before: Claim, was: Token, after: Claim, now: Token) -> bool:
    """Return True if a word of one sentence stands where another word of the other does."""
    if was.governor == now.governor:
        return True
    # "listens on port 1", "uses port 2"
    one, other = (claim.tokens[claim.tokens.index(word) - 1] for claim, word in ((before, was), (after, now)))
    return one.key == other.key and one.phrase == was.phrase and other.phrase == now.phrase


def _is_value_of(claim: Claim, word: Token) -> bool:
    """Return True for a value, a word behind a preposition or "is the", and a name behind a verb of a state."""
    at = claim.tokens.index(word)
    is_used = word.kind in VALUE_KINDS and at > 0 and claim.tokens[at - 1].key in STATE_VERBS
    return word.kind == "value" or word.gap == "link" or is_used or _HELD.search(claim.text[: word.start]) is not None


def _find_runs(tokens: Sequence[Token], shared: Collection[str]) -> list[list[Token]]:
    """Return the runs of tokens between those whose keys are shared."""
    return [[*run] for is_shared, run in groupby(tokens, key=lambda token: token.key in shared) if not is_shared]


def measure(token: Token) -> str:
    """Return what kind of value a token is: its kind, and the unit of a number."""
    kind, _, value = token.key.partition(":")
    unit = value.partition(" ")[2]
    return f"{token.kind} {kind if value else ''} {'s' if unit in _TIMES else unit}"


def tells_amount(claim: Claim) -> bool:
    """Return True if a sentence has amounts with a unit, and no time, date or duration."""
    values = [token for token in claim.tokens if token.kind == "value"]
    units = {measure(token).rpartition(" ")[2] for token in values} - {""}
    return bool(units) and units.isdisjoint(_TIMES) and not any(map(is_date, values))


def is_date(token: Token) -> bool:
    return token.key.startswith(("date:", "days-", "months-", "ordinal:"))


def names_thing(claim: Claim, token: Token) -> bool:
    """Return True if a number names what the sentence speaks of: "phase 2 takes", "issue 118"."""
    at = claim.tokens.index(token)
    return is_label(claim.tokens, at, claim.reading.text, may_open=True) or _numbers_subject(claim, at)


def _numbers_subject(claim: Claim, at: int) -> bool:
    """Return True for a bare number behind a noun, before the verb of a state: "the key for house 2 is at the desk"."""
    token, ahead, behind = claim.tokens[at], claim.tokens[max(0, at - 1)], claim.tokens[at + 1 :]
    if (
        not token.key.startswith("number:")
        or " " in token.key
        or token.gap != "tight"
        or ahead.gap not in ("link", "of")
    ):
        return False
    if not behind or behind[0].clause != token.clause:
        return False
    is_verb = behind[0].gap == "tight" and behind[0].key in STATES and len(behind) > 1
    return is_verb or _is_subject(claim, [token])


def find_verb(claim: Claim) -> int:
    """Return where the first known verb stands, or the colon behind a subject; 0 if there is none."""
    cues = [cue.start for cue in claim.reading.cues if cue.category in _VERB_CUES]
    colon = _COLON.search(claim.text)
    return min([*cues, *([colon.start()] if colon else [])], default=0)


def tells_size(claim: Claim, token: Token) -> bool:
    """Return True for a value between two words of what a sentence speaks of: "milk 2 l bottles: 5 are left"."""
    at = claim.tokens.index(token)
    beside = claim.tokens[max(0, at - 1) : at + 2]
    is_inside = len(beside) == 3 and all(one.gap == "tight" for one in beside[1:])
    return token.kind == "value" and is_inside and token.start < find_verb(claim)


def finds_fault(claim: Claim, faults: frozenset[str]) -> bool:
    return claim.language == "en" and not faults.isdisjoint(claim.words)
