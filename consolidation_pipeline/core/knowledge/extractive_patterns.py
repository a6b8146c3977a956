"""Patterns and principles without a model: the most central sentences of a group of texts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial

from consolidation_pipeline.core.knowledge.disputes import Statement, find_disputes, list_overruled
from consolidation_pipeline.core.knowledge.pattern_types import vote_pattern_type
from consolidation_pipeline.core.knowledge.sentence_ranking import (
    RankedSentence,
    SentenceRanking,
    count_background,
    rank_sentences,
)
from consolidation_pipeline.core.text.key_terms import find_key_terms
from consolidation_pipeline.core.text.sentence_cues import is_advice, is_pitfall, is_warning

# Limits of the lists of practices and of gotchas.
_MAX_LISTED = 5
_LISTED_CHARS = 1200
# A sentence of lower readability is a heading, a fragment or markup. It is never a practice or gotcha, and in the text
# only if there is nothing else.
_READABLE = 0.35
# Sentences of a group, the best first, that are searched for disputes and may be used. It bounds the time.
_MAX_SENTENCES = 256


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One text of a group: a memory, a merged memory, or a pattern with its ``pattern_type``.

    ``weight``: how much it counts, for example the number of memories merged in it. ``day``: on which it was learned;
    None if that does not tell which of two units is newer.

    Raises:
        ValueError: ``weight`` is not a finite number above 0.
    """

    id: str
    text: str
    memory_type: str
    success: bool | None = None
    weight: float = 1.0
    pattern_type: str | None = None
    day: date | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.weight < float("inf"):
            raise ValueError(f"weight of unit {self.id} is {self.weight}; it must be a finite number above 0")


@dataclass(frozen=True)
class Evidence:
    """A ``quote`` that occurs verbatim in a unit. ``unit``: its number in the order of ``sort_units``, from 1."""

    unit: int
    quote: str


@dataclass(frozen=True)
class ExtractedPattern:
    """The text of a pattern or principle.

    Each sentence is taken from a unit, unchanged except for white space and for what other units say instead
    (``disputes.find_disputes``), which stands in it in brackets.

    ``content``: the most central sentences, one per line. ``summary``: the first of them. ``evidence``: the sentences
    used, and the most central one of every other unit, by unit number. ``overruled``: number of units that contradict
    others and are not the newest.
    """

    content: str
    summary: str
    best_practices: tuple[str, ...]
    gotchas: tuple[str, ...]
    key_terms: tuple[str, ...]
    pattern_type: str
    evidence: tuple[Evidence, ...]
    overruled: int = 0


@dataclass(frozen=True)
class _Style:
    """Limits of a text in sentences and characters. ``rule``: factor of the scores of advice and warnings."""

    max_sentences: int
    max_chars: int
    rule: float


# A pattern says what happens and what to do; a principle says what to do.
_PATTERN = _Style(max_sentences=3, max_chars=400, rule=1.25)
_PRINCIPLE = _Style(max_sentences=2, max_chars=300, rule=2.0)


def sort_units(units: Iterable[Unit]) -> list[Unit]:
    """Return the units in the order in which evidence numbers them: by id."""
    return sorted(units, key=lambda unit: (unit.id, unit.text, unit.memory_type, str(unit.success), unit.weight))


def extract_patterns(
    groups: Sequence[Iterable[Unit]],
    *,
    boilerplate: Collection[str] = (),
    context: Sequence[bool] | None = None,
    wanted: Sequence[int] | None = None,
    style: _Style = _PATTERN,
) -> list[ExtractedPattern]:
    """Return the text of each group: at most 3 sentences of about 400 characters in all.

    Key terms and centrality depend on the other groups, so all groups are given at once. The order of groups, and of
    units in a group, does not matter.

    Args:
        groups: The units of each group of the project.
        boilerplate: Sentences (``boilerplate.find_boilerplate``) to use only from units that hold nothing else.
        context: True for each group whose texts count for the rarity of terms (``rank_sentences``); None = all.
        wanted: Positions of the groups to write, in this order; None = all.
        style: Limits of the texts.

    Raises:
        ValueError: A group has no text.
    """
    numbered = [sort_units(group) for group in groups]
    for number, units in enumerate(numbered):
        if not any(unit.text.strip() for unit in units):
            raise ValueError(f"group {number} has {len(units)} units and no text; a pattern needs a sentence")
    every = range(len(numbered))
    wanted = every if wanted is None else wanted
    is_context = [True] * len(every) if context is None else context
    # Of groups that are not wanted, only the terms are needed.
    others = [at for at in sorted({*every} - {*wanted}) if is_context[at]]
    background = count_background([_texts(numbered[at]) for at in others], boilerplate=boilerplate)
    chosen, context = [numbered[at] for at in wanted], [is_context[at] for at in wanted]
    rankings = rank_sentences(
        [_texts(units) for units in chosen],
        [[unit.weight for unit in units] for units in chosen],
        boilerplate=boilerplate,
        context=context,
        background=background,
    )
    terms = find_key_terms([_list_texts(ranking) for ranking in rankings], context=context, background=background)
    return [_build_pattern(*parts, style) for parts in zip(chosen, rankings, terms, strict=True)]


