"""Time and memory of the similarity join, compared with blocked BLAS, scikit-learn, faiss and a double loop.

    python benchmarks/similarity.py                     all sizes: minutes to hours, mostly for the other methods
    python benchmarks/similarity.py --sizes 10000 --dims 256 --thresholds 0.9 --repeats 5
    python benchmarks/similarity.py --million           1,000,000 x 256, only the join

Needs the dependency group ``bench``. Each method has a process of its own, the same vectors and the same number of
threads. Memory is the peak growth of that process. The vectors are synthetic: like sentence embeddings, they have a
common direction, a decaying spectrum and topics. 40 % of the rows are in groups of near-duplicates.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
from threadpoolctl import threadpool_limits

METHODS = {
    "kernel": "join, compiled kernel",
    "numpy": "join, NumPy form",
    "chosen": "join, form chosen, in a fresh process",
    "blas": "blocked BLAS, all products",
    "sklearn": "scikit-learn radius neighbours",
    "faiss": "faiss flat range search",
    "loop": "double loop, one cosine at a time",
}
OTHER_METHODS = ("sklearn", "faiss", "loop")
BLOCK = 8192
LOOP_ROWS = 200


def draw_vectors(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Return float32 (n, d) unit rows: mean length 0.5, eigenvalues (r + 8)^-1.2, 100 topics, 40 % near-duplicates."""
    draw = np.random.default_rng(seed)
    scale = (np.arange(d) + 8.0) ** -0.6
    scale = (scale / np.linalg.norm(scale)).astype(np.float32)
    mean = draw.standard_normal(d, dtype=np.float32) * scale
    topics = draw.standard_normal((100, d), dtype=np.float32) * scale * 0.5
    topics += 0.5 * mean / np.linalg.norm(mean)
    topic = np.minimum(draw.geometric(0.03, n) - 1, 99)
    owner = np.where(draw.random(n) < 0.4, draw.integers(0, n, n) // 5 * 5, np.arange(n))
    x = np.empty((n, d), dtype=np.float32)
    for rows in iter_blocks(n):
        x[rows] = topics[topic[rows]] + 0.7 * scale * draw.standard_normal((len(x[rows]), d), dtype=np.float32)
    originals, spread = x.copy() if n * d < 1e8 else x, draw.random(n, dtype=np.float32)[:, None]
    for rows in iter_blocks(n):
        copies = np.flatnonzero(owner[rows] != np.arange(n)[rows]) + rows.start
        noise = scale * draw.standard_normal((len(copies), d), dtype=np.float32)
        x[copies] = originals[owner[copies]] + 0.6 * spread[copies] * noise
        x[rows] /= np.linalg.norm(x[rows], axis=1, keepdims=True)
    return x


def iter_blocks(n: int) -> Iterator[slice]:
    """Yield slices of at most ``BLOCK`` rows."""
    return (slice(at, min(n, at + BLOCK)) for at in range(0, n, BLOCK))


def build_join(*forms: str) -> Callable[[np.ndarray, float], int]:
    """Return a function that counts pairs by the join, restricted to the given forms."""
    from consolidation_pipeline.core.similarity import join_planner
    from consolidation_pipeline.core.similarity.matrix_products import Join
    from consolidation_pipeline.core.similarity.similarity_join import SLACK, check_rows

    if "compiled" in forms and (reason := join_planner.find_kernel_problem()):
        raise SystemExit(reason)

    def join(x: np.ndarray, threshold: float) -> int:
        rows, lengths = check_rows(x)
        found = list(join_planner.find_pairs(Join(rows, lengths, threshold - SLACK, 0), forms=forms))
        return sum(len(i) for i, _, _ in found)

    return join


def join_chosen(x: np.ndarray, threshold: float) -> int:
    """Count pairs by the join in the form that it chooses."""
    from consolidation_pipeline.core.similarity.similarity_join import similarity_join

    return len(similarity_join(x, threshold))


def search_sklearn(x: np.ndarray, threshold: float) -> int:
    """Count pairs by scikit-learn's brute-force radius search."""
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(radius=float(np.sqrt(2.0 - 2.0 * threshold)), algorithm="brute").fit(x)
    found = 0
    for rows in iter_blocks(len(x)):
        found += sum(len(row) for row in search.radius_neighbors(x[rows], return_distance=False))
    return (found - len(x)) // 2


def search_faiss(x: np.ndarray, threshold: float) -> int:
    """Count pairs by faiss' flat range search."""
    import faiss

    index = faiss.IndexFlatIP(x.shape[1])
    index.add(x)
    return (sum(int(index.range_search(x[rows], threshold)[0][-1]) for rows in iter_blocks(len(x))) - len(x)) // 2


def loop_pairs(x: np.ndarray, threshold: float) -> int:
    """Count pairs of the first ``LOOP_ROWS`` rows in a double loop."""
    rows = x[:LOOP_ROWS]
    return sum(float(rows[i] @ rows[j]) >= threshold for i in range(len(rows)) for j in range(i))


def get_method(method: str) -> Callable[[np.ndarray, float], int]:
    """Return the function that counts pairs by a method."""
    if method in ("kernel", "numpy", "blas"):
        return build_join({"kernel": "compiled", "numpy": "pruned", "blas": "plain"}[method])
    return {"chosen": join_chosen, "sklearn": search_sklearn, "faiss": search_faiss, "loop": loop_pairs}[method]


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """Yield a list with one item: the peak growth of this process in MB, sampled 200 times a second."""
    process, done, peak = psutil.Process(), threading.Event(), [0.0]
    before = process.memory_info().rss

    def watch() -> None:
        while not done.wait(0.005):
            peak[0] = max(peak[0], (process.memory_info().rss - before) / 2**20)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def measure(method: str, file: str, thresholds: list[float], repeats: int) -> list[dict[str, float]]:
    """Return a result for each threshold. Runs in the child process."""
    x, results = np.load(file), []
    count_pairs = get_method(method)
    if method != "chosen":
        count_pairs(x[:300], 0.9)  # imports, and the kernel's compilation
    for threshold in thresholds:
        seconds = []
        with peak_memory() as peak:
            for _ in range(repeats):
                start = time.perf_counter()
                pairs = count_pairs(x, threshold)
                seconds.append(time.perf_counter() - start)
        results.append({"seconds": statistics.median(seconds), "pairs": pairs, "mb": peak[0]})
    return results


def measure_peak_flops(threads: int) -> float:
    """Return the floating-point operations a second of float32 matrix products on ``threads`` threads."""
    a = np.ones((1536, 1536), dtype=np.float32)
    with threadpool_limits(1), ThreadPoolExecutor(threads) as pool:
        times = []
        for _ in range(7):
            start = time.perf_counter()
            list(pool.map(lambda _: a @ a, range(2 * threads)))
            times.append(time.perf_counter() - start)
    return 2 * threads * 2.0 * 1536**3 / min(times)


def measure_in_child(
    method: str, file: str, arguments: argparse.Namespace, thresholds: list[float]
) -> list[dict[str, float]]:
    """Return the results of ``measure`` in a new process with a fixed number of threads."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(arguments.threads))
    repeats = 1 if method in ("chosen", *OTHER_METHODS) else arguments.repeats
    command = [sys.executable, __file__, "--child", json.dumps([method, file, thresholds, repeats])]
    output = subprocess.run(command, env=os.environ | threads, check=True, capture_output=True, text=True).stdout
    results: list[dict[str, float]] = json.loads(output)
    return results


def print_comparison(n: int, d: int, file: str, arguments: argparse.Namespace, peak: float) -> None:
    """Run all methods on a file of vectors and print a line for each threshold and method."""
    rows: dict[str, list[dict[str, float]]] = {}
    for method in arguments.methods:
        too_slow = n > arguments.rivals_up_to and method in OTHER_METHODS and method != "loop"
        rows[method] = [] if too_slow else measure_in_child(method, file, arguments, arguments.thresholds)
    for at, threshold in enumerate(arguments.thresholds):
        blas = rows["blas"][at]["seconds"] if rows.get("blas") else None
        for method, results in rows.items():
            print(format_line(method, n, d, threshold, results=results[at : at + 1], blas=blas, peak=peak), flush=True)


def format_line(
    method: str,
    n: int,
    d: int,
    threshold: float,
    *,
    results: list[dict[str, float]],
    blas: float | None,
    peak: float,
) -> str:
    """Return a line of the table."""
    head = f"{n:>9,} {d:>5} {threshold:>5.2f}  {METHODS[method]:<38}"
    if not results:
        return f"{head} skipped (--rivals-up-to)"
    seconds, mark, pairs = results[0]["seconds"], " ", f"{results[0]['pairs']:>12,}"
    if method == "loop":
        few = min(n, LOOP_ROWS)
        seconds, mark, pairs = seconds * n * (n - 1) / (few * (few - 1)), "~", " " * 12
    ratio = f"{blas / seconds:>8.3g}" if blas else " " * 8
    return f"{head}{mark}{seconds:>10.3f} {ratio} {results[0]['mb']:>8.0f} {n * n * d / seconds / peak:>8.2g} {pairs}"


def parse_arguments() -> argparse.Namespace:
    """Return the command line's arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 50_000, 100_000])
    parser.add_argument("--dims", type=int, nargs="+", default=[256, 1536])
    parser.add_argument("--thresholds", type=float, nargs="+", default=[0.85, 0.90, 0.95])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rivals-up-to", type=int, default=10_000, help="largest n for scikit-learn and faiss")
    parser.add_argument("--million", action="store_true", help="1,000,000 x 256, compiled kernel only")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.million:
        arguments.sizes, arguments.dims, arguments.methods, arguments.repeats = [1_000_000], [256], ["kernel"], 1
    return arguments


def main() -> None:
    """Print the table of all sizes, dimensions, thresholds and methods."""
    arguments = parse_arguments()
    if arguments.child:
        print(json.dumps(measure(*json.loads(arguments.child))))
        return
    peak = measure_peak_flops(arguments.threads)
    print(
        f"{arguments.threads} threads, float32 products {peak / 1e9:.0f} GFlop/s; ~ extrapolated from {LOOP_ROWS} rows"
    )
    print(
        "x BLAS: times faster than blocked BLAS; MB: memory beyond the input; of peak: n^2 d operations / time / peak"
    )
    columns = f"{'n':>9} {'d':>5} {'t':>5}  {'method':<38}{'seconds':>11} {'x BLAS':>8}"
    print(f"{columns} {'MB':>8} {'of peak':>8} {'pairs':>12}")
    with tempfile.TemporaryDirectory() as folder:
        for n in arguments.sizes:
            for d in arguments.dims:
                file = str(Path(folder) / "vectors.npy")
                np.save(file, draw_vectors(n, d))
                print_comparison(n, d, file, arguments, peak)


if __name__ == "__main__":
    main()
