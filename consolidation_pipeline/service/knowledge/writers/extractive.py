"""Patterns and principles in the words of their units, without a model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from consolidation_pipeline.core.knowledge.confidence import heuristic_confidence
from consolidation_pipeline.core.knowledge.extractive_patterns import ExtractedPattern, Unit, sort_units
from consolidation_pipeline.service.knowledge.derive import DraftText, Group, Outcome, PlannedAbstraction
from consolidation_pipeline.store.knowledge.abstractions import UnitRow

# Groups per transaction: a run that is killed has written whole batches, and the next one does the rest.
BATCH = 1000

Extractor = Callable[..., list[ExtractedPattern]]


def extract_outcomes(
    groups: Sequence[Group],
    plans: Sequence[PlannedAbstraction],
    extract: Extractor,
    *,
    boilerplate: Collection[str],
    needs_review: bool,
) -> Iterator[list[Outcome]]:
    """What each planned group has in common, in batches.

    All ``groups`` are read, for what sets one apart depends on what the others are about.
    """
    units, context = [[as_unit(unit) for unit in group.units] for group in groups], [one.is_context for one in groups]
    place = {group.cluster_key: at for at, group in enumerate(groups)}
    wanted = [place[plan.group.cluster_key] for plan in plans]
    found = extract(units, boilerplate=boilerplate, context=context, wanted=wanted)
    for start in range(0, len(plans), BATCH):
        batch = zip(plans[start : start + BATCH], found[start : start + BATCH], strict=True)
        yield [Outcome(plan, _said(plan.group, said, needs_review)) for plan, said in batch]


def as_unit(row: UnitRow) -> Unit:
    """The unit as extraction sees it: it counts as often as memories stand behind it."""
    return Unit(
        id=str(row.id),
        text=row.text,
        memory_type=row.memory_type,
        success=row.success,
        weight=float(max(1, len(row.leaves))),
        pattern_type=row.pattern_type,
    )


def _said(group: Group, extract: ExtractedPattern, needs_review: bool) -> DraftText:
    ids = {str(unit.id): unit.id for unit in group.units}
    numbered = sort_units(as_unit(unit) for unit in group.units)
    return DraftText(
        content=extract.content,
        pattern_type=extract.pattern_type,
        summary=extract.summary,
        best_practices=extract.best_practices,
        gotchas=extract.gotchas,
        key_terms=extract.key_terms,
        evidence=[(ids[numbered[found.unit - 1].id], found.quote) for found in extract.evidence],
        confidence=heuristic_confidence(group.cohesion),
        needs_review=needs_review,
    )
