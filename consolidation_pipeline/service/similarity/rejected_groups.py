"""Suggest groups that a person rejected: parts of them are asked about instead.

Who rejects a group of three says that these are not one memory. Two of them may be.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from consolidation_pipeline.core.grouping.labels import Labels, list_members, renumber_labels
from consolidation_pipeline.core.grouping.rejected_groups import Group, divide_group
from consolidation_pipeline.core.knowledge.difference_kinds import explain_pairs
from consolidation_pipeline.core.similarity.similarity_join import SimilarPairs
from consolidation_pipeline.embed.local import word_similarity
from consolidation_pipeline.service.similarity.merge_groups import Units
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import to_uuids
from consolidation_pipeline.store.review.suggestions import load_originals, read_text


def divide_rejected(
    connection: Connection, units: Units, labels: Labels, pairs: SimilarPairs, rejected: Collection[frozenset[bytes]]
) -> Labels:
    """Return the groups of units (u,), divided into parts where a person rejected them or some of their members.

    A rejected group stays whole if it is a pair, or if all of its parts were rejected too.

    Args:
        labels: Group of each unit (u,), -1 = alone.
        pairs: All pairs of units within the groups, and others.
        rejected: Ids of the units of each group that a person rejected.
    """
    if not rejected:
        return labels
    divided, ids = labels.copy(), units.ids
    decided = frozenset[bytes]().union(*rejected)
    for number, members in enumerate(list_members(labels)):
        own = frozenset(ids[members].tolist())
        inner = [group for group in rejected if group <= own] if len(own & decided) > 1 else []
        if len(members) < 3 or not inner:
            continue
        inside = pairs.select((labels[pairs.i] == number) & (labels[pairs.j] == number))
        i, j = (np.searchsorted(members, side).astype(np.int32) for side in (inside.i, inside.j))
        position = {id_: at for at, id_ in enumerate(ids[members].tolist())}
        known = {frozenset(position[id_] for id_ in group) for group in inner}
        # Of a group that nobody decided on, contradictions are asked about as ever.
        contradicting = _find_contradictions(connection, units, members) if own in rejected else set[Group]()
        whole = frozenset(range(len(members)))
        parts = divide_group(whole, SimilarPairs(i, j, inside.similarity), contradicting, known)
        if parts or own not in rejected:
            divided[members] = -1
        for part in parts:
            divided[members[sorted(part)]] = len(labels) + members[min(part)]
    return renumber_labels(divided, 2)


def _find_contradictions(connection: Connection, units: Units, members: Labels) -> set[Group]:
    """Return the pairs of positions among the members whose texts contradict each other."""
    ids = to_uuids(units.ids[members])
    rows = load_originals(connection, ids)
    explained = explain_pairs([read_text(rows[id_]) for id_ in ids], word_similarity)
    return {frozenset((i, j)) for i, j, explanation in explained if explanation.verdict == "contradicts"}
