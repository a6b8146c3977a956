"""Time of each step of importing and consolidating N memories.

    python benchmarks/pipeline.py [N ...]        default: 1000 10000

A second run follows, as at night: 1,000 more memories (at most a tenth of N) are imported and consolidated, half of
them old lessons in new words. Its times are compared with those of the first run.

The corpus is synthetic: lessons made of random parts, each noted one to five times in different words. More than half
of the memories are near-duplicates. Phases run as Dagster assets in this process, as by `consolidation run`, on a
temporary embedded server.
"""

from __future__ import annotations

import inspect
import json
import os
import random
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import wraps
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from temporary_server import use_temporary_server

SUBJECTS = (
    "the payment worker|the order importer|the session cache|the invoice renderer|the search indexer|"
    "the webhook sender|the mail queue|the report builder|the login form|the price service|the stock ledger|"
    "the audit log|the image resizer|the rate limiter|the feature flag client|the migration runner|"
    "the backup job|the metrics exporter|the chat gateway|the document parser|the address validator|"
    "the tax calculator|the coupon engine|the shipping estimator"
).split("|")
FAULTS = (
    "dropped messages after a reconnect|kept a stale handle to the database|"
    "returned the wrong page when the list shrank|ran out of file descriptors|"
    "doubled every entry after a retry|ignored the time zone of the customer|"
    "blocked the event loop while hashing|leaked memory on every upload|lost updates when two workers raced|"
    "timed out behind the proxy|accepted an expired token|rounded amounts twice|rejected names with accents|"
    "wrote its log to the wrong folder|started before its dependencies were ready|sorted numbers as text"
).split("|")
FIXES = (
    "acknowledging only after the commit|opening a connection per request|paging by key instead of by offset|"
    "closing the response in a finally block|adding a unique constraint on the request id|"
    "storing times in UTC|moving the work to a thread pool|streaming the body to disk|"
    "taking an advisory lock first|raising the idle timeout|checking the expiry on every call|"
    "keeping amounts as integers of cents|normalising text before comparing|"
    "reading the folder from the settings|waiting for the health check|casting the column before ordering"
).split("|")
OPENINGS = (
    "Found that {0} {1}",
    "Today {0} {1}",
    "It turned out that {0} {1}",
    "Noticed {0} {1}",
    "Root cause: {0} {1}",
)
CLOSINGS = (
    "; fixed by {0}.",
    ". Solved it by {0}.",
    ", and {0} cured it.",
    ". The fix was {0}.",
    ". We now rely on {0}.",
)
TYPES = ("error_fix", "discovery", "learning", "warning", "bugfix")

MAX_NIGHT = 1000

# Steps in the order of the table -> module -> prefix of the timed functions. "-": a part of the step above.
STEPS: dict[str, dict[str, str]] = {
    "import": {},
    "embedding_matrix": {},
    "- save vectors": {"consolidation_pipeline.service.similarity.embedding": "save_embeddings"},
    "threshold_calibration": {},
    "similarity_graph": {},
    "- load": {"consolidation_pipeline.service.similarity.similarity_graph": "load_graph_nodes"},
    "- join": {"consolidation_pipeline.service.similarity.similarity_graph": "iter_scoped_pairs"},
    "- classify pairs": {"consolidation_pipeline.service.similarity.similarity_graph": "classify_pairs"},
    "clusters": {},
    "- load nodes and pairs": {"consolidation_pipeline.service.similarity.clusters": "load_contents"},
    "- build units": {"consolidation_pipeline.service.similarity.clusters": "build_units"},
    "- recall gate": {"consolidation_pipeline.service.similarity.clusters": "find_refused"},
    "- write groups": {"consolidation_pipeline.service.similarity.clusters": "replace_"},
    "merged_memories": {},
    "- write merges": {"consolidation_pipeline.service.knowledge.merged_memories": "write_merged"},
    "supersessions": {},
    "patterns": {},
    "- extract": {"consolidation_pipeline.service.knowledge.text_writers": "extract_texts"},
    "- write patterns": {"consolidation_pipeline.service.knowledge.derive": "write_derived"},
    "principles": {},
    "playbook_entries": {},
    "consolidation_suggestions": {},
    "semantic_summaries": {},
    "procedural_profile": {},
    "decay_scores": {},
    "archived_memories": {},
    "consolidation_report": {},
    "checks": {"consolidation_pipeline.defs.asset_checks": "find_violations"},
    "Dagster and the rest": {},
    "all": {},
}


class Lesson(NamedTuple):
    """A lesson, which is noted several times in different words."""

    parts: list[str]
    detail: str
    module: str
    kind: str


def draw_lessons(draw: random.Random) -> Iterator[Lesson]:
    """Yield random lessons without end."""
    while True:
        parts = [draw.choice(SUBJECTS), draw.choice(FAULTS), draw.choice(FIXES)]
        ticket, module = draw.randrange(100_000), f"app/{draw.choice('abcdefgh')}{draw.randrange(400)}.py"
        detail = f" Seen in {module}, ticket {ticket}, after {draw.randrange(2, 900)} requests per minute."
        yield Lesson(parts, detail, module, draw.choice(TYPES))


def draw_notes(draw: random.Random) -> Iterator[tuple[Lesson, str]]:
    """Yield random lessons without end, each one to five times, with a text of it."""
    for lesson in draw_lessons(draw):
        for _ in range(draw.choice((1, 1, 1, 1, 2, 2, 3, 5))):
            yield lesson, phrase(lesson, draw)