# Of groups of patterns: at most 2 sentences of about 300 characters, advice first.
extract_principles = partial(extract_patterns, style=_PRINCIPLE)


def _texts(units: Sequence[Unit]) -> list[str]:
    return [unit.text for unit in units]


def _list_texts(ranking: SentenceRanking) -> list[str]:
    """Return the sentences of each text, without code and boilerplate."""
    texts: dict[int, list[str]] = {}
    for one in ranking.sentences:
        texts.setdefault(one.text, []).append(one.sentence.text)
    return ["\n".join(sentences) for sentences in texts.values()]


def _build_pattern(
    units: Sequence[Unit], ranking: SentenceRanking, terms: tuple[str, ...], style: _Style
) -> ExtractedPattern:
    clear = [one for one in ranking.sentences if one.sentence.readability >= _READABLE]
    usable, overruled = _settle_disputes(clear or ranking.sentences, units)
    readable = usable if clear else []
    candidates = [_weigh_advice(one, style.rule) for one in usable]
    pattern = ranking.choose(candidates, most=style.max_sentences, max_chars=style.max_chars)
    found_gotchas = [one for one in readable if is_pitfall(one.sentence.text)]
    found_practices = [one for one in readable if is_advice(one.sentence.text) and not is_warning(one.sentence.text)]
    gotchas, practices = (
        ranking.choose(found, most=_MAX_LISTED, max_chars=_LISTED_CHARS) for found in (found_gotchas, found_practices)
    )
    return ExtractedPattern(
        content="\n".join(one.sentence.text for one in pattern),
        summary=pattern[0].sentence.text,
        best_practices=tuple(one.sentence.text for one in practices),
        gotchas=tuple(one.sentence.text for one in gotchas),
        key_terms=terms,
        pattern_type=vote_pattern_type(units),
        evidence=_evidence(ranking, [*pattern, *practices, *gotchas]),
        overruled=overruled,
    )


def _settle_disputes(ranked: Sequence[RankedSentence], units: Sequence[Unit]) -> tuple[list[RankedSentence], int]:
    """Return the sentences with one in place of those that dispute each other, and the number of overruled units."""
    ranked = ranked[:_MAX_SENTENCES]
    statements = [Statement(one.sentence.text, one.text, units[one.text].day) for one in ranked]
    disputes = find_disputes(statements)
    told = {
        # In its new words, with the score of the best: it stands for all of them.
        dispute.rule: replace(
            ranked[dispute.rule],
            sentence=replace(ranked[dispute.rule].sentence, text=dispute.told),
            score=ranked[min(dispute.rule, *dispute.others)].score,
        )
        for dispute in disputes
    }
    left_out = {at for dispute in disputes for at in dispute.others}
    usable = [told.get(at, one) for at, one in enumerate(ranked) if at not in left_out]
    return usable, len(list_overruled(statements, disputes))


def _weigh_advice(one: RankedSentence, factor: float) -> RankedSentence:
    is_rule = is_advice(one.sentence.text) or is_warning(one.sentence.text)
    return replace(one, score=one.score * factor) if is_rule else one


def _evidence(ranking: SentenceRanking, used: Sequence[RankedSentence]) -> tuple[Evidence, ...]:
    used_texts = {one.text for one in used}
    others = {one.text: one for one in reversed(ranking.sentences) if one.text not in used_texts}
    found = {Evidence(one.text + 1, one.sentence.quote) for one in [*used, *others.values()]}
    return tuple(sorted(found, key=lambda evidence: (evidence.unit, evidence.quote)))
