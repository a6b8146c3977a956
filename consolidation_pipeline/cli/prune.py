"""``consolidation prune``: removes changes, events and votes that are past their retention."""

from __future__ import annotations

from datetime import UTC, datetime

from consolidation_pipeline.cli.cli_context import get_actor, open_store
from consolidation_pipeline.cli.output import JsonFlag, print_json, print_note, show_progress
from consolidation_pipeline.core.text.counted_nouns import counted


def prune(as_json: JsonFlag = False) -> None:
    """Remove changes of the ledger, events and votes that are past their retention.

    The weekly schedule does the same. Memories do not change; history and `rollback` end at `audit_days`.
    """
    from consolidation_pipeline.service.undo.ledger_retention import remove_expired_changes
    from consolidation_pipeline.service.webhooks.event_delivery import remove_old_events

    engine, settings = open_store()
    now = datetime.now(UTC)
    with show_progress("pruning", as_json=as_json):
        done = remove_expired_changes(engine, settings=settings, now=now, changed_by=get_actor())
        events = remove_old_events(engine, now=now)
    if as_json:
        removals = {one.project: dict(one.summary) for one in done.removals}
        print_json({"changes": done.changes, "events": events, "removals": removals, "busy": list(done.busy)})
        return
    print(f"removed: {counted(done.changes, 'change')} of {counted(len(done.removals), 'project')}, {events:,} events")
    if done.busy:
        print_note(f"skipped, as a run or rollback holds them: {', '.join(done.busy)}")