def phrase(lesson: Lesson, draw: random.Random) -> str:
    """Return a random wording of a lesson."""
    subject, fault, fix = lesson.parts
    return draw.choice(OPENINGS).format(subject, fault) + draw.choice(CLOSINGS).format(fix) + lesson.detail


def write_corpus(path: Path, count: int, *, seed: int = 7) -> None:
    """Write ``count`` memories as JSON lines."""
    write_notes(path, islice(draw_notes(random.Random(seed)), count), first=0)


def write_night(path: Path, count: int, new: int, *, seed: int = 7) -> None:
    """Write ``new`` memories for a second run: half are new lessons, half repeat those of ``write_corpus``."""
    old = [lesson for lesson, _ in islice(draw_notes(random.Random(seed)), count)]
    draw = random.Random(seed + 1)
    fresh = islice(draw_notes(draw), new - new // 2)
    again = ((lesson, phrase(lesson, draw)) for lesson in draw.choices(old, k=new // 2))
    write_notes(path, iter([*fresh, *again]), first=count)


def write_notes(path: Path, notes: Iterator[tuple[Lesson, str]], *, first: int) -> None:
    """Write notes as JSON lines with the ids ``first``, ``first + 1``, ..."""
    rows = (
        {"id": id_, "memory_type": lesson.kind, "content": text, "tags": [lesson.module[4]], "files": [lesson.module]}
        for id_, (lesson, text) in enumerate(notes, first)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def instrument(spent: defaultdict[str, float]) -> None:
    """Replace the functions of ``STEPS`` by timed ones. Call it before the Dagster definitions are loaded."""
    for step, functions in STEPS.items():
        for module_name, prefix in functions.items():
            module = import_module(module_name)
            members = inspect.getmembers(module, inspect.isfunction)
            functions_of_step = [(name, function) for name, function in members if name.startswith(prefix)]
            if not functions_of_step:
                raise SystemExit(f"{module_name} has no function {prefix}*, which STEPS names for {step!r}")
            for name, function in functions_of_step:
                setattr(module, name, time_calls(function, step, spent))


def time_calls(function: Callable[..., Any], step: str, spent: defaultdict[str, float]) -> Callable[..., Any]:
    """Return ``function`` wrapped so that it adds its seconds to ``spent[step]``."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            result = function(*args, **kwargs)
        finally:
            spent[step] += time.perf_counter() - began
        return time_items(result, step, spent) if isinstance(result, Iterator) else result

    return call


def time_items(items: Iterator[Any], step: str, spent: defaultdict[str, float]) -> Iterator[Any]:
    """Yield ``items``, and add the seconds that it takes to produce them to ``spent[step]``."""
    while True:
        began = time.perf_counter()
        item = next(items, None)
        spent[step] += time.perf_counter() - began
        if item is None:
            return
        yield item


def measure(project: str, corpus: Path, spent: defaultdict[str, float]) -> tuple[dict[str, float], int]:
    """Import and run; return the seconds by step and the number of memories merged."""
    from consolidation_pipeline.launch import run_project
    from consolidation_pipeline.service.intake.importer import import_memories
    from consolidation_pipeline.service.runs.phases import PHASES
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import open_engine

    spent.clear()
    settings = Settings()
    engine = open_engine(settings)
    began = time.perf_counter()
    import_memories(engine, project, str(corpus), format="jsonl", source="benchmark", settings=settings)
    seconds = {"import": time.perf_counter() - began}
    outcome = run_project(project, triggered_by="benchmark")
    if outcome.status != "completed":
        raise SystemExit(f"{project}: run {outcome.status}: {outcome.error}")
    total = time.perf_counter() - began
    seconds |= {name: float(outcome.metrics[name]["seconds"]) for name in PHASES}
    rest = total - sum(seconds.values()) - spent["checks"]
    seconds |= {**spent, "Dagster and the rest": rest, "all": total}
    return seconds, int(outcome.metrics["merged_memories"]["memories_merged"])


def print_times(count: int, new: int, first: dict[str, float], night: dict[str, float]) -> None:
    """Print a table of the two runs."""
    print(f"\n| step | {count:,} memories | share | {new:,} more | of the first run |")
    print("|---|---:|---:|---:|---:|")
    for step in STEPS:
        built, added = first.get(step, 0.0), night.get(step, 0.0)
        ratio = f"{added / built:.1%}" if built else ""
        print(f"| {step} | {built:.2f} s | {built / first['all']:.0%} | {added:.2f} s | {ratio} |", flush=True)


def main() -> None:
    """Measure each size given on the command line; print a table for each."""
    counts = [int(argument) for argument in sys.argv[1:]] or [1000, 10_000]
    folder = use_temporary_server()
    os.environ.update(DAGSTER_HOME=str(Path(__file__).resolve().parent.parent))
    spent: defaultdict[str, float] = defaultdict(float)
    instrument(spent)
    for count in counts:
        project, new = f"benchmark-{count}", min(MAX_NIGHT, count // 10)
        corpus, evening = folder / f"{count}.jsonl", folder / f"{count}-night.jsonl"
        write_corpus(corpus, count)
        write_night(evening, count, new)
        first, merged = measure(project, corpus, spent)
        night, joined = measure(project, evening, spent)
        print_times(count, new, first, night)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"\n{merged:,} memories merged, {joined:,} in the night; peak memory of this process {peak:.0f} MB")


if __name__ == "__main__":
    main()
