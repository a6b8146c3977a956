"""One system in a process of its own: load, search, consolidate, search, consolidate again, undo.

    python -m benchmarks.consolidation_bench.observe SYSTEM DATASET.pickle RESULT.json [--shuffled]

``run.py`` starts it. ``--shuffled``: load in another order and consolidate once.
"""

from __future__ import annotations

import argparse
import json
import pickle
import random
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.consolidation_bench.dataset import Dataset
from benchmarks.consolidation_bench.measure import State
from benchmarks.consolidation_bench.systems import load_system
from benchmarks.consolidation_bench.systems.system import ActiveMemory, System

RESULTS = 5
SHUFFLE_SEED = 25

Rows = list[tuple[str, str, tuple[str, ...]]]


@dataclass
class Observation:
    """Result of running a system. ``seconds``: of loading and consolidating. ``found``: texts for each question.

    ``undone``: active memories after undo; None = the system has no undo.
    """

    model: str = "none"
    seconds: float = 0.0
    calls: int = 0
    tokens: int = 0
    before: Rows = field(default_factory=list)
    after: Rows = field(default_factory=list)
    again: Rows = field(default_factory=list)
    undone: Rows | None = None
    superseded: dict[str, str] = field(default_factory=dict)
    found_before: list[list[str]] = field(default_factory=list)
    found_after: list[list[str]] = field(default_factory=list)

    def make_state(self, dataset: Dataset, rows: Rows) -> State:
        """Return the state with these active memories."""
        active = [ActiveMemory(user, text, tuple(sources)) for user, text, sources in rows]
        return State(dataset, active, self.superseded)


def observe(name: str, dataset: Dataset, folder: Path, *, is_shuffled: bool = False) -> Observation:
    """Let a system consolidate a dataset; return what it did.

    Args:
        name: A key of ``SYSTEMS``, or ``module:Class``.
        dataset: Memories, and questions to search.
        folder: Empty folder for the system's files.
        is_shuffled: Load the memories in another order, and only consolidate.

    Raises:
        ModuleNotFoundError: A package that the system needs is not installed.
    """
    system = load_system(name)(folder, dataset)
    memories = list(dataset.memories)
    if is_shuffled:
        random.Random(SHUFFLE_SEED).shuffle(memories)
    seen = Observation(system.model)
    began = time.perf_counter()
    system.load(memories)
    seen.seconds = time.perf_counter() - began
    if not is_shuffled:
        seen.before, seen.found_before = list(system.active()), _search(system, dataset)
    began = time.perf_counter()
    system.consolidate()
    seen.seconds += time.perf_counter() - began
    seen.calls, seen.tokens = system.usage.calls, system.usage.tokens
    seen.after, seen.superseded = list(system.active()), system.superseded()
    if not is_shuffled:
        seen.found_after = _search(system, dataset)
        system.consolidate()
        seen.again = list(system.active())
        seen.undone = list(system.active()) if system.undo() else None
    return seen


def _search(system: System, dataset: Dataset) -> list[list[str]]:
    return [system.search(question.user, question.text, RESULTS) for question in dataset.questions]


def main() -> None:
    """Observe a system; write what it did as JSON. A missing package ends the process with its name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system")
    parser.add_argument("dataset", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--shuffled", action="store_true")
    given = parser.parse_args()
    dataset: Dataset = pickle.loads(given.dataset.read_bytes())
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            seen = observe(given.system, dataset, Path(folder), is_shuffled=given.shuffled)
        except ModuleNotFoundError as error:
            given.result.write_text(json.dumps({"skipped": f"package {error.name} is not installed"}))
            return
    given.result.write_text(json.dumps(asdict(seen), ensure_ascii=False), "utf-8")


if __name__ == "__main__":
    main()
