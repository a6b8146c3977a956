import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from consolidation_pipeline.core.similarity.join_planner import KERNEL, find_kernel_problem, find_pairs
from consolidation_pipeline_tests.core.similarity.test_dimension_pruning import join_of
from consolidation_pipeline_tests.core.similarity.test_similarity_join import (
    KINDS,
    as_set,
    assert_exact,
    joined,
    rows_of,
)
from consolidation_pipeline_tests.hypothesis_examples import examples

REPORT = """
from consolidation_pipeline.core.similarity import join_planner
reason = join_planner.find_kernel_problem()
from consolidation_pipeline.core.similarity import vnni
print(vnni.LANES, reason)
"""


@pytest.fixture(scope="module", autouse=True)
def _needs_the_kernel():
    reason = find_kernel_problem()
    if reason and "processor" in reason:
        pytest.skip(reason)
    assert reason is None


def test_kernel_is_loaded_after_trial():
    assert KERNEL.is_loaded
    assert KERNEL.pays(1e-9)


@settings(deadline=None, max_examples=examples(100))
@given(
    st.sampled_from(KINDS),
    st.integers(1, 120),
    st.integers(1, 300),
    st.integers(0, 999),
    st.sampled_from([-1.0, -0.2, 0.0, 0.3, 0.85, 0.99, 1.0]),
    st.data(),
)
def test_compiled_join_matches_brute_force(kind, n, d, seed, threshold, data):
    known = data.draw(st.integers(0, n))
    assert_exact(rows_of(kind, n, d, seed), threshold, known, forms=["compiled"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("known", [0, 1500, 2299])
def test_compiled_join_matches_brute_force_over_strips(kind, known):
    assert_exact(rows_of(kind, 2300, 150, 7), 0.8, known, forms=["compiled"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [1, 2, 31, 64, 129, 700])
def test_all_join_forms_give_same_bits(kind, d):
    x = rows_of(kind, 1300, d, 5)
    plain = joined(x, 0.6, 100, ["plain"])
    for form in ("pruned", "compiled"):
        pairs = joined(x, 0.6, 100, [form])
        assert np.array_equal(pairs.i, plain.i)
        assert np.array_equal(pairs.j, plain.j)
        assert np.array_equal(pairs.similarity, plain.similarity)


def test_join_keeps_pairs_at_exact_threshold():
    x = rows_of("clustered", 300, 200, 3)
    pairs = joined(x, 0.5, 0, ["plain"])
    for at in range(0, len(pairs), max(1, len(pairs) // 20)):
        threshold = float(pairs.similarity[at])
        expected = as_set(pairs.at_least(threshold))
        assert as_set(joined(x, threshold, 0, ["compiled"])) == as_set(joined(x, threshold, 0, ["pruned"])) == expected


@pytest.mark.parametrize("threads", [1, 3])
def test_compiled_join_ignores_thread_count(threads):
    x = rows_of("clustered", 2500, 48, 6)
    expected = as_set(joined(x, 0.5, 0, ["compiled"]))
    with threadpool_limits(threads, user_api="blas"):
        assert as_set(joined(x, 0.5, 0, ["compiled"])) == expected


@pytest.mark.slow
def test_compiled_join_bounds_and_orders_blocks():
    x = np.repeat(rows_of("random", 1, 16, 0), 6000, axis=0)
    total, last = 0, -1
    for i, _, similarity in find_pairs(join_of(x, 0.99), forms=["compiled"]):
        assert len(i) <= 1 << 21
        assert i[0] > last
        assert (similarity == 1.0).all()
        total, last = total + len(i), int(i[-1])
    assert total == 6000 * 5999 // 2


def test_dense_rows_missed_by_sample_are_split():
    x = rows_of("random", 30_000, 16, 0)
    x[12_000:15_500] = x[0]
    total = sum(len(i) for i, _, _ in find_pairs(join_of(x, 0.999), forms=["compiled"]))
    assert total == 3501 * 3500 // 2


def features(without: str) -> str:
    import llvmlite.binding as llvm

    present = [name for name, is_there in llvm.get_host_cpu_features().items() if is_there]
    return ",".join(f"{'-' if without in name else '+'}{name}" for name in present)


@pytest.mark.parametrize(("without", "lanes"), [("avx512", "8 "), ("vnni", "8 the processor has neither")])
def test_narrow_processors_get_narrow_or_no_kernel(without, lanes):
    if "+avxvnni" not in features("none"):
        pytest.skip("the processor has no AVX-VNNI")
    environment = os.environ | {"NUMBA_CPU_NAME": "alderlake", "NUMBA_CPU_FEATURES": features(without)}
    output = subprocess.run([sys.executable, "-c", REPORT], env=environment, capture_output=True, text=True, check=True)
    assert output.stdout.startswith(lanes)
    assert output.stdout.strip().endswith("None") == (without == "avx512")


def test_disabled_compiler_is_reported_as_reason():
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    output = subprocess.run([sys.executable, "-c", REPORT], env=environment, capture_output=True, text=True, check=True)
    assert "the kernel cannot be compiled" in output.stdout
