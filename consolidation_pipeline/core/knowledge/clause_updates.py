"""Updates of clauses: a later sentence tells, in one clause, what is so by now of a part of what an older one says.

The older sentence may say more, in other clauses and of other things, so that such an update is never certain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from consolidation_pipeline.core.differences.language_loader import load_language
from consolidation_pipeline.core.differences.reading import VALUE_KINDS, Token
from consolidation_pipeline.core.knowledge.claim_holders import find_holders, list_role_words
from consolidation_pipeline.core.knowledge.claim_slots import (
    ENDS,
    STATES,
    WRONG,
    are_apart,
    finds_fault,
    is_beside_copula,
    is_date,
    measure,
    names_thing,
)
from consolidation_pipeline.core.knowledge.claim_subjects import has_token
from consolidation_pipeline.core.knowledge.claims import Claim
from consolidation_pipeline.core.knowledge.named_things import is_name
from consolidation_pipeline.core.knowledge.told_words import PLAIN_VERBS, Told, list_told

Side = Sequence[Token]

# Most words that take the place of others.
_LONGEST = 4
# Least number of words in common beside a new name, unless the older sentence opens with one.
_FEWEST = 2
# Categories of cues that tell which case is meant: "every", "first", "early".
_CASES = frozenset(("quantity", "order", "earliness", "frequency"))
# Governors of where, with or through what something is.
_PLACES = frozenset("in on at with by through via using auf mit bei im en con avec dans sur chez".split())


def updates_clause(before: Claim, after: Claim) -> bool:
    """Return True if a clause of ``after`` that tells what is so by now says something else of what ``before`` names.

    Its other words are those of ``before``, where values of the same kinds, or a name in the same place, stand.
    """
    if after.is_addition or before.is_denied or not before.is_state or (before.is_reported and not before.changes):
        return False
    if finds_fault(before, WRONG) or finds_fault(after, WRONG):
        return False
    return any(_updates(before, after, told) for told in list_told(before, after))


def _updates(before: Claim, after: Claim, told: Told) -> bool:
    """Return True if words that tell what is so by now say something else of what ``before`` names."""
    words = told.words
    if any(token.kind == "value" and not has_token(before, token) for token in words):
        words = [token for token in words if token.key not in STATES]
    runs = _find_runs(words, before)
    if told.new:
        rest = [run for run in runs if run[0] not in told.new]
        runs = [[*told.new], *rest] if len(rest) < len(runs) else []
    # The date of the change, unless dates are all that is new. "Jan" may be a name.
    runs = [run for run in runs if run[0].gap != "link" or not all(map(is_date, run))] or runs
    new = [_find_new(run, before) for run in runs]
    fresh = {token for run in new for token in run}
    shared = [token for token in words if token not in fresh]
    if not runs or not all(new) or not any(token.kind != "value" for token in shared):
        return False
    if any(names_thing(after, token) for token in fresh) or not _list_cases(after, words) <= _list_cases(before):
        return False
    old: list[Token]
    if all(run[-1].kind == "value" for run in new):
        found = [_find_value(before, after, run[-1], shared) for run in new]
        old = [token for one in found for token in one] if all(found) else []
    else:
        old = _find_name(before, after, new[0], words, told) if len(new) == 1 else []
    if not old or len({*old}) < len(new) or any(names_thing(before, token) for token in old):
        return False
    if told.gone and not {token.text.lower() for token in told.gone} & {token.text.lower() for token in old}:
        return False
    return not are_apart(before, after, shared, [token for token in before.tokens if token not in old])


def _list_cases(claim: Claim, words: Sequence[Token] = ()) -> set[tuple[str, str]]:
    """Return the cues of a sentence, or of the clauses of words, that tell which case is meant."""
    clauses = {token.clause for token in words or claim.tokens}
    told = [change.cue for change in claim.changes] if find_holders(claim) else []  # "is the lead again"
    cues = (
        cue
        for cue in claim.reading.cues
        if cue.category in _CASES and cue.clause in clauses and not any(a <= cue.start < b for a, b in told)
    )
    return {(cue.category, cue.pole) for cue in cues if cue.pole != "all"}


def _find_runs(words: Sequence[Token], other: Claim) -> list[list[Token]]:
    """Return the runs of words that the other sentence lacks."""
    return [[*run] for is_said, run in groupby(words, key=lambda token: _says(other, token)) if not is_said]


def _says(claim: Claim, token: Token) -> bool:
    """Return True if a sentence has a word, or one that may stand for it."""
    language = load_language(claim.language)
    return has_token(claim, token) or any(language.may_replace(token.key, key) for key in claim.keys)


def _find_new(run: Sequence[Token], before: Claim) -> list[Token]:
    """Return what is new of a run of words: a name, words of one phrase, or the value behind what ``before`` has."""
    if len(run) > _LONGEST or len({token.phrase for token in run}) > 1:
        return []
    if run[-1].kind != "value":
        return [*run]
    # "Postgres 16"
    return [run[-1]] if all(has_token(before, token) for token in run[:-1]) else []


def _find_value(before: Claim, after: Claim, new: Token, shared: Sequence[Token]) -> list[Token]:
    """Return the one value of ``before`` in whose place a new one stands: of its kind, and with a word in common."""
    keys = {token.key for token in shared} - load_language(after.language).times
    is_bare = new.key.startswith("number:") and " " not in new.key
    label = _find_label(after, new)
    found: dict[Token, int] = {}
    for token in before.tokens:
        if token.key in keys or token.kind != "value" or measure(token) != measure(new):
            continue
        if {token.governor, new.governor} == ENDS:
            continue
        own = _find_label(before, token)
        if is_bare and (own is None or own.key not in keys or keys == {own.key}):
            continue  # "port 5"
        if is_bare and own and new.gap == "tight" and label and label.key != own.key:
            continue
        if _list_bounds(before, token) == _list_bounds(after, new):
            found[token] = sum(one.key in keys for one in before.tokens if one.clause == token.clause)
    most = max(found.values(), default=0)
    best = [token for token, count in found.items() if count == most]
    return best if most and len(best) == 1 else []


def _find_label(claim: Claim, value: Token) -> Token | None:
    """Return the word right before a value, or the last one that is no value in its clause."""
    ahead = [token for token in claim.tokens if token.start < value.start]
    words = [token for token in ahead if token.clause == value.clause and token.kind != "value"]
    return next(iter((ahead if value.gap == "tight" else words)[-1:]), None)


def _list_bounds(claim: Claim, value: Token) -> set[str]:
    """Return the bounds of a value: "at least 5", "the maximum is 5"."""
    begin = max((t.start for t in claim.tokens if t.kind == "value" and t.start < value.start), default=-1)
    bounds = {cue.pole for cue in claim.reading.cues if cue.category == "bound" and begin < cue.start < value.start}
    return bounds - {"about"}


class _Place(NamedTuple):
    """Words of a sentence, and the last words of both sentences before them and the first ones behind them."""

    claim: Claim
    words: Side
    ahead: Side
    behind: Side


def _find_name(before: Claim, after: Claim, new: Sequence[Token], words: Sequence[Token], told: Told) -> list[Token]:
    """Return the words of ``before`` in whose place new ones stand: behind the same word, or with the same part."""
    rest = {token.key for token in words if token not in new}
    if other := _find_other_holder(before, after, new):
        return other
    if len(rest) < _FEWEST and before.tokens[0].key not in rest:
        return []
    if told.new and before.tokens[0].key in rest:
        times = load_language(before.language).times
        return [t for t in before.tokens if t.key not in rest | times and _is_place(t)][:1]
    if any(new[-1] == holder[-1] for holder in find_holders(after)):
        holders = (holder for holder in find_holders(before) if holder[-1].key not in rest)
        return next((holder for holder in holders if _may_be_person(holder[-1]) and _may_be_person(new[-1])), [])
    at = words.index(new[0])
    now = _Place(after, new, words[at - 1 : at] if at else [], words[at + len(new) :][:1])
    places = _list_places(before, rest)
    return next(([*one.words] for one in places if _is_same_place(one, now, is_gone=bool(told.gone))), [])


def _find_other_holder(before: Claim, after: Claim, new: Sequence[Token]) -> list[Token]:
    """Return who has a part by ``before``, if another one has the same part by ``after``: "Ben is the lead again"."""
    holders = find_holders(before)
    if not holders or not any(new[-1] == holder[-1] for holder in find_holders(after)):
        return []
    roles = [{token.key for token in list_role_words(claim)} for claim in (before, after)]
    rest = [token for token in before.tokens if token not in holders[0] and not is_date(token)]
    is_same = roles[0] == roles[1] and all(has_token(after, token) for token in rest)
    return holders[0] if is_same and all(_may_be_person(one[-1]) for one in (holders[0], new)) else []


def _list_places(claim: Claim, said: Collection[str]) -> Iterator[_Place]:
    """Yield the runs of words of one phrase between those that both sentences have."""
    own = [token for token in claim.tokens if token.key not in PLAIN_VERBS]
    shared = [token for token in own if token.key in said]
    for (is_said, _), found in groupby(own, key=lambda token: (token.key in said, token.phrase)):
        run = [*found]
        words = [token for token in run if token.kind != "value"]
        if not is_said and 0 < len(words) <= _LONGEST:
            ahead, behind = (
                [token for token in shared if token.start < run[0].start],
                [token for token in shared if token.start > run[0].start],
            )
            yield _Place(claim, words, ahead[-1:], behind[:1])


def _is_same_place(was: _Place, now: _Place, *, is_gone: bool) -> bool:
    """Return True if words stand in the place of others."""
    if any(map(_is_agent, (was, now))) and all(_may_be_person(one.words[-1]) for one in (was, now)):
        # "Orders are signed by Ann", "Ben signs orders"
        sides = [{token.key for token in (*one.ahead, *one.behind)} for one in (was, now)]
        if not sides[0].isdisjoint(sides[1]):
            return True
    if all(one.words[-1].kind == "name" and is_beside_copula(one.claim, one.words) for one in (was, now)):
        return True
    if is_gone and (_is_same(was.ahead, now.ahead) or _is_same(was.behind, now.behind)):
        return True
    return _is_linked(was, now) and not _has_verb_ahead(was)


def _has_verb_ahead(place: _Place) -> bool:
    """Return True if a word stands between words and the one before them that both have: "Ann lives in Lund"."""
    ahead = [token for token in place.claim.tokens if place.ahead and place.ahead[0].start < token.start]
    between = [token for token in ahead if token.start < place.words[0].start and token.key not in PLAIN_VERBS]
    return any(token.kind == "word" and token.gap != "link" for token in between)


def _is_place(token: Token) -> bool:
    """Return True for a name, and what stands behind "in", "with" and the like, unless it is a time."""
    return not is_date(token) and (is_name(token) or (token.gap == "link" and token.governor in _PLACES))


def _is_agent(place: _Place) -> bool:
    """Return True for who does what a passive clause tells: "by Ann"."""
    return all(token.place in place.claim.reading.agents for token in place.words)


def _may_be_person(token: Token) -> bool:
    """Return True unless a word begins with a small letter: "by phone"."""
    return token.text[:1] == token.text[:1].upper()


def _is_linked(was: _Place, now: _Place) -> bool:
    """Return True if words stand behind a preposition and the same word: "stored in X", "stored in Y"."""
    if not all(one.words[0].gap == "link" for one in (was, now)) or not _is_same(was.ahead, now.ahead):
        return False
    if _is_same(was.behind, now.behind) and was.behind[0].gap == "tight":
        return False  # "the staging cluster", "the production cluster"
    if _is_named(was) != _is_named(now):
        return False  # "in Docker", "in parallel"
    return _is_named(was) or was.words[0].governor == now.words[0].governor


def _is_named(place: _Place) -> bool:
    return any(is_name(token) or token.kind in VALUE_KINDS for token in place.words)


def _is_same(one: Side, other: Side) -> bool:
    return bool(one and other) and one[0].key == other[0].key
