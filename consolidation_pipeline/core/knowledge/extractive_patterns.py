"""Patterns and principles without a model: what the sentences of a group of texts say in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from consolidation_pipeline.core.chunks import split_chunks
from consolidation_pipeline.core.knowledge.compared_sentences import knowing
from consolidation_pipeline.core.knowledge.pattern_layout import Sightings, read_statements
from consolidation_pipeline.core.knowledge.pattern_sentences import list_sentences
from consolidation_pipeline.core.knowledge.pattern_units import ExtractedPattern, Unit, sort_units
from consolidation_pipeline.core.knowledge.pattern_writer import PatternWriter
from consolidation_pipeline.core.knowledge.principle_writer import PrincipleWriter
from consolidation_pipeline.core.knowledge.sentence_ranking import SentenceRanking, count_background, rank_sentences
from consolidation_pipeline.core.text.key_terms import BackgroundTerms, find_key_terms

# Groups that are written at a time, in one process.
_PORTION = 5


@dataclass(frozen=True, eq=False)
class GroupToWrite:
    """A group before its text is written. ``compared``: pairs of its sentences that were compared before, packed."""

    units: Sequence[Unit]
    sightings: Sightings
    compared: bytes


@dataclass(frozen=True, eq=False)
class PortionToWrite:
    """Groups that a writer can write the texts of, in this process or in another."""

    writer: type[PatternWriter | PrincipleWriter]
    groups: Sequence[GroupToWrite]
    boilerplate: Collection[str]
    background: BackgroundTerms

    def write(self) -> list[ExtractedPattern]:
        """Return the texts of the groups."""
        rankings = rank_sentences(
            [_texts(group.units) for group in self.groups],
            [[unit.weight for unit in group.units] for group in self.groups],
            boilerplate=self.boilerplate,
            background=self.background,
        )
        terms = find_key_terms([_list_texts(ranking) for ranking in rankings], background=self.background)
        return list(map(self._write_group, self.groups, rankings, terms))

    def _write_group(self, group: GroupToWrite, ranking: SentenceRanking, terms: tuple[str, ...]) -> ExtractedPattern:
        with knowing(group.compared) as pairs:
            written = self.writer(group.units, ranking, terms).write(group.sightings)
        return replace(written, compared=pairs.pack())


Compute = Callable[
    [Callable[[PortionToWrite], list[ExtractedPattern]], Iterable[PortionToWrite]], Iterable[list[ExtractedPattern]]
]


def extract_patterns(
    groups: Sequence[Iterable[Unit]],
    *,
    boilerplate: Collection[str] = (),
    context: Sequence[Sequence[Unit]] | None = None,
    sightings: Sequence[Sightings | None] | None = None,
    compared: Sequence[bytes] | None = None,
    writer: type[PatternWriter | PrincipleWriter] = PatternWriter,
    compute: Compute = map,
) -> Iterator[ExtractedPattern]:
    """Yield the text of each group.

    It is the line of a template family, if most units are one. Otherwise it has a headline, the most central and
    general instruction or fact, with what to do, what to avoid and why, as far as the units say so. Where no sentence
    speaks for the group, it says what the units are about, with examples.

    Key terms and centrality depend on how rare a term is in the context. The order of groups, and of units in a group,
    does not matter.

    Args:
        groups: The units of each group.
        boilerplate: Sentences (``boilerplate.find_boilerplate``) to use only from units that hold nothing else.
        context: The units of a sample of groups, which may hold these (``count_background``); None = the groups.
        sightings: How often and when the memories of each group were seen; None = as the units tell.
        compared: ``ExtractedPattern.compared`` of each group as it was before, with any units; None = not known.
        writer: Writer of the text of a group.
        compute: Calls the function with each portion of the groups, in order, like ``map``; it may share them among
            processes.

    Raises:
        ValueError: A group has no text.
    """
    numbered = [sort_units(group) for group in groups]
    for number, units in enumerate(numbered):
        if not any(unit.text.strip() for unit in units):
            raise ValueError(f"group {number} has {len(units)} units and no text; a pattern needs a sentence")
    sample = numbered if context is None else context
    background = count_background([_texts(units) for units in sample], boilerplate=boilerplate)
    seen = [None] * len(numbered) if sightings is None else sightings
    known = [b""] * len(numbered) if compared is None else compared
    to_write = [
        GroupToWrite(units, sighted or _count_sightings(units), pairs)
        for units, sighted, pairs in zip(numbered, seen, known, strict=True)
    ]
    portions = (PortionToWrite(writer, part, boilerplate, background) for part in split_chunks(to_write, size=_PORTION))
    return chain.from_iterable(compute(PortionToWrite.write, portions))


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
