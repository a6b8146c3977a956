"""Parts of groups that a person rejected as a whole: some of their members may still say the same."""

from collections.abc import Collection

import numpy as np

from consolidation_pipeline.core.grouping.labels import list_members
from consolidation_pipeline.core.grouping.linkage import complete_linkage
from consolidation_pipeline.core.similarity.similarity_join import SimilarPairs

Group = frozenset[int]


def divide_group(
    group: Group, pairs: SimilarPairs, contradicting: Collection[Group], rejected: Collection[Group]
) -> list[Group]:
    """Return the largest parts of a group without a group that was rejected; none if there are none.

    A part is a group of complete linkage of two members or more. Parts without a contradiction come first, and the
    others once all of these were rejected too.

    Args:
        group: Rows. It was rejected, or holds a group that was.
        pairs: All pairs of these rows, and any others.
        contradicting: Pairs of rows whose texts contradict each other.
        rejected: Groups and pairs that a person rejected.
    """
    listed = [frozenset(pair) for pair in zip(pairs.i.tolist(), pairs.j.tolist(), strict=True)]
    is_open = np.array([pair <= group and pair not in rejected for pair in listed], np.bool_)
    agrees = np.array([pair not in contradicting for pair in listed], np.bool_)
    for chosen in (is_open & agrees, is_open):
        parts = list[Group]()
        for part in _link(group, pairs.select(chosen)):
            is_open_part = not any(one <= part for one in rejected)
            parts += [part] if is_open_part else divide_group(part, pairs, contradicting, rejected)
        if parts:
            return parts
    return []


def _link(group: Group, pairs: SimilarPairs) -> list[Group]:
    """Return the groups of complete linkage; if these rows are one group again, without their weakest pair."""
    found = _list_groups(pairs)
    if found != [group]:
        return found
    return _list_groups(pairs.select(np.arange(len(pairs)) != np.argmin(pairs.similarity)))


def _list_groups(pairs: SimilarPairs) -> list[Group]:
    labels = complete_linkage(int(pairs.j.max(initial=-1)) + 1, pairs, -1.0)
    return [frozenset(members.tolist()) for members in list_members(labels)]
