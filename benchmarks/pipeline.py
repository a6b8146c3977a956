"""Import, embed and consolidate N memories on a fresh embedded server, and show where the time goes.

    python benchmarks/pipeline.py [N ...]        default: 1000 10000

The corpus is made here: lessons assembled from parts, noted one to five times in changed wordings, so that more than
half of the memories are near-duplicates. Phases run as Dagster assets in this process, as with `consolidation run`.
"""

from __future__ import annotations

import atexit
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

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


def write_corpus(path: Path, count: int, *, seed: int = 7) -> None:
    """Write ``count`` memories as JSON lines."""
    draw = random.Random(seed)
    rows: list[dict[str, object]] = []
    while len(rows) < count:
        parts = [draw.choice(SUBJECTS), draw.choice(FAULTS), draw.choice(FIXES)]
        ticket, module = draw.randrange(100_000), f"app/{draw.choice('abcdefgh')}{draw.randrange(400)}.py"
        detail = f" Seen in {module}, ticket {ticket}, after {draw.randrange(2, 900)} requests per minute."
        kind = draw.choice(TYPES)
        for _ in range(draw.choice((1, 1, 1, 1, 2, 2, 3, 5))):
            text = draw.choice(OPENINGS).format(*parts[:2]) + draw.choice(CLOSINGS).format(parts[2]) + detail
            rows.append({"id": len(rows), "memory_type": kind, "content": text, "tags": [module[4]], "files": [module]})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:count]))


def measure(count: int) -> dict[str, float]:
    """Seconds per step for ``count`` memories, in a project and database of their own."""
    from consolidation_pipeline.launch import run_project
    from consolidation_pipeline.service.importing import import_memories
    from consolidation_pipeline.service.runs import PHASES
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.engine import open_engine

    project = f"benchmark-{count}"
    corpus = Path(os.environ["CONSOLIDATION_DATA_DIR"]) / f"{project}.jsonl"
    write_corpus(corpus, count)
    engine = open_engine(Settings())
    began = time.perf_counter()
    import_memories(engine, project, str(corpus), format="jsonl")
    imported = time.perf_counter() - began
    outcome = run_project(project, triggered_by="benchmark")
    if outcome.status != "completed":
        raise SystemExit(f"{project} is {outcome.status}: {outcome.error}")
    total = time.perf_counter() - began
    phases = {name: float(outcome.metrics[name]["seconds"]) for name in PHASES}
    checks = total - imported - sum(phases.values())
    merged = outcome.metrics["merged_memories"]["memories_merged"]
    return {"import": imported, **phases, "checks and Dagster": checks, "all": total, "memories merged": merged}


def main() -> None:
    """Measure each size given on the command line and print one table."""
    counts = [int(argument) for argument in sys.argv[1:]] or [1000, 10_000]
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # runs after the embedded server has stopped
    os.environ.update(CONSOLIDATION_DATA_DIR=folder, DAGSTER_HOME=str(Path(__file__).resolve().parent.parent))
    os.environ.pop("CONSOLIDATION_DATABASE_URL", None)
    results = {count: measure(count) for count in counts}
    print("| step | " + " | ".join(f"{count:,} memories" for count in counts) + " |")
    print("|---|" + "---:|" * len(counts))
    for step in results[counts[0]]:
        shown = "{:.0f}" if step == "memories merged" else "{:.2f} s"
        print(f"| {step} | " + " | ".join(shown.format(results[count][step]) for count in counts) + " |")
    print(f"\npeak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
