"""Audit retention: removes old jobs as a whole, records the removal and changes nothing else."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from consolidation_pipeline.errors import ConflictError, NotFoundError
from consolidation_pipeline.service.undo.history import list_change_groups, list_ledger
from consolidation_pipeline.service.undo.ledger_retention import RetentionResult, remove_expired_changes
from consolidation_pipeline.store.checks.merged_memories import EVERY_MERGE_IS_IN_THE_LEDGER
from consolidation_pipeline.store.database.schema import consolidated_memories, task_memories
from consolidation_pipeline.store.jobs.project_lock import project_lock
from consolidation_pipeline.store.ledger.cannot_link import load_cannot_links
from consolidation_pipeline.store.ledger.ledger_writer import Author, Change, insert_rows, update_rows
from consolidation_pipeline.store.projects import delete_project
from consolidation_pipeline_tests.service.corpus import LESSONS, note
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline
from consolidation_pipeline_tests.service.table_dumps import count_rows, dump_knowledge
from consolidation_pipeline_tests.service.undo.test_rollback import age_changes
from consolidation_pipeline_tests.store.sample_rows import merged_values


class AuditedProject:
    """Project with four memories; edits, merges and ages its ledger."""

    def __init__(self, pipeline: Pipeline, slug: str = SLUG) -> None:
        self.pipeline, self.slug = pipeline, slug
        pipeline.add([note(name, LESSONS[at]) for at, name in enumerate("abcd")], slug)
        self.project = pipeline.project(slug)
        query = "SELECT id FROM {s}.task_memories WHERE project_id = :p ORDER BY id"
        self.raw = [row.id for row in pipeline.rows(query, p=self.project.id)]

    def edit(self, *at: int, job: UUID | None = None) -> UUID:
        """Edit memories in one group; return the group."""
        group = uuid4()
        versions = dict(self.pipeline.rows("SELECT id, version FROM {s}.task_memories"))
        changes = [Change(self.raw[n], group, {"tags": [str(group)]}, versions[self.raw[n]]) for n in at]
        with self.pipeline.engine.begin() as connection:
            author = Author(self.project.id, job, "tester")
            update_rows(connection, author, task_memories, changes, operation="edit")
        return group

    def merge(self, *at: int, job: UUID | None = None) -> UUID:
        """Insert a merged memory whose sources stay visible; return the group."""
        change = Change(uuid4(), uuid4(), merged_values(f"merged of {at}", [self.raw[n] for n in at]))
        with self.pipeline.engine.begin() as connection:
            author = Author(self.project.id, job, "tester")
            insert_rows(connection, author, consolidated_memories, [change], operation="merge")
        return change.group_id

    def age(self, days: float) -> None:
        """Make all changes so far older by ``days``."""
        age_changes(self.pipeline, timedelta(days=days))

    def kept(self) -> int:
        """Count changes of the project in the ledger, without records of removals."""
        query = "SELECT count(*) FROM {s}.consolidation_changes WHERE project_id = :p AND operation <> 'retention'"
        return int(self.pipeline.value(query, p=self.project.id))

    def records(self) -> list[Any]:
        query = "SELECT * FROM {s}.consolidation_changes WHERE project_id = :p AND operation = 'retention' ORDER BY seq"
        return self.pipeline.rows(query, p=self.project.id)


@pytest.fixture
def audit(pipeline: Pipeline) -> AuditedProject:
    return AuditedProject(pipeline)


def remove_expired(pipeline: Pipeline) -> RetentionResult:
    return remove_expired_changes(pipeline.engine, settings=pipeline.settings, now=datetime.now(UTC), changed_by="me")


def test_retention_removes_only_old_changes(pipeline: Pipeline, audit: AuditedProject) -> None:
    audit.edit(0)
    audit.edit(1, 2)
    audit.age(2)
    audit.edit(3)
    audit.age(89)
    before = dump_knowledge(pipeline)
    assert remove_expired(pipeline).changes == 3
    assert audit.kept() == 1
    assert dump_knowledge(pipeline) == before
    again = remove_expired(pipeline)
    assert (again.changes, list(again.removals), len(audit.records())) == (0, [], 1)


@pytest.mark.parametrize(("shift", "gone"), [(timedelta(minutes=-1), 0), (timedelta(seconds=1), 1)])
def test_retention_counts_ninety_days_exactly(
    pipeline: Pipeline, audit: AuditedProject, shift: timedelta, gone: int
) -> None:
    audit.edit(0)
    age_changes(pipeline, timedelta(days=90) + shift)
    assert remove_expired(pipeline).changes == gone


def test_retention_ignores_clock_ahead_of_server(pipeline: Pipeline, audit: AuditedProject) -> None:
    audit.edit(0)
    audit.age(89)
    ahead = datetime.now(UTC) + timedelta(days=30)
    assert remove_expired_changes(pipeline.engine, settings=pipeline.settings, now=ahead).changes == 0


@pytest.mark.parametrize("options", [{"audit_days": 200}, {"rollback_days": 200}])
def test_retention_days_are_project_options(pipeline: Pipeline, options: dict[str, int]) -> None:
    long, short = AuditedProject(pipeline, "long"), AuditedProject(pipeline, "short")
    pipeline.configure("long", **options)
    long.edit(0)
    short.edit(0)
    short.age(150)
    assert [removal.project for removal in remove_expired(pipeline).removals] == ["short"]
    long.age(51)
    assert [removal.project for removal in remove_expired(pipeline).removals] == ["long"]
    assert "older than 200 days" in long.records()[0].reason


@pytest.mark.breaks_rules
def test_retention_record_summarizes_removed_changes(pipeline: Pipeline, audit: AuditedProject) -> None:
    group = audit.edit(0, 1)
    audit.merge(2, 3)
    pipeline.roll_back(group)
    audit.age(100)
    rows = pipeline.rows(
        "SELECT seq, changed_at, to_jsonb(c)::text AS image FROM {s}.consolidation_changes c ORDER BY seq"
    )
    digests = (hashlib.sha256(row.image.encode()).digest() for row in rows)
    (removal,) = remove_expired(pipeline).removals
    (record,) = audit.records()
    assert (removal.project, removal.record, removal.summary) == (SLUG, record.id, record.previous_state)
    assert (record.entity_type, record.entity_id) == ("consolidation_changes", audit.project.id)
    assert (record.new_state, record.changed_by, record.job_id) == (None, "me", None)
    summary = record.previous_state
    instants = [datetime.fromisoformat(summary.pop(name)) for name in ("from", "until")]
    assert instants == [rows[0].changed_at, rows[-1].changed_at]
    assert summary == {
        "changes": 5,
        "first_seq": rows[0].seq,
        "last_seq": rows[-1].seq,
        "operations": {"edit": 2, "merge": 1, "rollback": 2},
        "sha256": hashlib.sha256(b"".join(digests)).hexdigest(),
    }
    day = f"{rows[0].changed_at:%Y-%m-%d}"
    assert record.reason == f"removed 5 changes of {day} to {day}, older than 90 days"


def test_retention_records_are_kept(pipeline: Pipeline, audit: AuditedProject) -> None:
    for _ in range(3):
        audit.edit(0)
        audit.age(100)
        remove_expired(pipeline)
    assert [record.previous_state["changes"] for record in audit.records()] == [1, 1, 1]


def test_retention_removes_whole_jobs_only(pipeline: Pipeline, audit: AuditedProject) -> None:
    job = uuid4()
    audit.edit(0, job=job)
    audit.age(50)
    audit.edit(1, job=job)
    audit.age(50)
    assert remove_expired(pipeline).changes == 0
    audit.age(50)
    assert remove_expired(pipeline).changes == 2


def test_retention_keeps_changes_with_recent_rollback(pipeline: Pipeline, audit: AuditedProject) -> None:
    pipeline.configure(rollback_days=80)
    job, other = uuid4(), uuid4()
    first = audit.edit(0, job=job)
    audit.edit(1, job=job)
    second = audit.edit(2, job=other)
    audit.edit(3)
    audit.age(50)
    undone = pipeline.roll_back(first)
    pipeline.roll_back(second)
    audit.age(30)
    pipeline.roll_back(undone.rollback_id)
    audit.age(70)
    # The redo keeps the first job; the second job, its rollback and the manual edit are old.
    assert remove_expired(pipeline).changes == 3
    assert audit.kept() == 4
    groups = list_change_groups(pipeline.engine, SLUG, limit=9)
    assert {row["group_id"]: row["rolled_back"] for row in groups}[first] is False
    audit.age(30)
    assert remove_expired(pipeline).changes == 4


def test_retention_keeps_undone_merge_for_cannot_link(pipeline: Pipeline, audit: AuditedProject) -> None:
    job = uuid4()
    undone = audit.merge(0, 1, job=job)
    audit.edit(2, job=job)
    forgotten = uuid4()
    audit.merge(2, 3, job=forgotten)
    pipeline.roll_back(pipeline.roll_back(pipeline.roll_back(undone).rollback_id).rollback_id)
    pipeline.roll_back(forgotten)
    audit.age(400)
    with pipeline.engine.connect() as connection:
        before = load_cannot_links(connection, audit.project.id)
    assert len(before) == 2
    assert remove_expired(pipeline).changes == 3
    with pipeline.engine.connect() as connection:
        after = load_cannot_links(connection, audit.project.id)
    assert after.ids.tolist() == before.ids.tolist()


def test_retention_skips_busy_project(pipeline: Pipeline) -> None:
    busy, free = AuditedProject(pipeline, "busy"), AuditedProject(pipeline, "free")
    busy.edit(0)
    free.edit(0)
    free.age(100)
    with project_lock(pipeline.engine, busy.project.id, "busy", wait_seconds=0):
        done = remove_expired(pipeline)
    assert ([removal.project for removal in done.removals], list(done.busy)) == (["free"], ["busy"])
    assert (busy.kept(), free.kept()) == (1, 0)
    assert [removal.project for removal in remove_expired(pipeline).removals] == ["busy"]


def test_ledger_of_deleted_project_expires_by_defaults(pipeline: Pipeline, audit: AuditedProject) -> None:
    pipeline.configure(audit_days=365)
    pipeline.roll_back(audit.merge(0, 1))
    with pipeline.engine.begin() as connection:
        delete_project(connection, audit.project)
    assert audit.kept() == 2
    assert remove_expired(pipeline).changes == 0
    audit.age(91)
    (removal,) = remove_expired(pipeline).removals
    assert removal.project == f"deleted project {audit.project.id}"
    assert (audit.kept(), len(audit.records())) == (0, 1)
    assert remove_expired(pipeline).removals == []


def test_retention_record_cannot_be_rolled_back(pipeline: Pipeline, audit: AuditedProject) -> None:
    group = audit.edit(0)
    audit.age(100)
    remove_expired(pipeline)
    (record,) = audit.records()
    before = count_rows(pipeline)
    for target in (record.id, record.group_id):
        with pytest.raises(ConflictError, match=f"{target} records what audit retention removed"):
            pipeline.roll_back(target)
    with pytest.raises(NotFoundError, match=str(group)):
        pipeline.roll_back(group)
    assert count_rows(pipeline) == before


def test_history_lists_retention_records(pipeline: Pipeline, audit: AuditedProject) -> None:
    audit.edit(0, 1)
    audit.age(100)
    remove_expired(pipeline)
    (group,) = list_change_groups(pipeline.engine, SLUG, limit=9)
    assert (group["operation"], group["changes"], group["rolled_back"]) == ("retention", 1, False)
    assert group["reason"].startswith("removed 2 changes of ")
    listed = list_ledger(pipeline.engine, SLUG, limit=9, operation="retention")
    assert (listed["total"], listed["changes"][0]["previous_state"]["operations"]) == (1, {"edit": 2})


def test_retention_leaves_ledger_invariants_valid(pipeline: Pipeline) -> None:
    pipeline.add([note("a", LESSONS[0]), note("b", f"Note to self: {LESSONS[0]}")])
    pipeline.run()
    age = "UPDATE {s}.consolidated_memories SET updated_at = updated_at - interval '91 days'"
    pipeline.write(age)
    age_changes(pipeline, timedelta(days=91))
    assert remove_expired(pipeline).changes == 3
    with pipeline.engine.connect() as connection:
        assert EVERY_MERGE_IS_IN_THE_LEDGER.find(connection, pipeline.project().id) == []
    # A changed memory continues from its version, although the ledger has no earlier change.
    pipeline.add([note("c", f"{LESSONS[0]} Seen again today.")])
    done = pipeline.run()
    assert done.merging.extended == 1
    assert pipeline.value("SELECT version FROM {s}.consolidated_memories") == 2
    pipeline.roll_back(done.job_id)
    assert pipeline.value("SELECT version FROM {s}.consolidated_memories") == 1
