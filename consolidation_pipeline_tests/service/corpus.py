"""Sample memories: lessons noted again in other words, repeats, near misses and topics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

# Notes are one or two months old and used within the last month: none is stale.
TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)

# Fields of a note used so long ago that it is archived.
_LONG_AGO = (TODAY - timedelta(days=400)).isoformat()
STALE = {"created_at": _LONG_AGO, "last_accessed_at": _LONG_AGO, "reused_count": 1}

# Long texts: short ones must be nearly equal to be merged.
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

# Rewordings of a lesson; none adds a number, a name or a negation.
REWORDINGS = (
    "{}",
    "Note to self: {}",
    "{} Seen again today.",
    "Learned once more: {}",
    "Reminder for everybody: {} Please remember.",
)

# Pairs that differ in a fact: a veto keeps them from merging.
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

# Two topics: their notes form patterns, and none is merged. FIFTH and REPEATED are on the first one.
WEBHOOKS = (
    "Verify the signature of a webhook before you read its body.",
    "Never log the body of a webhook, because its signature is a secret.",
    "A webhook with an old signature must be refused by the endpoint.",
    "Webhook signatures cover the raw body, so parse the webhook only after the check.",
)
MIGRATIONS = (
    "Run every database migration with a lock timeout.",
    "A database migration that rewrites a table locks it for all readers.",
    "Split a long database migration into steps that lock the table briefly.",
)
FIFTH = "Parse the raw body of a webhook only when the check of its signature has passed."
REPEATED = f"Note to self: {WEBHOOKS[0]}"


def reworded_notes(lessons: Sequence[str] = LESSONS, times: int = 3) -> list[dict[str, Any]]:
    """Return each lesson in ``times`` wordings, every third also repeated in upper case without its full stop."""
    rows = []
    for number, lesson in enumerate(lessons):
        texts = [REWORDINGS[at % len(REWORDINGS)].format(lesson) for at in range(times)]
        rows += [note(f"lesson-{number}-{at}", text) for at, text in enumerate(texts)]
        if number % 3 == 0:
            rows.append(note(f"lesson-{number}-repeat", lesson.upper().rstrip(".")))
    return rows


def near_miss_notes() -> list[dict[str, Any]]:
    """Return pairs that differ in one number, version or negation."""
    return [note(f"near-{at}-{side}", text) for at, pair in enumerate(NEAR_MISSES) for side, text in enumerate(pair)]


def unrelated_notes() -> list[dict[str, Any]]:
    """Return memories that are similar to no other."""
    return [note(f"alone-{at}", text) for at, text in enumerate(UNRELATED)]


def corpus() -> list[dict[str, Any]]:
    """Return lessons, near misses and unrelated notes: about 50 memories."""
    return [*reworded_notes(), *near_miss_notes(), *unrelated_notes()]


def topic_notes(name: str, texts: tuple[str, ...], **fields: Any) -> list[dict[str, Any]]:
    """Return notes on one topic, each of a session of its own."""
    return [note(f"{name}-{at}", text, session_id=f"{name}-{at}", **fields) for at, text in enumerate(texts)]


def note(name: str, content: str, **fields: Any) -> dict[str, Any]:
    """Return a row of an import with all optional fields; equal arguments give equal rows."""
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
