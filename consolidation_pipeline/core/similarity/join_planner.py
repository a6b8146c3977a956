"""Choice of the join's form: products of whole rows, of short vectors in NumPy, or the compiled kernel.

All give the same pairs to the last bit. A sample of the rows tells which takes the least time.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.jit import JitFunction
from consolidation_pipeline.core.similarity.dimension_pruning import leading_directions, pruned, sample_of, shorten
from consolidation_pipeline.core.similarity.matrix_products import Join, Rows, compare_products
from consolidation_pipeline.core.similarity.quantization import quantise, spread
from consolidation_pipeline.core.similarity.row_strips import HEIGHT, STEP, Compare, Found, in_order, one_blas_thread

# Seconds of one core (Xeon with AVX-512, 2.8 GHz, OpenBLAS); elsewhere in similar ratios, which is what counts. What
# numba takes is in ``core.jit``, measured on the same machine.
# A float32 multiplication and addition, the comparison of a score; the same for bytes.
MULTIPLY, SCORE, BYTE_MULTIPLY, BYTE_SCORE = 2.2e-11, 1.3e-9, 4.4e-12, 1.9e-10
# A number of a short vector: computed, and turned into a byte.
SHORTEN, QUANTISE = 1.5e-8, 2.5e-8
# A pair in full, and what each of its columns adds: in NumPy, and in compiled code.
PAIR, PAIR_COLUMN = 4e-7, 4.6e-9
CHECK, CHECK_COLUMN = 4e-8, 2.9e-10
# The exact cosine of a pair takes the compiled kernel so many times as long as its check in float32.
EXACT = 8.0

# Making a plan, and what each column adds: a join by products of whole rows that is quicker needs none.
PLAN, PLAN_COLUMN = 0.04, 8e-5

# Directions for the short vectors, tried together; the second set only where the first leaves this much to do.
DIRECTIONS = (31, 63, 127), (255, 511)
MUCH = 4.0

# Bytes of a row for each number of its short vector while the kernel is prepared, and how many all rows may take.
NUMBER, MEMORY = 9, 1.2e9

FORMS = "plain", "pruned", "compiled"

# Rows whose pairs are counted.
_SAMPLE = 512

# Strips of rows per thread, so that all threads end at about the same time.
_STRIPS = 8


@dataclass(frozen=True, eq=False)
class Plan:
    """A form of the join, and what to expect of it.

    ``cost``: seconds, without those to load or compile the kernel. ``density``: the share of all pairs that are
    similar, or, for short vectors in NumPy, that are computed in full.
    """

    form: str
    cost: float
    density: float
    prepare: Callable[[], Compare]


def _kernel() -> Any:
    from consolidation_pipeline.core.similarity import compiled_join

    return compiled_join.compare_strip


KERNEL = JitFunction(_kernel)


@cache
def why_unsupported() -> str | None:
    """Return why this machine cannot have the compiled kernel, None if it can. Imports numba, compiles nothing."""
    try:
        from consolidation_pipeline.core.similarity.vnni import MISSING

        is_switched_off = not hasattr(KERNEL.function, "signatures")
    except Exception as error:  # whatever stops a compiler on somebody's machine, the NumPy form goes on
        return f"the kernel cannot be compiled: {type(error).__name__}: {error}"
    return "the kernel cannot be compiled: NUMBA_DISABLE_JIT is set" if is_switched_off else MISSING


@cache
def why_no_kernel() -> str | None:
    """Return None if the compiled kernel works, else why the join does without.

    The first call in a process loads the kernel, or compiles it: see ``core.jit`` for the time this takes.
    """
    if reason := why_unsupported():
        return reason
    try:
        from consolidation_pipeline.core.similarity import compiled_join

        return compiled_join.find_fault()
    except Exception as error:  # as above
        return f"the kernel cannot be compiled: {type(error).__name__}: {error}"


def find_pairs(join: Join, *, forms: Sequence[str] = FORMS) -> Iterator[Found]:
    """Yield the pairs of ``join`` in blocks, in order, by the quickest of ``forms``."""
    with one_blas_thread as threads:
        plan, n = choose(join, threads, forms=forms), len(join.rows)
        even = max(STEP, min(HEIGHT, n // (_STRIPS * threads) // STEP * STEP))
        room = int(join.capacity / (2.0 * plan.density * n + 1.0))
        yield from in_order(plan.prepare(), n, height=max(1, min(even, room)), threads=threads)


def choose(join: Join, threads: int, *, forms: Sequence[str] = FORMS) -> Plan:
    """Return the plan of ``forms`` that ends first, the time to load or compile the kernel included."""
    plain = _plain(join, threads, 0.0)
    is_small = plain.cost < PLAN + join.rows.shape[1] * PLAN_COLUMN
    if not join.rows.size or set(forms) == {"plain"} or ("plain" in forms and is_small):
        return plain
    best, *others = sorted(_plans(join, threads, forms), key=lambda plan: plan.cost)
    if best.form != "compiled":
        return best
    other = next((plan for plan in others if plan.form != "compiled"), None)
    if other is not None and not KERNEL.pays(other.cost - best.cost):
        return other
    if why_no_kernel():
        return choose(join, threads, forms=[form for form in forms if form != "compiled"] or ["pruned"])
    return best


def _plans(join: Join, threads: int, forms: Sequence[str]) -> list[Plan]:
    few = _part(join, sample_of(len(join.rows), _SAMPLE))
    density = _density(few.rows @ few.rows.T >= join.cut)
    plans = [_plain(join, threads, density)] if "plain" in forms else []
    for directions in DIRECTIONS:
        basis = leading_directions(join.rows[sample_of(len(join.rows))], directions[-1])
        for k in sorted({min(k, basis.shape[1]) for k in directions if _fits(join, k)}):
            survey = _Survey(join, few, threads, density, basis[:, :k].copy())
            plans += [survey.pruned()] if "pruned" in forms else []
            plans += [survey.compiled()] if "compiled" in forms else []
        if basis.shape[1] < directions[-1] or min(plan.cost for plan in plans) < MUCH:
            break
    return plans


def _fits(join: Join, k: int) -> bool:
    return k == DIRECTIONS[0][0] or len(join.rows) * (k + 1) * NUMBER <= MEMORY


def _plain(join: Join, threads: int, density: float) -> Plan:
    d = join.rows.shape[1]
    each = d * MULTIPLY + SCORE + density * (PAIR + d * PAIR_COLUMN)
    cost = join.pairs / threads * each
    return Plan("plain", cost, density, lambda: partial(compare_products, join, join.rows, join.cut))


@dataclass(frozen=True, eq=False)
class _Survey:
    """Costs of ``join`` by short vectors along ``basis`` (d, k), estimated from the rows of ``few``."""

    join: Join
    few: Join
    threads: int
    density: float
    basis: Rows

    def pruned(self) -> Plan:
        d, k = self.basis.shape
        short = shorten(self.few.rows, self.few.lengths, self.basis)
        left = _density(short.vectors @ short.vectors.T >= short.cut(self.join.least))
        each = (k + 1) * MULTIPLY + SCORE + left * (PAIR + d * PAIR_COLUMN)
        return Plan("pruned", self._cost(each), left, lambda: pruned(self.join, self.basis))

    def compiled(self) -> Plan:
        d, k = self.basis.shape
        short = shorten(self.few.rows, self.few.lengths, spread(self.basis))
        cut = short.cut(self.join.least)
        bytes_ = quantise(short.vectors, cut, np.arange(len(self.few.rows)))
        products = bytes_.bytes.astype(np.float32) @ bytes_.bytes.T.astype(np.float32)
        reached = _density(products + bytes_.levels[:, None] + bytes_.levels >= bytes_.least)
        left = _density(short.vectors @ short.vectors.T >= cut)
        full = (left + EXACT * self.density) * (CHECK + d * CHECK_COLUMN)
        each = (k + 1) * BYTE_MULTIPLY + BYTE_SCORE + reached * CHECK + full
        bytes_cost = len(self.join.rows) * k * QUANTISE
        return Plan("compiled", bytes_cost + self._cost(each), self.density, self._compiled)

    def _compiled(self) -> Compare:
        from consolidation_pipeline.core.similarity.compiled_join import compiled

        return compiled(self.join, self.basis)

    def _cost(self, each: float) -> float:
        d, k = self.basis.shape
        shortening = len(self.join.rows) * k * (d * MULTIPLY + SHORTEN)
        return float(shortening + self.join.pairs / self.threads * each)


def _part(join: Join, rows: NDArray[np.int64]) -> Join:
    return Join(join.rows[rows], join.lengths[rows], join.least, 0)


def _density(reached: NDArray[np.bool_]) -> float:
    """Return the share of pairs of different rows that ``reached`` (m, m) marks."""
    m = len(reached)
    marked = int(np.count_nonzero(reached)) - int(np.count_nonzero(reached.diagonal()))
    return marked / max(1, m * (m - 1))
