"""Join within scopes: the pairs of the join of all rows whose ends are of one scope."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.similarity import scoped_join
from consolidation_pipeline.core.similarity.scoped_join import iter_scoped_pairs, scoped_similarity_join
from consolidation_pipeline.core.similarity.similarity_join import SimilarPairs, concatenate_pairs, similarity_join
from consolidation_pipeline.core.vectors import normalize
from consolidation_pipeline_tests.core.similarity.test_similarity_join import make_rows, to_set
from consolidation_pipeline_tests.hypothesis_examples import examples


@settings(deadline=None, max_examples=examples(60))
@given(
    st.sampled_from(["random", "clustered", "degenerate"]),
    st.integers(0, 120),
    st.integers(1, 40),
    st.sampled_from([-0.2, 0.3, 0.9]),
    st.sampled_from([1, 20, 512]),
    st.data(),
)
def test_pairs_equal_those_of_a_join_of_all_rows(
    kind: str, n: int, scopes: int, threshold: float, small: int, data: st.DataObject
) -> None:
    seed = data.draw(st.integers(0, 99))
    known = data.draw(st.integers(0, n))
    x = make_rows(kind, n, 16, seed) if n else np.empty((0, 16), np.float32)
    scope = np.random.default_rng(seed).integers(0, scopes, n)
    every = similarity_join(x, threshold, known=known)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoped_join, "SMALL_SCOPE", small)
        found = concatenate_pairs(list(iter_scoped_pairs(x, threshold, scope, known=known)))
    assert to_set(found) == to_set(every.select(scope[every.i] == scope[every.j]))
    assert (found.i < found.j).all()


@pytest.mark.parametrize("scopes", [1, 7])
def test_chosen_rows_are_joined_as_if_they_were_all(scopes: int) -> None:
    x, draw = make_rows("clustered", 90, 16, 3), np.random.default_rng(4)
    scope, rows = draw.integers(0, scopes, 90), draw.permutation(90)[:60]
    found = concatenate_pairs(list(iter_scoped_pairs(x, 0.3, scope, rows=rows, known=25)))
    alone = concatenate_pairs(list(iter_scoped_pairs(x[rows], 0.3, scope[rows], known=25)))
    assert len(found)
    assert to_set(found) == to_set(SimilarPairs(rows[alone.i], rows[alone.j], alone.similarity))


def test_many_small_scopes_come_in_few_blocks() -> None:
    x = normalize(np.random.default_rng(1).standard_normal((20_000, 8)))
    blocks = list(iter_scoped_pairs(x, -1.0, np.arange(20_000) // 10))
    assert sum(map(len, blocks)) == 2_000 * 45
    assert len(blocks) == 2


def test_scoped_join_rejects_invalid_input() -> None:
    with pytest.raises(ValueError, match=r"scopes has shape \(3,\); it must be \(2,\)"):
        scoped_similarity_join(np.eye(2, dtype=np.float32), 0.5, np.zeros(3, dtype=np.int64))
    with pytest.raises(ValueError, match="threshold is nan"):
        scoped_similarity_join(np.eye(2, dtype=np.float32), float("nan"), np.zeros(2, dtype=np.int64))
