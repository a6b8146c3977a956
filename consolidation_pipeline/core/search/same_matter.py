"""Memories on one matter with other values: of these, the newest is read first, whether or not it is known to hold.

They need not be versions of one sentence: "do at most 30 jobs at a time", "at most 10 jobs at a time; 30 blocked it".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import combinations, pairwise, product
from uuid import UUID

from consolidation_pipeline.core.differences.language_detection import detect_language
from consolidation_pipeline.core.differences.language_loader import load_language
from consolidation_pipeline.core.differences.reading import Token
from consolidation_pipeline.core.knowledge.change_words import is_plan
from consolidation_pipeline.core.knowledge.claim_slots import is_date, names_thing, tells_size
from consolidation_pipeline.core.knowledge.claim_subjects import (
    have_other_kinds,
    have_other_owners,
    hold_side_by_side,
    tell_other_days,
)
from consolidation_pipeline.core.knowledge.claims import Claim
from consolidation_pipeline.core.knowledge.named_things import is_name
from consolidation_pipeline.core.knowledge.reported_events import are_events
from consolidation_pipeline.core.knowledge.rival_claims import compare_sentences
from consolidation_pipeline.core.knowledge.supersession import Revision, tells_past_month
from consolidation_pipeline.core.search.context_changes import DatedText
from consolidation_pipeline.core.search.context_days import is_of_its_time
from consolidation_pipeline.core.search.novelty import parse_sentences

# Sentences on one matter share so many content words, and this part of those of the shorter one.
_LEAST_WORDS, _LEAST_SHARE = 2, 0.5
# A longer text tells of more than one matter; more hits are not compared.
_MOST_SENTENCES, _MOST_TEXTS = 4, 25
# A pair of sentences that no text of the process had before takes 2 ms.
_MOST_PAIRS = 40
# What may stand between a word and what tells of which kind it is.
_JOINED = ("tight", "of", "link")


def link_other_values(texts: Iterable[DatedText]) -> dict[UUID, list[UUID]]:
    """Return for each text the later ones that tell another value of the same matter, by their ids."""
    ordered = sorted(list(texts)[:_MOST_TEXTS], key=lambda one: (one.learned_at, one.id))
    dated = (
        (older, newer)
        for older, newer in combinations(ordered, 2)
        if older.learned_at < newer.learned_at and older.scope == newer.scope
    )
    pairs = [(-share, at, pair, told) for at, pair in enumerate(dated) for share, *told in _pair_sentences(*pair)]
    links: dict[UUID, list[UUID]] = {}
    for *_, (older, newer), told in sorted(pairs, key=lambda one: one[:2])[:_MOST_PAIRS]:
        if newer.id in links.get(older.id, ()) or not _tell_others(*told):
            continue
        was, now = told
        if not tells_past_month(Revision(was, now, False), older.learned_at.date(), newer.learned_at.date()):
            links.setdefault(older.id, []).append(newer.id)
    return {older: sorted(newer, key=[one.id for one in ordered].index) for older, newer in links.items()}


def list_linked(links: Mapping[UUID, Iterable[UUID]]) -> set[UUID]:
    """Return all memories of links, older and newer ones."""
    return {*links, *(one for newer in links.values() for one in newer)}


def _pair_sentences(older: DatedText, newer: DatedText) -> Iterator[tuple[float, str, str]]:
    """Yield the pairs of sentences of two short texts that share enough words, with the share of those of both."""
    sentences = [parse_sentences(text.text) for text in (older, newer)]
    if max(map(len, sentences)) > _MOST_SENTENCES:
        return
    for one, other in product(*sentences):
        shared, sizes = one.content_words & other.content_words, (len(one.content_words), len(other.content_words))
        if len(shared) >= max(_LEAST_WORDS, _LEAST_SHARE * min(sizes)) and one.normal_form != other.normal_form:
            yield 2 * len(shared) / sum(sizes), one.text, other.text


# The next search of a project finds many of the same sentences.
@lru_cache(maxsize=1 << 13)
def _tell_others(older: str, newer: str) -> bool:
    """Return True if two sentences tell other values of one thing."""
    language = detect_language(f"{older}\n{newer}") or "en"
    before, after = Claim.of(older, language), Claim.of(newer, language)
    if not before.tokens or not after.tokens or is_plan(older, language) != is_plan(newer, language):
        return False
    if before.asks or after.asks or are_events(before.reading, after.reading):
        return False
    if any(rule(before, after) for rule in (have_other_kinds, have_other_owners, hold_side_by_side, tell_other_days)):
        return False
    labels = [
        {token.key for token in one.tokens if names_thing(one, token) or tells_size(one, token)} - other.keys
        for one, other in ((before, after), (after, before))
    ]
    if all(labels):
        return False
    if _tell_other_names(before, after):
        return True
    comparison = compare_sentences(before.reading, after.reading)
    if comparison is not None and comparison.relation != "elsewhere":
        return comparison.relation == "replaces"
    return not _are_on_others(before, after) and any(_pair_values(before, after))


def _tell_other_names(before: Claim, after: Claim) -> bool:
    """Return True if two sentences tell who or what it is "this quarter" or "now", and differ in names alone."""
    if not all(is_of_its_time(claim.text) for claim in (before, after)):
        return False
    words, others = ({token.key for token in claim.tokens if not is_name(token)} for claim in (before, after))
    return words == others and len(words) >= _LEAST_WORDS and before.text != after.text


def _are_on_others(before: Claim, after: Claim) -> bool:
    """Return True if two sentences name different things, open with two of them, or tell two kinds of one apart."""
    names = [{t.key for t in one.tokens if is_name(t)} - two.keys for one, two in ((before, after), (after, before))]
    if all(names) or _are_followed_apart(before, after):
        return True
    if before.tokens[0].key in after.keys or after.tokens[0].key in before.keys:
        return False
    # "The dose of X", "the limit for X"
    parts = [{t.key for t in claim.tokens if t.gap == "of" or t.governor == "for"} for claim in (before, after)]
    tells_change = any(one.form in ("now", "from") for claim in (before, after) for one in claim.changes)
    return not tells_change or parts[0].isdisjoint(parts[1])


def _are_followed_apart(before: Claim, after: Claim) -> bool:
    """Return True if words that the other sentence lacks follow a word of both: "the kit in the hall", "in the bus"."""
    own, others = (_list_following(claim) for claim in (before, after))
    return any(
        one.key not in after.keys and two.key not in before.keys
        for key in own.keys() & others.keys()
        for one in own[key]
        for two in others[key]
    )


def _list_following(claim: Claim) -> dict[str, list[Token]]:
    """Return the words right behind each word, also behind a preposition."""
    cues = claim.inside(*(change.cue for change in claim.changes))
    found: dict[str, list[Token]] = {}
    for one, two in pairwise(claim.tokens):
        is_joined = two.gap in _JOINED and one.clause == two.clause
        if is_joined and one.kind != "value" and two.kind == "word" and two not in cues:
            found.setdefault(one.key, []).append(two)
    return found


def _pair_values(before: Claim, after: Claim) -> Iterator[bool]:
    """Yield True for each value in the place of another one: before the same word, or of the same unit."""
    language = load_language(after.language)
    for old in _list_values(before):
        for new in _list_values(after):
            own, others = _list_beside(before, old), _list_beside(after, new)
            is_same_unit = " " in old.key and old.key.partition(" ")[2] == new.key.partition(" ")[2]
            if old.key != new.key and (is_same_unit or (own & others) - language.times):
                yield True


def _list_values(claim: Claim) -> list[Token]:
    return [t for t in claim.tokens if t.key.startswith("number:") and not is_date(t) and not names_thing(claim, t)]


def _list_beside(claim: Claim, value: Token) -> set[str]:
    """Return the word right behind a value, or else the last one before it in its clause."""
    at = claim.tokens.index(value)
    behind = [t.key for t in claim.tokens[at + 1 : at + 2] if t.gap == "tight" and t.phrase == value.phrase]
    ahead = [t.key for t in claim.tokens[:at] if t.kind == "word" and t.clause == value.clause]
    return set(behind or ahead[-1:])
