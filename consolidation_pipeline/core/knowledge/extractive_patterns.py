"""Patterns and principles without a model: what a group of texts has in common, in its own sentences."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from consolidation_pipeline.core.knowledge.pattern_types import vote_pattern_type
from consolidation_pipeline.core.knowledge.sentence_ranking import (
    RankedSentence,
    SentenceRanking,
    count_background,
    rank_sentences,
)
from consolidation_pipeline.core.text.key_terms import key_terms
from consolidation_pipeline.core.text.sentence_cues import is_advice, is_failure, is_warning

# Listed of each: what a person or an agent still reads to the end.
_MOST_LISTED = 5
_LISTED_CHARS = 1200
# Below this worth it is a heading, a fragment or markup: never advice, and in a pattern only for want of better.
_READABLE = 0.35


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One text of a group: a memory, a merged memory, or a pattern with its ``pattern_type``.

    ``weight`` > 0 is how much it counts, such as the number of memories merged in it. ValueError: another weight.
    """

    id: str
    text: str
    memory_type: str
    success: bool | None = None
    weight: float = 1.0
    pattern_type: str | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.weight < float("inf"):
            raise ValueError(f"weight of unit {self.id} is {self.weight}; it must be a finite number above 0")


@dataclass(frozen=True)
class Evidence:
    """A ``quote`` that occurs verbatim in the unit of this number: 1 is the first in the order of ``sort_units``."""

    unit: int
    quote: str


@dataclass(frozen=True)
class ExtractedPattern:
    """What a group has in common. Every sentence stands in one of its units, but for white space.

    ``content``: the most central sentences, one per line; ``summary``: the first of them; ``evidence``: the sentences
    used, and of every other unit its most central one, by unit number.
    """

    content: str
    summary: str
    best_practices: tuple[str, ...]
    gotchas: tuple[str, ...]
    key_terms: tuple[str, ...]
    pattern_type: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class _Style:
    """How much is said, and how much more a rule counts than a report."""

    most: int
    max_chars: int
    rule: float


# A pattern says what happens and what to do; a principle what to do.
_PATTERN = _Style(most=3, max_chars=400, rule=1.25)
_PRINCIPLE = _Style(most=2, max_chars=300, rule=2.0)


def sort_units(units: Iterable[Unit]) -> list[Unit]:
    """The units in the order in which they are numbered: by id."""
    return sorted(units, key=lambda unit: (unit.id, unit.text, unit.memory_type, str(unit.success), unit.weight))


def extract_patterns(
    groups: Sequence[Iterable[Unit]],
    *,
    boilerplate: Collection[str] = (),
    context: Sequence[bool] | None = None,
    wanted: Sequence[int] | None = None,
) -> list[ExtractedPattern]:
    """What each of the project's groups of units has in common, in at most 3 sentences and about 400 characters.

    ``wanted``: positions of the groups to say it of, in this order; all unless given.

    One pass over all groups: key terms and centrality depend on what the other groups are about. The order of units in
    a group and of the groups does not matter, and a group outside of the ``context`` (``rank_sentences``) only to
    itself. Sentences in ``boilerplate`` (``boilerplate.find_boilerplate``) are used
    only of units that hold nothing else. ValueError: a group without any text.
    """
    return _extract(_Asked(groups, boilerplate, context, wanted), _PATTERN)


def extract_principles(
    groups: Sequence[Iterable[Unit]],
    *,
    boilerplate: Collection[str] = (),
    context: Sequence[bool] | None = None,
    wanted: Sequence[int] | None = None,
) -> list[ExtractedPattern]:
    """As ``extract_patterns`` over groups of patterns: at most 2 sentences and about 300 characters, rules first."""
    return _extract(_Asked(groups, boilerplate, context, wanted), _PRINCIPLE)


class _Asked(NamedTuple):
    """What the two functions above are given."""

    groups: Sequence[Iterable[Unit]]
    boilerplate: Collection[str]
    context: Sequence[bool] | None
    wanted: Sequence[int] | None


