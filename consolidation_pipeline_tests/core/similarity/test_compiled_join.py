"""Joins by the compiled kernel: exact, independent of threads, and without an unsuitable processor."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from consolidation_pipeline.core.similarity.join_planner import KERNEL, find_kernel_problem, find_pairs
from consolidation_pipeline_tests.core.similarity.test_similarity_join import (
    KINDS,
    assert_bounded_blocks,
    assert_exact,
    given_joins,
    make_join,
    make_rows,
    run_join,
    to_set,
)
from consolidation_pipeline_tests.hypothesis_examples import examples

REPORT_PROGRAM = """
from consolidation_pipeline.core.similarity import join_planner
reason = join_planner.find_kernel_problem()
from consolidation_pipeline.core.similarity import vnni
print(vnni.LANES, reason)
"""


@pytest.fixture(scope="module", autouse=True)
def _skip_without_kernel():
    reason = find_kernel_problem()
    if reason and "processor" in reason:
        pytest.skip(reason)
    assert reason is None


def test_kernel_is_loaded_after_trial():
    assert KERNEL.is_loaded
    assert KERNEL.pays(1e-9)


@settings(deadline=None, max_examples=examples(100))
@given_joins(max_rows=120)
def test_compiled_join_matches_brute_force(kind, n, d, seed, threshold, data):
    known = data.draw(st.integers(0, n))
    assert_exact(make_rows(kind, n, d, seed), threshold, known, forms=["compiled"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("known", [0, 1500, 2299])
def test_compiled_join_matches_brute_force_over_strips(kind, known):
    assert_exact(make_rows(kind, 2300, 150, 7), 0.8, known, forms=["compiled"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [1, 2, 31, 129, *(pytest.param(d, marks=pytest.mark.slow) for d in (64, 700))])
def test_all_join_forms_give_same_bits(kind, d):
    x = make_rows(kind, 1300, d, 5)
    plain = run_join(x, 0.6, 100, ["plain"])
    for form in ("pruned", "compiled"):
        pairs = run_join(x, 0.6, 100, [form])
        assert np.array_equal(pairs.i, plain.i)
        assert np.array_equal(pairs.j, plain.j)
        assert np.array_equal(pairs.similarity, plain.similarity)


def test_join_keeps_pairs_at_exact_threshold():
    x = make_rows("clustered", 300, 200, 3)
    pairs = run_join(x, 0.5, 0, ["plain"])
    for at in range(0, len(pairs), max(1, len(pairs) // 20)):
        threshold = float(pairs.similarity[at])
        for form in ("compiled", "pruned"):
            assert to_set(run_join(x, threshold, 0, [form])) == to_set(pairs.at_least(threshold))


@pytest.mark.parametrize("threads", [1, 3])
def test_compiled_join_ignores_thread_count(threads):
    x = make_rows("clustered", 2500, 48, 6)
    expected = to_set(run_join(x, 0.5, 0, ["compiled"]))
    with threadpool_limits(threads, user_api="blas"):
        assert to_set(run_join(x, 0.5, 0, ["compiled"])) == expected


@pytest.mark.slow
def test_compiled_join_bounds_and_orders_blocks():
    assert_bounded_blocks("compiled")


def test_dense_rows_missed_by_sample_are_split():
    x = make_rows("random", 30_000, 16, 0)
    x[12_000:15_500] = x[0]
    total = sum(len(i) for i, _, _ in find_pairs(make_join(x, 0.999), forms=["compiled"]))
    assert total == 3501 * 3500 // 2


def report_kernel(**environment: str) -> str:
    """Return the lanes of the kernel and the reason against it, from a new process."""
    command = [sys.executable, "-c", REPORT_PROGRAM]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True).stdout


def list_cpu_features(without: str) -> str:
    import llvmlite.binding as llvm

    present = [name for name, is_there in llvm.get_host_cpu_features().items() if is_there]
    return ",".join(f"{'-' if without in name else '+'}{name}" for name in present)


@pytest.mark.parametrize(("without", "lanes"), [("avx512", "8 "), ("vnni", "8 the processor has neither")])
def test_narrow_processors_get_narrow_or_no_kernel(without, lanes):
    if "+avxvnni" not in list_cpu_features("none"):
        pytest.skip("the processor has no AVX-VNNI")
    output = report_kernel(NUMBA_CPU_NAME="alderlake", NUMBA_CPU_FEATURES=list_cpu_features(without))
    assert output.startswith(lanes)
    assert output.strip().endswith("None") == (without == "avx512")


def test_disabled_compiler_is_reported_as_reason():
    assert "the kernel cannot be compiled" in report_kernel(NUMBA_DISABLE_JIT="1")
