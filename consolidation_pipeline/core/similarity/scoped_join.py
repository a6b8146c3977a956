"""Exact similarity join within scopes: rows of different scopes are not compared."""

from collections.abc import Iterable, Iterator
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.similarity.matrix_products import Join, compare_products
from consolidation_pipeline.core.similarity.row_strips import single_threaded_blas
from consolidation_pipeline.core.similarity.similarity_join import (
    SLACK,
    SimilarPairs,
    check_rows,
    concatenate_pairs,
    iter_similar_pairs,
)

# A scope of at most this number of rows is compared by one product in this thread: planning and starting threads takes
# longer. There may be many thousands of scopes.
SMALL_SCOPE = 512
# Pairs of small scopes that are yielded together, about 1 MB.
_BLOCK_PAIRS = 1 << 16


def scoped_similarity_join(
    x: NDArray[np.floating],
    threshold: float,
    scopes: NDArray[np.int64],
) -> SimilarPairs:
    """Return all pairs of ``iter_scoped_pairs``."""
    return concatenate_pairs(list(iter_scoped_pairs(x, threshold, scopes)))


def iter_scoped_pairs(
    x: NDArray[np.floating],
    threshold: float,
    scopes: NDArray[np.int64],
    *,
    rows: NDArray[np.integer] | None = None,
    known: int = 0,
) -> Iterator[SimilarPairs]:
    """Yield the pairs of ``similarity_join`` whose rows are of one scope, in blocks, scope by scope.

    Pairs and cosines are the same as without scopes. The work is that of the pairs inside the scopes. If there are
    several, rows are copied one scope at a time.

    Args:
        x: As in ``similarity_join``.
        threshold: Lowest cosine.
        scopes: Scope of each row (n,).
        rows: Positions (k,) of the rows to compare, in any order; None = all. Of a pair, i comes first in it.
        known: Number of first ``rows`` that were compared with each other before.

    Raises:
        ValueError: An argument is not as described; the message says which.
    """
    matrix, lengths = check_rows(x)
    if scopes.shape != (len(matrix),):
        raise ValueError(f"scopes has shape {scopes.shape}; it must be ({len(matrix)},), a scope for each row")
    if not isfinite(threshold):
        raise ValueError(f"threshold is {threshold}; it must be a finite cosine, usually between -1 and 1")
    chosen = np.arange(len(matrix)) if rows is None else rows
    order = np.argsort(scopes[chosen], kind="stable")
    starts = np.flatnonzero(np.diff(scopes[chosen[order]])) + 1
    if not len(starts):
        for found in iter_similar_pairs(matrix if rows is None else matrix[rows], threshold, known=known):
            yield _number(found, chosen)
        return
    # The order is stable: within a scope, known rows come first.
    parts = [(chosen[part], int(np.searchsorted(part, known))) for part in np.split(order, starts)]
    # BLAS's own threads cost more than they save in small products.
    with single_threaded_blas:
        yield from _join_scopes(Join(matrix, lengths, threshold - SLACK, 0), parts, threshold)


def _join_scopes(
    join: Join, scopes: Iterable[tuple[NDArray[np.integer], int]], threshold: float
) -> Iterator[SimilarPairs]:
    """Yield the pairs within ``scopes``: the positions of the rows of each, the known ones first, and their number."""
    waiting, count = list[SimilarPairs](), 0
    for members, known in scopes:
        if len(members) < 2 or known == len(members):
            continue
        if len(members) > SMALL_SCOPE:
            for found in iter_similar_pairs(join.rows[members], threshold, known=known):
                yield _number(found, members)
            continue
        small = Join(join.rows[members], join.lengths[members], join.least, known)
        pairs = compare_products(small, small.rows, small.cut, 0, len(members))
        assert pairs is not None  # A small scope has fewer pairs than a block may hold.
        if len(pairs[0]):
            waiting.append(_number(SimilarPairs(*pairs), members))
            count += len(pairs[0])
        if count >= _BLOCK_PAIRS:
            yield concatenate_pairs(waiting)
            waiting, count = [], 0
    if waiting:
        yield concatenate_pairs(waiting)


def _number(pairs: SimilarPairs, members: NDArray[np.integer]) -> SimilarPairs:
    """Return pairs of positions in ``members`` as pairs of the rows themselves."""
    i, j = members[pairs.i].astype(np.int32), members[pairs.j].astype(np.int32)
    return SimilarPairs(i, j, pairs.similarity)
