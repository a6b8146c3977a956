"""Recall gate: what search would find lower is not merged, in a plan as in a run, and at each run alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from consolidation_pipeline.core.search import recall
from consolidation_pipeline.service.intake.memory_uses import report_used
from consolidation_pipeline.service.lifecycle.manual_actions import archive_manually
from consolidation_pipeline.service.runs.phases import PHASES
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.runs.run_fingerprint import find_unchanged_job
from consolidation_pipeline.service.search.hybrid_search import SearchQuery, search
from consolidation_pipeline.service.similarity import clusters, graph_nodes, recall_gate, recall_rows
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import to_uuids
from consolidation_pipeline.store.similarity.similarity_graph import Nodes
from consolidation_pipeline_tests.service.corpus import LESSONS, UNRELATED, note, reworded_notes
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Outcome, Pipeline, note_id
from consolidation_pipeline_tests.service.table_dumps import dump_knowledge

OPTIONS: dict[str, Any] = {"t_merge": 0.5, "t_suggest": 0.5, "t_pattern": 0.5}

SHORT = "The billing service calls the shipping service."
# Says what SHORT says, and much more: a search for SHORT finds OTHER first, which says something else.
LONG = (
    f"{SHORT} The support team reads its reply every quarter and writes a report for the auditors, who file it in the "
    "cabinet."
)
OTHER = "The shipping service calls the billing service."
REPEAT = f"{SHORT} Seen again today."


def notes(*texts: str) -> list[dict[str, Any]]:
    """Return notes with these texts, named by their place, and unrelated ones."""
    return [
        *(note(f"note-{at}", text) for at, text in enumerate(texts)),
        *(note(f"other-{at}", text) for at, text in enumerate(UNRELATED)),
    ]


def memories_of(names: Iterable[str]) -> set[Any]:
    """Return the ids of notes."""
    return {note_id(name) for name in names}


def test_group_that_search_finds_lower_is_refused(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    pipeline.add(notes(SHORT, LONG, OTHER))
    done = pipeline.run()
    [refused] = done.clusters.refused
    assert set(refused.memories) == memories_of(["note-0", "note-1"])
    assert (refused.query, refused.before, refused.after) == (note_id("note-0"), 1, 2)
    assert refused.above == note_id("note-2")
    assert (done.merging.created, done.merging.absorbed) == (0, 0)
    assert pipeline.value("SELECT count(*) FROM {s}.memory_clusters WHERE tier = 'merge'") == 0


def test_gate_reads_vectors_of_its_scopes_only(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Any] = []

    def load(connection: Connection, run: ProjectRun, nodes: Nodes, wanted: Any) -> Any:
        loaded.append(nodes.ids[wanted])
        run.compared = None  # else the vectors are those that the graph was built from
        return graph_nodes.load_plain_vectors(connection, run, nodes, wanted)

    monkeypatch.setattr(clusters, "load_plain_vectors", load)
    pipeline.configure_new(**OPTIONS, scope="user_id")
    of_ann = [{**row, "user_id": "ann"} for row in notes(SHORT, LONG, OTHER)]
    pipeline.add([*of_ann, note("of-bob", OTHER, user_id="bob"), note("of-all", "The canteen opens at noon.")])
    [refused] = pipeline.run().clusters.refused
    assert (set(refused.memories), refused.above) == (memories_of(["note-0", "note-1"]), note_id("note-2"))
    # A search in the scope of a user also finds what has none.
    assert [set(to_uuids(ids)) for ids in loaded] == [memories_of([*(row["id"] for row in of_ann), "of-all"])]


def test_same_text_in_another_scope_is_no_rival(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS, scope="user_id")
    of_ann = [{**row, "user_id": "ann"} for row in notes(SHORT, LONG)]
    pipeline.add([*of_ann, note("of-all", SHORT), note("again", f"{SHORT} Seen again today.")])
    done = pipeline.run()
    assert (done.clusters.refused, done.merging.created) == ([], 2)


def test_memory_that_the_run_archives_is_no_rival(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    long_ago = {"created_at": "2024-01-01T00:00:00Z", "last_accessed_at": "2024-01-01T00:00:00Z", "reused_count": 1}
    pipeline.add([*notes(SHORT, LONG), note("note-2", OTHER, **long_ago)])
    made, done = pipeline.plan(), pipeline.run()
    assert (done.clusters.refused, done.merging.created, done.archived.units) == ([], 1, 1)
    assert [{source.id for source in group.sources} for group in made.merges] == [memories_of(["note-0", "note-1"])]
    again = pipeline.run()
    assert (again.clusters.refused, again.merging.created, again.merging.extended) == ([], 0, 0)


def test_search_agrees_with_the_gate(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS, recall_gate=False)
    pipeline.add(notes(SHORT, LONG, OTHER))
    # Without the relations of a whole run, which place newer memories first.
    assert pipeline.run_phases(PHASES[: PHASES.index("merged_memories") + 1])["merged_memories"].created == 1
    found = search(pipeline.engine, SLUG, SearchQuery(SHORT, levels=[0, 1]), settings=pipeline.settings)
    assert found.results[0].id == note_id("note-2")


def test_group_that_search_finds_first_is_merged(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    pipeline.add(notes(SHORT, REPEAT))
    done = pipeline.run()
    assert (done.clusters.refused, done.merging.created) == ([], 1)


def test_plan_refuses_what_the_run_refuses(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    pipeline.add([*notes(SHORT, LONG, OTHER), *reworded_notes()])
    made = pipeline.plan()
    done = pipeline.run()
    [planned] = made.merges_refused_by_recall
    [refused] = done.clusters.refused
    assert set(planned.texts) == set(refused.memories)
    assert (planned.query, planned.above) == (refused.query, refused.above)
    assert planned.query in planned.texts
    assert planned.above_text is not None
    assert (planned.place_before, planned.place_after) == (refused.before, refused.after)
    assert made.count_totals()["merges_refused_by_recall"] == 1
    assert len(made.merges) == done.merging.created == len(LESSONS)


def test_next_run_refuses_alike_and_changes_nothing(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    pipeline.add([*notes(SHORT, LONG, OTHER, f"Note: {OTHER}"), *reworded_notes()])
    first = pipeline.run()
    before = dump_knowledge(pipeline)
    again = pipeline.run()
    assert describe(again) == describe(first)
    assert len(first.clusters.refused) == 2
    assert (again.merging.created, again.merging.extended) == (0, 0)
    assert dump_knowledge(pipeline) == before
    assert pipeline.plan().merges == []


def test_run_that_merges_beside_a_refused_group_asks_again(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    pipeline.add([*notes(SHORT, LONG, OTHER), *reworded_notes()])
    pipeline.run()
    assert find_unchanged_job(pipeline.engine, pipeline.project(), pipeline.settings) is None
    pipeline.run()
    assert find_unchanged_job(pipeline.engine, pipeline.project(), pipeline.settings) is not None


def test_repeats_that_stay_apart_leave_nothing_to_ask_again(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    pipeline.add([note("a", LESSONS[0]), note("b", LESSONS[0])])
    pipeline.run()
    pipeline.add([note("c", LESSONS[0]), note("d", LESSONS[0])])
    pipeline.roll_back(pipeline.last_group(job=pipeline.run().job_id))
    pipeline.add(notes(SHORT, LONG, OTHER))
    # The later repeats are a group of their own, whose text the merged memory of the earlier ones has.
    done = pipeline.run()
    assert (len(done.clusters.refused), done.merging.created, done.merging.extended) == (1, 0, 0)
    assert find_unchanged_job(pipeline.engine, pipeline.project(), pipeline.settings) is not None


def describe(done: Outcome) -> list[tuple[Any, ...]]:
    """Return the figures of the refused groups, without the numbers of their units."""
    return [(one.memories, one.query, one.before, one.after, one.above) for one in done.clusters.refused]


def test_refused_source_stays_out_of_merged_memory(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    pipeline.add(notes(SHORT, SHORT))
    assert pipeline.run().merging.created == 1
    pipeline.add([note("late", LONG), note("rival", OTHER)])
    done = pipeline.run()
    assert done.merging.extended == 0
    assert memories_of(["note-0", "note-1", "late"]) == set(done.clusters.refused[0].memories)
    hidden = pipeline.rows("SELECT external_id FROM {s}.task_memories WHERE is_consolidated ORDER BY 1")
    assert [name for (name,) in hidden] == ["note-0", "note-1"]


def test_group_is_merged_once_its_rival_is_gone(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    pipeline.add(notes(SHORT, LONG, OTHER))
    assert pipeline.run().merging.created == 0
    archive_manually(pipeline.engine, [note_id("note-2")], reason="outdated", changed_by="tester")
    done = pipeline.run()
    assert (done.clusters.refused, done.merging.created) == ([], 1)


def test_memory_of_another_scope_is_no_rival(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    pipeline.add([note("a", SHORT, user_id="ann"), note("b", LONG, user_id="ann"), note("c", OTHER, user_id="bob")])
    assert pipeline.run().merging.created == 1


def test_gate_can_be_switched_off(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS, recall_gate=False)
    pipeline.add(notes(SHORT, LONG, OTHER))
    assert pipeline.plan().merges_refused_by_recall == []
    done = pipeline.run()
    assert (done.clusters.refused, done.merging.created) == ([], 1)
    pipeline.roll_back(done.job_id)
    assert pipeline.value("SELECT count(*) FROM {s}.task_memories WHERE is_consolidated") == 0


def test_lost_query_of_a_reader_refuses_the_group(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.configure_new(**OPTIONS)
    rivals = [OTHER, "Shipping calls the billing service.", "The shipping service calls billing twice."]
    pipeline.add(notes(SHORT, LONG, *rivals))
    report_used(pipeline.engine, [note_id("note-0")], voter="ann", query=SHORT, settings=pipeline.settings)
    monkeypatch.setattr(recall, "SHOWN", 2)
    # Only the queries of readers count, so that they decide.
    monkeypatch.setattr(recall_rows, "_list_distinct", lambda _: [])
    [refused] = pipeline.run().clusters.refused
    assert (refused.query, refused.before, refused.after) == (None, 1, 4)


def test_gate_decides_alike_in_any_order_of_rows(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.configure_new(**OPTIONS)
    rows = [*notes(SHORT, LONG, OTHER, f"{OTHER} Seen again."), *reworded_notes()]
    pipeline.add(rows)
    expected = describe(pipeline.run())
    pipeline.clear()
    pipeline.configure_new(**OPTIONS)
    pipeline.add(rows[::-1])
    monkeypatch.setattr(recall_gate, "_BLOCK", 1)
    assert describe(pipeline.run()) == expected
    assert len(expected) == 2