def _extract(asked: _Asked, style: _Style) -> list[ExtractedPattern]:
    numbered = [sort_units(group) for group in asked.groups]
    for number, units in enumerate(numbered):
        if not any(unit.text.strip() for unit in units):
            raise ValueError(f"group {number} has {len(units)} units and no text; a pattern needs a sentence")
    every = range(len(numbered))
    wanted = every if asked.wanted is None else asked.wanted
    is_context = [True] * len(every) if asked.context is None else asked.context
    # Of a group that is only there to compare with, its terms are enough.
    others = [at for at in sorted({*every} - {*wanted}) if is_context[at]]
    background = count_background([_texts(numbered[at]) for at in others], boilerplate=asked.boilerplate)
    chosen, context = [numbered[at] for at in wanted], [is_context[at] for at in wanted]
    rankings = rank_sentences(
        [_texts(units) for units in chosen],
        [[unit.weight for unit in units] for units in chosen],
        boilerplate=asked.boilerplate,
        context=context,
        background=background,
    )
    terms = key_terms([_said(ranking) for ranking in rankings], context=context, background=background)
    return [_one(*one, style) for one in zip(chosen, rankings, terms, strict=True)]


def _texts(units: Sequence[Unit]) -> list[str]:
    return [unit.text for unit in units]


def _said(ranking: SentenceRanking) -> list[str]:
    """What each text says, without code and boilerplate."""
    texts: dict[int, list[str]] = {}
    for one in ranking.sentences:
        texts.setdefault(one.text, []).append(one.sentence.text)
    return ["\n".join(sentences) for sentences in texts.values()]


def _one(units: Sequence[Unit], ranking: SentenceRanking, terms: tuple[str, ...], style: _Style) -> ExtractedPattern:
    pattern = ranking.choose(_preferred(ranking, style), most=style.most, max_chars=style.max_chars)
    readable = [one for one in ranking.sentences if one.sentence.worth >= _READABLE]
    gotchas = _listed(ranking, [one for one in readable if _is_gotcha(one.sentence.text)])
    practices = _listed(ranking, [one for one in readable if _is_practice(one.sentence.text)])
    return ExtractedPattern(
        content="\n".join(one.sentence.text for one in pattern),
        summary=pattern[0].sentence.text,
        best_practices=tuple(one.sentence.text for one in practices),
        gotchas=tuple(one.sentence.text for one in gotchas),
        key_terms=terms,
        pattern_type=vote_pattern_type(units),
        evidence=_evidence(ranking, [*pattern, *practices, *gotchas]),
    )


def _preferred(ranking: SentenceRanking, style: _Style) -> list[RankedSentence]:
    """The sentences that a pattern is made of, with rules counting more; fragments only if there is nothing else."""
    readable = [one for one in ranking.sentences if one.sentence.worth >= _READABLE]
    return [_weighed(one, style.rule) for one in readable or ranking.sentences]


def _weighed(one: RankedSentence, rule: float) -> RankedSentence:
    is_rule = is_advice(one.sentence.text) or is_warning(one.sentence.text)
    return RankedSentence(one.sentence, one.text, one.score * (rule if is_rule else 1.0), one.row)


def _listed(ranking: SentenceRanking, candidates: Sequence[RankedSentence]) -> list[RankedSentence]:
    return ranking.choose(candidates, most=_MOST_LISTED, max_chars=_LISTED_CHARS)


def _is_gotcha(sentence: str) -> bool:
    return is_warning(sentence) or (is_failure(sentence) and not is_advice(sentence))


def _is_practice(sentence: str) -> bool:
    return is_advice(sentence) and not is_warning(sentence)


def _evidence(ranking: SentenceRanking, used: Sequence[RankedSentence]) -> tuple[Evidence, ...]:
    heard = {one.text for one in used}
    others = {one.text: one for one in reversed(ranking.sentences) if one.text not in heard}
    found = {Evidence(one.text + 1, one.sentence.quote) for one in [*used, *others.values()]}
    return tuple(sorted(found, key=lambda evidence: (evidence.unit, evidence.quote)))
