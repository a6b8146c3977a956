"""Find out what memories have to do with each other: pairs of them, the rule that holds, relations that are new."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.lifecycle import associations as rules
from consolidation_pipeline.core.lifecycle.associations import RELATION_TYPES
from consolidation_pipeline.core.memories.memories import relation_id
from consolidation_pipeline.core.similarity.similarity_join import SimilarPairs, iter_similar_pairs, similarity_join
from consolidation_pipeline.core.vectors import find_positions
from consolidation_pipeline.errors import EmbeddingError, TooManyPairsError
from consolidation_pipeline.service.lifecycle.association_inputs import Compared, embed_missing, load_all, load_sample
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

# Some 250 MB of relations and ledger. A project with more is compared too widely to tell anybody anything.
MOST_RELATIONS = 200_000
# Relations that are made into rows at a time.
BATCH = 10_000

_PER_DAY = 86_400_000_000

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Associated:
    """What associations found. ``memories``: units compared; ``found``: pairs per relation type; ``added``: new ones.

    ``missing``: units left out for want of a vector. ``skipped``: why nothing was compared, None where it was.
    """

    memories: int
    found: Mapping[str, int]
    added: int
    missing: int
    skipped: str | None = None


@dataclass(frozen=True)
class _Found:
    """Related pairs, arrays of shape (m,): positions ``a`` and ``b`` int64 of the units, in the direction of the
    relation, similarity float32, and the rule that holds, int8.
    """

    a: Positions
    b: Positions
    similarity: npt.NDArray[np.float32]
    rule: rules.Codes

    def __len__(self) -> int:
        return len(self.rule)

    def select(self, chosen: npt.NDArray[Any] | slice) -> _Found:
        """The pairs at ``chosen``."""
        return _Found(*(column[chosen] for column in vars(self).values()))


_NONE = _Found(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.int8))


def associate_memories(run: ProjectRun) -> Associated:
    """Relate active raw and merged memories by their plain vectors, and store what is new as relations.

    Compared are ``sample_size`` of the 100 newest, drawn anew each week. Those without a vector get one for the
    purpose; one that the model has none for is left out with a warning. Where the model cannot be loaded or reached at
    all, nothing is done. With ``sample_size = 0`` all that have a vector are compared with each other, exactly, and
    ``parallel_context`` is left out: it would link everything that was written in one week.

    What only a person can tell is stored as a candidate. Two units that a relation of the type links already, whatever
    its status, keep that one: repeating adds nothing, and what was rejected is not found again.

    Raises:
        TooManyPairsError: more than ``MOST_RELATIONS`` pairs are related; nothing is stored.
        EmbeddingError: stored vectors of the model differ in length.
    """
    sampled = run.options.sample_size > 0
    known = load_sample(run) if sampled else load_all(run)
    try:
        known = embed_missing(run, known) if sampled else known
    except EmbeddingError as error:
        logger.warning("project %s: no associations: %s", run.project.slug, error)
        return Associated(0, _count(np.empty(0, np.int8)), 0, len(known.missing), skipped=str(error))
    found = _match(known, _sampled_pairs(known) if sampled else _all_pairs(known))
    with run.transaction() as connection:
        new = _leave_related(known.ends, found, load_related_pairs(connection, run.project.id))
        for batch in _new_relations(run, known.ends, new):
            append_relations(connection, run.author, batch, now=run.now)
    return Associated(len(known.ends), _count(found.rule), len(new), len(known.missing))


def _count(rule: rules.Codes) -> dict[str, int]:
    counts = np.bincount(rule, minlength=len(RELATION_TYPES) + 1)[1:]
    return dict(zip(RELATION_TYPES, counts.tolist(), strict=True))


def _sampled_pairs(known: Compared) -> Iterator[tuple[SimilarPairs, npt.NDArray[np.float64]]]:
    """Every pair and the days between its memories."""
    if len(known.ends):
        pairs = similarity_join(known.x, -1.0)
        learned = known.ends.learned_at
        yield pairs, np.abs(learned[pairs.i] - learned[pairs.j]) / _PER_DAY


def _all_pairs(known: Compared) -> Iterator[tuple[SimilarPairs, npt.NDArray[np.float64]]]:
    """The pairs that a rule on similarity can hold for, without their days: no rule on these is asked."""
    if not len(known.ends):
        return
    decisions = np.flatnonzero(rules.roles(known.ends.memory_type) == rules.DECISION).astype(np.int32)
    for pairs in rules.iter_unlike_pairs(known.x[decisions], rules.CONTRADICTS_BELOW):
        yield SimilarPairs(decisions[pairs.i], decisions[pairs.j], pairs.similarity), np.array(np.inf)
    for pairs in iter_similar_pairs(known.x, rules.EXPLAINS_ABOVE):
        yield pairs, np.array(np.inf)


def _match(known: Compared, blocks: Iterable[tuple[SimilarPairs, npt.NDArray[np.float64]]]) -> _Found:
    """The pairs for which a rule holds; memory is bounded by ``MOST_RELATIONS`` and one block."""
    role, kept, total = rules.roles(known.ends.memory_type), [_NONE], 0
    for pairs, gap in blocks:
        rule = rules.match_rules(role[pairs.i], role[pairs.j], pairs.similarity, gap)
        related = rule != rules.NOTHING
        kept.append(_directed(pairs.select(related), role, rule[related]))
        total += len(kept[-1])
        if total > MOST_RELATIONS:
            raise TooManyPairsError(
                f"more than {MOST_RELATIONS:,} pairs of memories are related: set sample_size (20 is the default), or "
                "merge near-duplicates first"
            )
    return _Found(*(np.concatenate(columns) for columns in zip(*(vars(part).values() for part in kept), strict=True)))


def _directed(pairs: SimilarPairs, role: rules.Codes, rule: rules.Codes) -> _Found:
    """From insight to work where one explains the other; elsewhere from the smaller id."""
    turned = (rule == rules.EXPLAINS) & (role[pairs.i] == rules.WORK)
    i, j = pairs.i.astype(np.int64), pairs.j.astype(np.int64)
    return _Found(np.where(turned, j, i), np.where(turned, i, j), pairs.similarity, rule)


def _leave_related(ends: AssociationInputs, found: _Found, related: RelatedPairs) -> _Found:
    """Without the pairs that have a relation of that type already."""
    a, b = find_positions(ends.ids, related.a), find_positions(ends.ids, related.b)
    there = (a >= 0) & (b >= 0)
    held = _keys(a[there], b[there], related.relation_type[there] + 1, len(ends))
    return found.select(~np.isin(_keys(found.a, found.b, found.rule, len(ends)), held))


def _keys(a: Positions, b: Positions, rule: npt.NDArray[np.integer], count: int) -> Positions:
    """One number for each pair and type, the same both ways where the type has no direction."""
    turned = (rule != rules.EXPLAINS) & (a > b)
    first, second = np.where(turned, b, a), np.where(turned, a, b)
    return np.asarray((rule.astype(np.int64) * count + first) * count + second)


def _new_relations(run: ProjectRun, ends: AssociationInputs, found: _Found) -> Iterator[list[NewRelation]]:
    for start in range(0, len(found), BATCH):
        part = found.select(slice(start, start + BATCH))
        pairs = zip(to_uuids(ends.ids[part.a]), to_uuids(ends.ids[part.b]), strict=True)
        how = zip(part.similarity.tolist(), part.rule.tolist(), strict=True)
        yield [_new_relation(run.project.slug, *pair, *rule) for pair, rule in zip(pairs, how, strict=True)]


def _new_relation(slug: str, a: UUID, b: UUID, similarity: float, rule: int) -> NewRelation:
    found = rules.describe(rule, similarity)
    status = "candidate" if found.relation_type in rules.CANDIDATE_TYPES else "confirmed"
    return NewRelation(relation_id(slug, found.relation_type, a, b), a, b, found, similarity, status)
