"""Choice of the fastest form of the join: products of whole rows, of short vectors in NumPy, or the compiled kernel.

All give the same pairs to the last bit. Their times are estimated from a sample of the rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.jit import JitFunction
from consolidation_pipeline.core.similarity.dimension_pruning import (
    build_pruned_join,
    leading_directions,
    sample_positions,
    shorten_rows,
)
from consolidation_pipeline.core.similarity.matrix_products import Join, Rows, compare_products
from consolidation_pipeline.core.similarity.quantization import quantize, rotate_basis
from consolidation_pipeline.core.similarity.row_strips import (
    MAX_STRIP_ROWS,
    STRIP_STEP,
    CompareStrip,
    PairArrays,
    iter_strips,
    single_threaded_blas,
)

# Costs in seconds of one core (Xeon with AVX-512, 2.8 GHz, OpenBLAS). Other machines have similar ratios, and only the
# ratios matter. The costs of numba are in ``core.jit``, measured on the same machine.
# A float32 multiplication and addition, and the comparison of a product; the same for bytes.
MULTIPLY, SCORE, BYTE_MULTIPLY, BYTE_SCORE = 2.2e-11, 1.3e-9, 4.4e-12, 1.9e-10
# Computing a number of a short vector, and turning it into a byte.
SHORTEN, QUANTIZE = 1.5e-8, 2.5e-8
# The exact cosine of a pair in NumPy, and the check of a pair in compiled code: a pair, and each of its columns.
PAIR, PAIR_COLUMN = 4e-7, 4.6e-9
CHECK, CHECK_COLUMN = 4e-8, 2.9e-10
# Time of an exact cosine in compiled code, in multiples of the check.
EXACT = 8.0

# Making a plan, and each column of it. A plain join that takes less is not planned.
PLAN, PLAN_COLUMN = 0.04, 8e-5

# Numbers of directions for the short vectors. The second set is tried if the best plan of the first takes longer than
# LONG_SECONDS.
DIRECTIONS = (31, 63, 127), (255, 511)
LONG_SECONDS = 4.0

# While the kernel is prepared: bytes for each number of a short vector, and the most bytes in all.
BYTES_PER_NUMBER, MAX_BYTES = 9, 1.2e9

FORMS = "plain", "pruned", "compiled"

# Rows of the sample for the share of similar pairs.
_SAMPLE = 512

# Strips of rows per thread: enough for all threads to end at about the same time.
_STRIPS = 8


@dataclass(frozen=True, eq=False)
class Plan:
    """A form of the join with its estimated cost.

    ``cost``: seconds, without loading or compiling the kernel. ``density``: share of the pairs that are similar or, for
    short vectors in NumPy, computed in full. ``prepare`` returns the function that compares a strip.
    """

    form: str
    cost: float
    density: float
    prepare: Callable[[], CompareStrip]


def _load_kernel() -> Any:
    from consolidation_pipeline.core.similarity import compiled_join

    return compiled_join.compare_strip


KERNEL = JitFunction(_load_kernel)


@cache
def find_platform_problem() -> str | None:
    """Return why the kernel cannot be compiled on this machine, or None. Imports numba, compiles nothing."""
    try:
        from consolidation_pipeline.core.similarity.vnni import PROBLEM

        is_switched_off = not hasattr(KERNEL.function, "signatures")
    except Exception as error:  # whatever fails in the compiler, the NumPy forms still work
        return f"the kernel cannot be compiled: {type(error).__name__}: {error}"
    return "the kernel cannot be compiled: NUMBA_DISABLE_JIT is set" if is_switched_off else PROBLEM


@cache
def find_kernel_problem() -> str | None:
    """Return why the compiled kernel does not work, or None.

    The first call in a process loads or compiles the kernel (``core.jit`` says how long that takes).
    """
    if reason := find_platform_problem():
        return reason
    try:
        from consolidation_pipeline.core.similarity import compiled_join

        return compiled_join.find_kernel_fault()
    except Exception as error:  # as above
        return f"the kernel cannot be compiled: {type(error).__name__}: {error}"


def find_pairs(join: Join, *, forms: Sequence[str] = FORMS) -> Iterator[PairArrays]:
    """Yield the pairs of ``join`` in blocks, in order, by the fastest of ``forms``."""
    with single_threaded_blas as threads:
        plan, n = choose_plan(join, threads, forms=forms), len(join.rows)
        even = max(STRIP_STEP, min(MAX_STRIP_ROWS, n // (_STRIPS * threads) // STRIP_STEP * STRIP_STEP))
        room = int(join.capacity / (2.0 * plan.density * n + 1.0))
        yield from iter_strips(plan.prepare(), n, height=max(1, min(even, room)), threads=threads)


def choose_plan(join: Join, threads: int, *, forms: Sequence[str] = FORMS) -> Plan:
    """Return the fastest plan among ``forms``, including the time to load or compile the kernel."""
    plain = _make_plain_plan(join, threads, 0.0)
    is_small = plain.cost < PLAN + join.rows.shape[1] * PLAN_COLUMN
    if not join.rows.size or set(forms) == {"plain"} or ("plain" in forms and is_small):
        return plain
    best, *others = sorted(_make_plans(join, threads, forms), key=lambda plan: plan.cost)
    if best.form != "compiled":
        return best
    other = next((plan for plan in others if plan.form != "compiled"), None)
    if other is not None and not KERNEL.pays(other.cost - best.cost):
        return other
    if find_kernel_problem():
        return choose_plan(join, threads, forms=[form for form in forms if form != "compiled"] or ["pruned"])
    return best


def _make_plans(join: Join, threads: int, forms: Sequence[str]) -> list[Plan]:
    sample = sample_positions(len(join.rows), _SAMPLE)
    few = Join(join.rows[sample], join.lengths[sample], join.least, 0)
    density = _compute_density(few.rows @ few.rows.T >= join.cut)
    plans = [_make_plain_plan(join, threads, density)] if "plain" in forms else []
    # The fewest directions are tried whatever memory they take.
    most = max(DIRECTIONS[0][0], MAX_BYTES / BYTES_PER_NUMBER / len(join.rows) - 1)
    for directions in DIRECTIONS:
        basis = leading_directions(join.rows[sample_positions(len(join.rows))], directions[-1])
        for k in sorted({min(k, basis.shape[1]) for k in directions if k <= most}):
            candidate = _ShortVectorPlans(join, few, threads, density, basis[:, :k].copy())
            plans += [candidate.plan_pruned()] if "pruned" in forms else []
            plans += [candidate.plan_compiled()] if "compiled" in forms else []
        if basis.shape[1] < directions[-1] or min(plan.cost for plan in plans) < LONG_SECONDS:
            break
    return plans


def _make_plain_plan(join: Join, threads: int, density: float) -> Plan:
    d = join.rows.shape[1]
    each = d * MULTIPLY + SCORE + density * (PAIR + d * PAIR_COLUMN)
    cost = join.pairs / threads * each
    return Plan("plain", cost, density, lambda: partial(compare_products, join, join.rows, join.cut))


@dataclass(frozen=True, eq=False)
class _ShortVectorPlans:
    """Plans of ``join`` by short vectors along ``basis`` (d, k), with costs estimated from the sample ``few``."""

    join: Join
    few: Join
    threads: int
    density: float
    basis: Rows

    def plan_pruned(self) -> Plan:
        d, k = self.basis.shape
        short = shorten_rows(self.few.rows, self.few.lengths, self.basis)
        left = _compute_density(short.vectors @ short.vectors.T >= short.cut(self.join.least))
        each = (k + 1) * MULTIPLY + SCORE + left * (PAIR + d * PAIR_COLUMN)
        return Plan("pruned", self._cost(each), left, lambda: build_pruned_join(self.join, self.basis))

    def plan_compiled(self) -> Plan:
        d, k = self.basis.shape
        short = shorten_rows(self.few.rows, self.few.lengths, rotate_basis(self.basis))
        cut = short.cut(self.join.least)
        bytes_ = quantize(short.vectors, cut, np.arange(len(self.few.rows)))
        products = bytes_.bytes.astype(np.float32) @ bytes_.bytes.T.astype(np.float32)
        reached = _compute_density(products + bytes_.levels[:, None] + bytes_.levels >= bytes_.least)
        left = _compute_density(short.vectors @ short.vectors.T >= cut)
        full = (left + EXACT * self.density) * (CHECK + d * CHECK_COLUMN)
        each = (k + 1) * BYTE_MULTIPLY + BYTE_SCORE + reached * CHECK + full
        cost = len(self.join.rows) * k * QUANTIZE + self._cost(each)
        return Plan("compiled", cost, self.density, self._build_compiled)

    def _build_compiled(self) -> CompareStrip:
        from consolidation_pipeline.core.similarity.compiled_join import build_compiled_join

        return build_compiled_join(self.join, self.basis)

    def _cost(self, each: float) -> float:
        d, k = self.basis.shape
        shortening = len(self.join.rows) * k * (d * MULTIPLY + SHORTEN)
        return float(shortening + self.join.pairs / self.threads * each)


def _compute_density(reached: NDArray[np.bool_]) -> float:
    """Return the share of pairs of different rows that ``reached`` (m, m) marks."""
    m = len(reached)
    return int(np.count_nonzero(reached) - np.count_nonzero(reached.diagonal())) / max(1, m * (m - 1))
