"""Memories as agents write them: lessons noted again in other words, word for word, and with another number in them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

# Notes are a month or two old, and used within the last one: nothing about them is stale.
TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)

# Long enough that a word more or less does not matter: short texts must be nearly equal to be merged.
LESSONS = (
    "Run the database migrations before deploying the web service, otherwise the health check fails on the new column "
    "and the orchestrator rolls the whole release back to the previous image.",
    "The payments worker must be restarted after rotating the Stripe webhook secret, since it caches the old one and "
    "rejects every signed event until somebody notices the growing dead letter queue.",
    "Flaky browser tests in the checkout suite come from animations; disable transitions in the test stylesheet and "
    "wait for the cart total to settle instead of sleeping between clicks.",
    "Never call the geocoding provider inside a request handler, queue it, because its latency blocks the thread pool "
    "and customers see timeouts on pages that have nothing to do with addresses.",
    "Redis evicts session keys under memory pressure, so sessions belong in their own instance with noeviction, apart "
    "from rendered fragments and rate limit counters which may disappear at any moment.",
    "Invoices are rounded per line and not per total, otherwise the sum on the PDF differs from the accounting export "
    "and the tax office asks the bookkeepers for a corrected statement.",
    "Terraform state for staging lives in its own bucket; applying with the production backend destroys the cluster "
    "together with its volumes, peering routes and certificates before anybody can cancel the plan.",
    "The nightly export times out when the reporting replica lags; check replication delay before starting it and "
    "pause the heavy dashboards of the analysts while the snapshot is being written.",
    "Feature flags are read once at start-up, therefore toggling one needs a rolling restart of the API pods, which "
    "should be announced in the operations channel during office hours.",
    "Large CSV uploads must be streamed to object storage, as reading them into memory kills the container and "
    "leaves half imported rows behind that support staff have to clean by hand.",
    "The search index needs the German analyzer for product names, or compound words are never found and shoppers "
    "believe that the catalogue lacks items which are in stock at every warehouse.",
    "Keep the OpenAPI client generated from the same commit as the server, mismatched models drop fields silently "
    "and mobile releases then show empty screens where profile details ought to appear.",
)

# Ways in which the same lesson is noted again; none adds a number, a name or a negation.
REWORDINGS = (
    "{}",
    "Note to self: {}",
    "{} Seen again today.",
    "Learned once more: {}",
    "Reminder for everybody: {} Please remember.",
)

# Pairs that differ in a fact and must not be merged without a person.
NEAR_MISSES = (
    (
        "The upload gateway closes idle connections after 30 seconds, so the client has to send keepalives.",
        "The upload gateway closes idle connections after 60 seconds, so the client has to send keepalives.",
    ),
    (
        "Image thumbnails are rendered correctly with Pillow 9.5.0 on the ARM runners in our pipeline.",
        "Image thumbnails are rendered correctly with Pillow 10.2.0 on the ARM runners in our pipeline.",
    ),
    (
        "The audit log consumer works with batched acknowledgements when the broker is clustered.",
        "The audit log consumer does not work with batched acknowledgements when the broker is clustered.",
    ),
)

UNRELATED = (
    "Design review moved to Thursdays.",
    "Customer support asked for a dark theme in the admin console.",
    "The old wiki is read only since the move.",
    "Kubernetes liveness probes and readiness probes serve different purposes.",
    "Pricing experiments are owned by the growth squad.",
    "Vendored fonts reduced the first paint noticeably.",
)


def reworded_notes(lessons: Sequence[str] = LESSONS, times: int = 3) -> list[dict[str, Any]]:
    """Each lesson noted ``times`` in other words, then once word for word but for case and the closing stop."""
    rows = []
    for number, lesson in enumerate(lessons):
        texts = [REWORDINGS[at % len(REWORDINGS)].format(lesson) for at in range(times)]
        rows += [note(f"lesson-{number}-{at}", text) for at, text in enumerate(texts)]
        if number % 3 == 0:
            rows.append(note(f"lesson-{number}-repeat", lesson.upper().rstrip(".")))
    return rows


def near_miss_notes() -> list[dict[str, Any]]:
    """Pairs that differ in one number, version or negation."""
    return [note(f"near-{at}-{side}", text) for at, pair in enumerate(NEAR_MISSES) for side, text in enumerate(pair)]


def unrelated_notes() -> list[dict[str, Any]]:
    """Memories that have nothing to do with any other."""
    return [note(f"alone-{at}", text) for at, text in enumerate(UNRELATED)]


def corpus() -> list[dict[str, Any]]:
    """All of the above: about 50 memories, 12 lessons among them."""
    return [*reworded_notes(), *near_miss_notes(), *unrelated_notes()]


def note(name: str, content: str, **fields: Any) -> dict[str, Any]:
    """One row of an import, with everything an agent may add to it; a function of its arguments alone."""
    seed = sum(name.encode())
    return {
        "id": name,
        "content": content,
        "memory_type": "learning",
        "tags": [f"tag-{seed % 5}", "all"],
        "files": [f"src/module_{seed % 7}.py"],
        "importance": (seed % 10) / 10,
        "reused_count": seed % 4,
        "created_at": (TODAY - timedelta(days=31 + seed % 28)).isoformat(),
        **({"last_accessed_at": (TODAY - timedelta(days=1 + seed % 28)).isoformat()} if seed % 2 else {}),
        **({"success": seed % 3 == 1} if seed % 3 else {}),
        **fields,
    }


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write rows as JSON Lines; returns ``path``."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
