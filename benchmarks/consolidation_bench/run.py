"""Benchmark of systems that consolidate memories: one command, a table in Markdown and all figures in JSON.

    python -m benchmarks.consolidation_bench [--system NAME ...] [--size 4] [--seed 24] [--languages en de ...]
        [--data FILE.jsonl] [--out FOLDER] [--seconds 3600] [--megabytes 6000]

NAME is one of those that are listed, or ``module:Class`` of your own; all by default. Without ``--data`` the memories
are generated from the seed. Each system runs in a process of its own, which is ended when it takes more time or
memory. A system whose package is not installed is left out, and the table says so.
"""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.consolidation_bench import measure
from benchmarks.consolidation_bench.dataset import Dataset
from benchmarks.consolidation_bench.external import load_dataset
from benchmarks.consolidation_bench.generate import LANGUAGES, SEED, generate
from benchmarks.consolidation_bench.measure import Share, State
from benchmarks.consolidation_bench.observe import Observation
from benchmarks.consolidation_bench.report import write_report
from benchmarks.consolidation_bench.systems import SYSTEMS

ROOT = Path(__file__).resolve().parents[2]
POLL_SECONDS = 0.2
MEGABYTE = 1 << 20


def run_system(name: str, dataset: Dataset, folder: Path, *, seconds: float, megabytes: float) -> dict[str, Any]:
    """Run a system twice, the second time in another order of loading; return its figures.

    Returns:
        The figures by name, or ``skipped`` with the reason.
    """
    file = folder / "dataset.pickle"
    file.write_bytes(pickle.dumps(dataset))
    limits = {"seconds": seconds, "megabytes": megabytes}
    first, peak = _observe(name, file, folder / "first.json", **limits)
    if isinstance(first, str):
        return {"skipped": first}
    other, _ = _observe(name, file, folder / "other.json", "--shuffled", **limits)
    return measure_observation(dataset, first, None if isinstance(other, str) else other) | {"megabytes": round(peak)}


def _observe(
    name: str, dataset: Path, result: Path, *flags: str, seconds: float, megabytes: float
) -> tuple[Observation | str, float]:
    """Return what a system did, or why there is nothing, and the peak memory of its processes in MB."""
    command = [sys.executable, "-m", "benchmarks.consolidation_bench.observe", name, str(dataset), str(result), *flags]
    log = result.with_suffix(".log")
    with log.open("w") as output:
        process = psutil.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        ended, peak = _watch(process, seconds=seconds, megabytes=megabytes)
    if ended:
        return ended, peak
    if process.returncode:
        last = [line for line in log.read_text().splitlines() if line.strip()][-1:]
        return f"failed: {' '.join(last) or process.returncode}", peak
    found = json.loads(result.read_text("utf-8"))
    return found.get("skipped") or Observation(**found), peak


def _watch(process: psutil.Popen, *, seconds: float, megabytes: float) -> tuple[str, float]:
    """Wait for a process; end it and its children at a limit. Return the reason, or "", and the peak memory in MB."""
    peak, deadline = 0.0, time.monotonic() + seconds
    while process.poll() is None:
        children = _list_processes(process)
        peak = max(peak, sum(map(_read_memory, children)) / MEGABYTE)
        if peak > megabytes or time.monotonic() > deadline:
            for each in children:
                each.kill()
            process.wait()
            return (f"more than {megabytes:.0f} MB" if peak > megabytes else f"more than {seconds:.0f} s"), peak
        time.sleep(POLL_SECONDS)
    return "", peak


def _list_processes(process: psutil.Popen) -> list[psutil.Process]:
    try:
        return [psutil.Process(process.pid), *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _read_memory(process: psutil.Process) -> int:
    """Return the bytes of a process that it shares with no other, or all where the system does not tell."""
    try:
        info = process.memory_info()
    except psutil.Error:
        return 0
    return int(info.rss - getattr(info, "shared", 0))


def measure_observation(dataset: Dataset, seen: Observation, other: Observation | None) -> dict[str, Any]:
    """Return the figures of a system.

    Args:
        dataset: Memories and what is known of them.
        seen: What the system did.
        other: What it did with the memories in another order; None = it failed.
    """
    _before, after, again = (seen.make_state(dataset, rows) for rows in (seen.before, seen.after, seen.again))
    undone = seen.make_state(dataset, seen.undone) if seen.undone is not None else None
    return {
        "model": seen.model,
        "memories": len(dataset.memories),
        "active": len(after.active),
        "wrong_merges": measure.count_wrong_merges(after),
        "missed_duplicates": measure.count_missed_duplicates(after),
        "mixed_memories": measure.count_mixed_memories(after),
        "lost_facts": measure.count_lost_facts(after),
        "superseded": measure.count_superseded(after),
        "wrongly_superseded": measure.count_wrongly_superseded(after),
        "order_dependence": _compare_orders(after, other),
        "changed_by_second_run": measure.count_changed_texts(after, again),
        "restored_by_undo": measure.count_restored(undone) if undone else None,
        "answered_before": measure.count_answered(dataset, dataset.questions, seen.found_before),
        "answered_after": measure.count_answered(dataset, dataset.questions, seen.found_after),
        "seconds": round(seen.seconds, 1),
        "calls": seen.calls,
        "tokens": seen.tokens,
    }


def _compare_orders(state: State, other: Observation | None) -> Share | None:
    return measure.count_order_dependence(state, other.make_state(state.dataset, other.after)) if other else None


def run(
    names: Sequence[str], dataset: Dataset, *, seconds: float, megabytes: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run systems one after the other; yield the figures of each."""
    for name in names:
        print(f"{name} ..", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            figures = run_system(name, dataset, Path(folder), seconds=seconds, megabytes=megabytes)
        print(f"  {figures.get('skipped', 'done')}", file=sys.stderr, flush=True)
        yield name, figures


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the systems that the command line names; print the table and write it with all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", action="append", metavar="NAME", help=f"one of: {'; '.join(SYSTEMS)}")
    parser.add_argument("--size", type=int, default=4, help="near-misses of each class and language")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--languages", nargs="+", default=LANGUAGES, metavar="CODE")
    parser.add_argument("--data", type=Path, help="file of labelled memories or pairs instead of generated ones")
    parser.add_argument("--out", type=Path, help="folder for benchmark.json and benchmark.md")
    parser.add_argument("--seconds", type=float, default=3600.0, help="most time of a system")
    parser.add_argument("--megabytes", type=float, default=6000.0, help="most memory of a system")
    given = parser.parse_args(arguments)
    if given.data:
        dataset = load_dataset(given.data)
    else:
        dataset = generate(given.size, seed=given.seed, languages=given.languages)
    figures: dict[str, dict[str, Any]] = {}
    for name, found in run(given.system or list(SYSTEMS), dataset, seconds=given.seconds, megabytes=given.megabytes):
        figures[name] = found
        if given.out:  # After each system: what was measured stays if the run is ended.
            given.out.mkdir(parents=True, exist_ok=True)
            (given.out / "benchmark.json").write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", "utf-8")
            (given.out / "benchmark.md").write_text(write_report(dataset, figures), "utf-8")
    print(write_report(dataset, figures))
