"""Patterns and principles without a model: what the sentences of a group of texts say in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from consolidation_pipeline.core.knowledge.compared_sentences import knowing
from consolidation_pipeline.core.knowledge.pattern_layout import Sightings, read_statements
from consolidation_pipeline.core.knowledge.pattern_sentences import list_sentences
from consolidation_pipeline.core.knowledge.pattern_units import ExtractedPattern, Unit, sort_units
from consolidation_pipeline.core.knowledge.pattern_writer import PatternWriter
from consolidation_pipeline.core.knowledge.principle_writer import PrincipleWriter
from consolidation_pipeline.core.knowledge.sentence_ranking import SentenceRanking, count_background, rank_sentences
from consolidation_pipeline.core.text.key_terms import find_key_terms


@dataclass(frozen=True, eq=False)
class GroupToWrite:
    """A group of which a writer can write the text, in this process or in another.

    ``compared``: pairs of its sentences that were compared before, packed.
    """

    writer: type[PatternWriter | PrincipleWriter]
    units: Sequence[Unit]
    ranking: SentenceRanking
    terms: tuple[str, ...]
    sightings: Sightings
    compared: bytes

    def write(self) -> ExtractedPattern:
        """Return the text of the group."""
        with knowing(self.compared) as pairs:
            written = self.writer(self.units, self.ranking, self.terms).write(self.sightings)
        return replace(written, compared=pairs.pack())


Compute = Callable[[Callable[[GroupToWrite], ExtractedPattern], Iterable[GroupToWrite]], Iterable[ExtractedPattern]]


def extract_patterns(
    groups: Sequence[Iterable[Unit]],
    *,
    boilerplate: Collection[str] = (),
    context: Sequence[bool] | None = None,
    wanted: Sequence[int] | None = None,
    sightings: Sequence[Sightings | None] | None = None,
    compared: Sequence[bytes] | None = None,
    writer: type[PatternWriter | PrincipleWriter] = PatternWriter,
    compute: Compute = map,
) -> Iterator[ExtractedPattern]:
    """Yield the text of each group.

    It is the line of a template family, if most units are one. Otherwise it has a headline, the most central and
    general instruction or fact, with what to do, what to avoid and why, as far as the units say so. Where no sentence
    speaks for the group, it says what the units are about, with examples.

    Key terms and centrality depend on the other groups, so all groups are given at once. The order of groups, and of
    units in a group, does not matter.

    Args:
        groups: The units of each group of the project.
        boilerplate: Sentences (``boilerplate.find_boilerplate``) to use only from units that hold nothing else.
        context: True for each group whose texts count for the rarity of terms (``rank_sentences``); None = all.
        wanted: Positions of the groups to write, in this order; None = all.
        sightings: How often and when the memories of each wanted group were seen; None = as the units tell.
        compared: ``ExtractedPattern.compared`` of each wanted group as it was before, with any units; None = not known.
        writer: Writer of the text of a group.
        compute: Calls the function with each group, in order, like ``map``; it may share the groups among processes.

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
    seen = [None] * len(chosen) if sightings is None else sightings
    known = [b""] * len(chosen) if compared is None else compared
    written = (
        GroupToWrite(writer, units, ranking, found, sighted or _count_sightings(units), pairs)
        for units, ranking, found, sighted, pairs in zip(chosen, rankings, terms, seen, known, strict=True)
    )
    return iter(compute(GroupToWrite.write, written))


# Of groups of patterns: what they advise alike, or on one matter.
extract_principles = partial(extract_patterns, writer=PrincipleWriter)


def _texts(units: Sequence[Unit]) -> list[str]:
    return [read_statements(unit.text, unit.title) if unit.pattern_type is not None else unit.text for unit in units]


def _count_sightings(units: Sequence[Unit]) -> Sightings:
    days = [unit.day for unit in units if unit.day is not None]
    return Sightings(round(sum(unit.weight for unit in units)), None, min(days, default=None), max(days, default=None))


def _list_texts(ranking: SentenceRanking) -> list[str]:
    """Return the sentences of each text, without code and boilerplate."""
    return ["\n".join(sentences) for sentences in list_sentences(ranking).values()]
