"""Associations phase: compare pairs of memories of one scope, match rules, and store new relations."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.arrays import Arrays
from consolidation_pipeline.core.lifecycle import associations as rules
from consolidation_pipeline.core.memories.memories import relation_id
from consolidation_pipeline.core.memories.relation_types import ASSOCIATION_TYPES, CANDIDATE_TYPES
from consolidation_pipeline.core.similarity.scoped_join import iter_scoped_pairs
from consolidation_pipeline.core.similarity.similarity_join import SimilarPairs, similarity_join
from consolidation_pipeline.core.vectors import find_positions
from consolidation_pipeline.errors import EmbeddingError, TooManyPairsError
from consolidation_pipeline.service.lifecycle.association_inputs import (
    AssociationSample,
    embed_missing,
    load_all,
    load_sample,
)
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.vector_copy import to_uuids
from consolidation_pipeline.store.knowledge.relations import (
    AssociationInputs,
    NewRelation,
    RelatedPairs,
    append_relations,
    load_related_pairs,
)

logger = logging.getLogger(__name__)

# About 250 MB of relations and ledger. Nobody could make use of more.
MAX_RELATIONS = 200_000
# Relations per insert.
BATCH_ROWS = 10_000

_MICROSECONDS_PER_DAY = 86_400_000_000

Positions = npt.NDArray[np.int64]
# Days between the memories of each pair.
Gaps = npt.NDArray[np.float64]


@dataclass(frozen=True)
class AssociationResult:
    """Result of the phase.

    ``memories``: number of compared units. ``found``: related pairs by relation type. ``added``: new relations.
    ``missing``: units without a vector. ``skipped``: reason if nothing was compared, else None.
    """

    memories: int
    found: Mapping[str, int]
    added: int
    missing: int
    skipped: str | None = None


@dataclass(frozen=True)
class _FoundPairs(Arrays):
    """Related pairs, arrays of shape (m,). ``a``, ``b``: positions of the units, in the direction of the relation."""

    a: Positions
    b: Positions
    similarity: npt.NDArray[np.float32]
    rule: rules.Codes


_NONE = _FoundPairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.int8))


def associate_memories(run: ProjectRun) -> AssociationResult:
    """Compare active raw and merged memories by their plain vectors, and store new relations.

    With ``sample_size`` above 0, that number of the 100 newest units is compared, drawn anew each week. Units without a
    vector are embedded for the comparison; those that the model cannot embed are left out with a warning. If the model
    cannot be loaded or reached, nothing is compared. With ``sample_size = 0``, all units with a vector are compared,
    without the rule ``parallel_context``, which would relate everything written in one week.

    Relations that only a person can judge are stored as candidates. A pair gets no second relation of the same type,
    whatever the status of the first: a repeated run adds nothing, and rejected relations do not come back.

    Raises:
        TooManyPairsError: More than ``MAX_RELATIONS`` pairs are related. Nothing is stored.
        EmbeddingError: Stored vectors of the model differ in length.
    """
    sampled = run.options.sample_size > 0
    sample = load_sample(run) if sampled else load_all(run)
    try:
        sample = embed_missing(run, sample) if sampled else sample
    except EmbeddingError as error:
        logger.warning("project %s: no associations: %s", run.project.slug, error)
        return AssociationResult(0, _count_by_type(np.empty(0, np.int8)), 0, len(sample.missing), skipped=str(error))
    found = _match_pairs(sample, _sampled_pairs(sample) if sampled else _all_pairs(sample))
    with run.transaction() as connection:
        new = _remove_related(sample.units, found, load_related_pairs(connection, run.project.id))
        for batch in _build_relations(run, sample.units, new):
            append_relations(connection, run.author, batch, now=run.now)
    return AssociationResult(len(sample.units), _count_by_type(found.rule), len(new), len(sample.missing))


def _count_by_type(rule: rules.Codes) -> dict[str, int]:
    counts = np.bincount(rule, minlength=len(ASSOCIATION_TYPES) + 1)[1:]
    return dict(zip(ASSOCIATION_TYPES, counts.tolist(), strict=True))


def _sampled_pairs(sample: AssociationSample) -> Iterator[tuple[SimilarPairs, Gaps]]:
    """Yield all pairs with the days between their memories."""
    if len(sample.units):
        pairs = similarity_join(sample.vectors, -1.0)
        learned = sample.units.learned_at
        yield pairs, np.abs(learned[pairs.i] - learned[pairs.j]) / _MICROSECONDS_PER_DAY


def _all_pairs(sample: AssociationSample) -> Iterator[tuple[SimilarPairs, Gaps]]:
    """Yield the pairs for which a rule on similarity may hold. The days are infinite, so that no rule on days holds."""
    if not len(sample.units):
        return
    decisions = np.flatnonzero(rules.classify_types(sample.units.memory_type) == rules.DECISION).astype(np.int32)
    for pairs in rules.iter_dissimilar_pairs(sample.vectors[decisions], rules.CONTRADICTS_BELOW):
        yield SimilarPairs(decisions[pairs.i], decisions[pairs.j], pairs.similarity), np.array(np.inf)
    scopes = np.unique(sample.units.scopes, return_inverse=True)[1].reshape(-1)
    for pairs in iter_scoped_pairs(sample.vectors, rules.EXPLAINS_ABOVE, scopes):
        yield pairs, np.array(np.inf)


def _match_pairs(sample: AssociationSample, blocks: Iterable[tuple[SimilarPairs, Gaps]]) -> _FoundPairs:
    """Return the pairs for which a rule holds. At most ``MAX_RELATIONS`` of them and one block are held in memory."""
    role, kept, total = rules.classify_types(sample.units.memory_type), [_NONE], 0
    scopes = sample.units.scopes
    for pairs, gap in blocks:
        rule = rules.match_rules(role[pairs.i], role[pairs.j], pairs.similarity, gap)
        related = (rule != rules.NO_RULE) & (scopes[pairs.i] == scopes[pairs.j])
        kept.append(_set_direction(pairs.select(related), role, rule[related]))
        total += len(kept[-1])
        if total > MAX_RELATIONS:
            raise TooManyPairsError(
                f"more than {MAX_RELATIONS:,} pairs of memories are related: set sample_size (20 is the default), or "
                "merge near-duplicates first"
            )
    return _FoundPairs.concatenate(kept)


def _set_direction(pairs: SimilarPairs, role: rules.Codes, rule: rules.Codes) -> _FoundPairs:
    """Direct ``explains`` from insight to work, and other relations from the smaller id."""
    turned = (rule == rules.EXPLAINS) & (role[pairs.i] == rules.WORK)
    i, j = pairs.i.astype(np.int64), pairs.j.astype(np.int64)
    return _FoundPairs(np.where(turned, j, i), np.where(turned, i, j), pairs.similarity, rule)


def _remove_related(units: AssociationInputs, found: _FoundPairs, related: RelatedPairs) -> _FoundPairs:
    """Remove the pairs that have a relation of the same type already."""
    a, b = find_positions(units.ids, related.a), find_positions(units.ids, related.b)
    exist = (a >= 0) & (b >= 0)
    existing = _pair_keys(a[exist], b[exist], related.relation_type[exist] + 1, len(units))
    return found.select(~np.isin(_pair_keys(found.a, found.b, found.rule, len(units)), existing))


def _pair_keys(a: Positions, b: Positions, rule: npt.NDArray[np.integer], count: int) -> Positions:
    """Return a number for each pair and rule; it is the same in both directions, except for ``explains``."""
    turned = (rule != rules.EXPLAINS) & (a > b)
    first, second = np.where(turned, b, a), np.where(turned, a, b)
    return np.asarray((rule.astype(np.int64) * count + first) * count + second)


def _build_relations(run: ProjectRun, units: AssociationInputs, found: _FoundPairs) -> Iterator[list[NewRelation]]:
    for start in range(0, len(found), BATCH_ROWS):
        part = found.select(slice(start, start + BATCH_ROWS))
        pairs = zip(to_uuids(units.ids[part.a]), to_uuids(units.ids[part.b]), strict=True)
        matches = zip(part.similarity.tolist(), part.rule.tolist(), strict=True)
        yield [_build_relation(run.project.slug, *pair, *match) for pair, match in zip(pairs, matches, strict=True)]


def _build_relation(slug: str, a: UUID, b: UUID, similarity: float, rule: int) -> NewRelation:
    found = rules.describe_rule(rule, similarity)
    status = "candidate" if found.relation_type in CANDIDATE_TYPES else "confirmed"
    return NewRelation(relation_id(slug, found.relation_type, a, b), a, b, found, similarity, status)
