"""The ledger alone rebuilds every ledgered table at any time."""

from __future__ import annotations

from uuid import UUID

from consolidation_pipeline.service.lifecycle.associations import associate_memories
from consolidation_pipeline.service.lifecycle.manual_actions import archive_manually, pin_memories, restore_memories
from consolidation_pipeline.service.lifecycle.relations import decide_relations
from consolidation_pipeline.service.runs.phases import JOB_PHASES
from consolidation_pipeline_tests.service.corpus import LESSONS, STALE, UNRELATED, near_miss_notes, note, reworded_notes
from consolidation_pipeline_tests.service.ledger_replay import Replay, State, find_differences, load_state
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, run_phases


class Snapshots:
    """States of the tables: as imported, and after each step with the ledger's last seq."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.imported: State = {}
        self.taken: list[tuple[int, State]] = []

    def add(self, *rows: dict[str, object]) -> None:
        self.pipeline.add(rows)
        self.imported = {**load_state(self.pipeline), **self.imported}

    def take(self) -> None:
        seq = self.pipeline.value("SELECT coalesce(max(seq), 0) FROM {s}.consolidation_changes")
        self.taken.append((seq, load_state(self.pipeline)))


def apply_every_operation(album: Snapshots) -> None:
    """Apply every kind of change, one after the other, and record the state after each."""
    pipeline, engine = album.pipeline, album.pipeline.engine
    old = [note(f"old-{n}", text, **STALE) for n, text in enumerate(UNRELATED)]
    album.add(*reworded_notes(LESSONS[:4]), *near_miss_notes(), *old)
    album.take()
    first = pipeline.run()
    album.take()
    with pipeline.open(job="summarize", planned=JOB_PHASES["summarize"]) as summarizing:
        run_phases(summarizing, summarizing.planned)
    album.take()
    with pipeline.open(job="associate", planned=("associations",)) as run, run.phase("associations"):
        associate_memories(run)
    album.take()
    relations = [row.id for row in pipeline.rows("SELECT id FROM {s}.memory_relations ORDER BY id LIMIT 3")]
    decide_relations(engine, relations, "rejected", changed_by="tester")
    album.take()
    merged = [row.id for row in pipeline.rows("SELECT id FROM {s}.consolidated_memories ORDER BY id")]
    pin_memories(engine, merged[:1], pinned=True, changed_by="tester")
    archive_manually(engine, merged[1:3], changed_by="tester")
    album.take()
    restore_memories(engine, merged[1:2], changed_by="tester")
    album.take()
    album.add(*(note(f"late-{n}", f"{LESSONS[n]} Seen by the night shift too.") for n in range(4)))
    pipeline.configure(t_merge=0.8, t_suggest=0.7, t_pattern=0.6)
    second = pipeline.run()
    album.take()
    undone = [
        pipeline.roll_back(job, cascade=True).rollback_id for job in (second.job_id, summarizing.job_id, first.job_id)
    ]
    album.take()
    for rollback_id in reversed(undone):
        pipeline.roll_back(rollback_id)
    album.take()


def test_ledger_rebuilds_tables_at_any_time(pipeline: Pipeline) -> None:
    album = Snapshots(pipeline)
    apply_every_operation(album)
    kinds = {row[0] for row in pipeline.rows("SELECT DISTINCT operation FROM {s}.consolidation_changes")}
    assert kinds == {"merge", "summarize", "archive", "restore", "edit", "associate", "review", "rollback"}
    assert len({seq for seq, _ in album.taken}) == len(album.taken)
    for seq, state in album.taken:
        replay = Replay()
        replay.add_imported({key: row for key, row in album.imported.items() if key in state})
        replay.apply_changes(pipeline, until=seq)
        assert find_differences(state, replay.state) == {}


def test_replay_detects_unledgered_changes(pipeline: Pipeline) -> None:
    album = Snapshots(pipeline)
    album.add(*reworded_notes(LESSONS[:1]))
    pipeline.run()
    merged = pipeline.value("SELECT id FROM {s}.consolidated_memories")
    pipeline.write("UPDATE {s}.consolidated_memories SET importance = importance + 1")
    pipeline.write("DELETE FROM {s}.memory_files WHERE owner_id = :id", id=merged)
    replay = Replay()
    replay.add_imported(album.imported)
    replay.apply_changes(pipeline)
    [(key, columns)] = find_differences(load_state(pipeline), replay.state).items()
    assert key == ("consolidated_memories", str(merged))
    assert set(columns[0]) == {"importance", "files"}


def merge_groups(pipeline: Pipeline) -> list[UUID]:
    query = "SELECT DISTINCT group_id FROM {s}.consolidation_changes WHERE operation = 'merge' ORDER BY 1"
    return [row.group_id for row in pipeline.rows(query)]


def test_replay_finds_row_before_change(pipeline: Pipeline) -> None:
    album = Snapshots(pipeline)
    album.add(*reworded_notes(LESSONS[:1]))
    pipeline.run()
    [group] = merge_groups(pipeline)
    pipeline.roll_back(group)
    replay = Replay()
    replay.add_imported(album.imported)
    replay.apply_changes(pipeline)
    changes = pipeline.rows("SELECT seq, entity_type, entity_id::text AS id, operation FROM {s}.consolidation_changes")
    for change in changes:
        before = replay.before((change.entity_type, change.id), change.seq)
        raw = change.entity_type == "task_memories"
        assert (before is None) == (not raw and change.operation == "merge")
        assert before is None or (before["version"] == 1) == (not raw or change.operation == "merge")
