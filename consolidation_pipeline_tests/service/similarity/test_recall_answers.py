"""Answers of the recall gate that are kept: runs with them and without them refuse the same groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from consolidation_pipeline.service.intake.memory_uses import report_used
from consolidation_pipeline.service.lifecycle.manual_actions import archive_manually
from consolidation_pipeline.service.lifecycle.memory_deletion import delete_memories
from consolidation_pipeline.service.lifecycle.memory_edits import edit_memory
from consolidation_pipeline.service.similarity import recall_answers, recall_gate, recall_rows
from consolidation_pipeline.service.similarity.clusters import form_clusters
from consolidation_pipeline.service.similarity.embedding import embed_memories
from consolidation_pipeline.service.similarity.similarity_graph import update_similarity_graph
from consolidation_pipeline_tests.service.corpus import UNRELATED, note, reworded_notes
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, note_id

OPTIONS: dict[str, Any] = {"t_merge": 0.5, "t_suggest": 0.5, "t_pattern": 0.5}
SERVICES = ("billing", "parcel", "mail", "tax")
PARTNERS = ("shipping", "customs", "directory", "ledger")


def write_texts(at: int) -> tuple[str, str, str]:
    """Return a short text, a long one that says it too, and one of other claims in the words of the short one."""
    one, other = SERVICES[at], PARTNERS[at]
    short = f"The {one} service calls the {other} service."
    more = (
        "The support team reads its reply every quarter and writes a report for the auditors, who file it in the "
        "cabinet."
    )
    return short, f"{short} {more}", f"The {other} service calls the {one} service."


def add_all(pipeline: Pipeline, **columns: Any) -> None:
    """Add groups that the gate refuses, and others."""
    rows = [
        note(f"{SERVICES[at]}-{kind}", text, **columns)
        for at in range(len(SERVICES))
        for kind, text in zip(("short", "long", "other"), write_texts(at), strict=True)
    ]
    pipeline.add([*rows, *(note(f"other-{at}", text, **columns) for at, text in enumerate(UNRELATED))])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of queries that each round asked. Few memories are candidates."""
    numbers: list[int] = []
    ask = recall_gate._find_candidates

    def watch(rows: Any, queries: Any, chosen: Any, *others: Any) -> None:
        numbers.append(len(chosen))
        ask(rows, queries, chosen, *others)

    monkeypatch.setattr(recall_gate, "_find_candidates", watch)
    monkeypatch.setattr(recall_gate, "MIN_CANDIDATES", 3)
    return numbers


def form(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    """Compare new memories and form the groups; return the refused ones."""
    with pipeline.open() as run:
        embed_memories(run)
        update_similarity_graph(run)
        refused = form_clusters(run).refused
    return [(one.memories, one.query, one.before, one.after, one.above) for one in refused]


def form_without_answers(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    pipeline.write("DELETE FROM {s}.recall_answers")
    pipeline.write("DELETE FROM {s}.grouped_scopes")
    return form(pipeline)


def check_alike(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    """Form the groups with the kept answers and without them, and return those that are refused both times."""
    refused = form(pipeline)
    assert form_without_answers(pipeline) == refused
    return refused


def test_unchanged_groups_are_not_asked_again(pipeline: Pipeline, asked: list[int]) -> None:
    pipeline.configure_new(**OPTIONS)
    add_all(pipeline)
    refused = form(pipeline)
    assert len(refused) == len(SERVICES)
    assert asked[0] >= len(SERVICES)
    asked.clear()
    pipeline.write("UPDATE {s}.recall_answers SET settled = NULL")
    assert form(pipeline) == refused
    assert asked
    assert sum(asked) == 0


def test_texts_of_refused_groups_are_merged_once(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    merged: list[int] = []
    merge = recall_rows.merge_all

    def watch(groups: Any, **options: Any) -> Any:
        merged.append(len(groups))
        return merge(groups, **options)

    monkeypatch.setattr(recall_rows, "merge_all", watch)
    pipeline.configure_new(**OPTIONS)
    add_all(pipeline)
    refused = form(pipeline)
    assert sum(merged) >= len(SERVICES)
    merged.clear()
    pipeline.write("UPDATE {s}.recall_answers SET settled = NULL")
    assert form(pipeline) == refused
    assert sum(merged) == 0


def test_nothing_is_grouped_again_if_nothing_changed(pipeline: Pipeline, asked: list[int]) -> None:
    pipeline.configure_new(**OPTIONS)
    add_all(pipeline)
    refused = form(pipeline)
    form(pipeline)
    groups = pipeline.rows("SELECT * FROM {s}.memory_clusters ORDER BY tier, cluster_key, member_id")
    asked.clear()
    assert form(pipeline) == form(pipeline) == refused
    assert asked == []
    assert pipeline.rows("SELECT * FROM {s}.memory_clusters ORDER BY tier, cluster_key, member_id") == groups
    assert form_without_answers(pipeline) == refused


def test_groups_are_asked_for_again_if_another_scope_changed(pipeline: Pipeline, asked: list[int]) -> None:
    pipeline.configure_new(**OPTIONS, scope="user_id")
    add_all(pipeline, user_id="ann")
    pipeline.add([note("of-bob", "The canteen opens at noon.", user_id="bob")])
    refused = form(pipeline)
    form(pipeline)
    pipeline.add([note("more", "The canteen closes at six.", user_id="bob")])
    asked.clear()
    assert form(pipeline) == refused
    assert asked
    assert sum(asked) == 0
    pipeline.add([note("all", f"{write_texts(0)[2]} Seen by all.")])
    asked.clear()
    check_alike(pipeline)
    assert sum(asked) > 0


def test_new_memory_near_a_group_asks_for_it_alone(pipeline: Pipeline, asked: list[int]) -> None:
    pipeline.configure_new(**OPTIONS)
    add_all(pipeline)
    form(pipeline)
    asked.clear()
    pipeline.add([note("near", "The tax service and the ledger service are called by the audit.")])
    refused = form(pipeline)
    assert len(refused) == len(SERVICES)
    assert 0 < asked[0] <= 2
    assert form_without_answers(pipeline) == refused


CHANGES: dict[str, Callable[[Pipeline], object]] = {
    "added": lambda one: one.add([note("again", f"{write_texts(0)[2]} Seen again."), *reworded_notes()]),
    "archived": lambda one: archive_manually(
        one.engine, [note_id("mail-other")], reason="outdated", changed_by="tester"
    ),
    "deleted": lambda one: delete_memories(one.engine, [note_id("tax-other")], changed_by="tester"),
    "edited": lambda one: edit_memory(
        one.engine, note_id("parcel-other"), {"content": "The cat sleeps."}, changed_by="tester"
    ),
    "respelled": lambda one: edit_memory(
        one.engine, note_id("tax-other"), {"content": write_texts(3)[2].upper()}, changed_by="tester"
    ),
    "used": lambda one: report_used(
        one.engine, [note_id("mail-short")], voter="ann", query=write_texts(2)[0], settings=one.settings
    ),
    "calibrated": lambda one: one.configure(t_merge=0.6),
}


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("change", CHANGES)
def test_kept_answers_decide_alike_after_a_change(pipeline: Pipeline, change: str) -> None:
    pipeline.configure_new(**OPTIONS)
    add_all(pipeline)
    form(pipeline)
    form(pipeline)
    CHANGES[change](pipeline)
    check_alike(pipeline)


@pytest.mark.usefixtures("asked")
def test_kept_answers_decide_alike_after_merges_and_their_undo(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    add_all(pipeline)
    pipeline.run()
    pipeline.add(reworded_notes())
    done = pipeline.run()
    assert done.merging.created > 0
    check_alike(pipeline)
    pipeline.roll_back(done.job_id)
    assert check_alike(pipeline)


def test_kept_answers_hold_within_a_scope(pipeline: Pipeline, asked: list[int]) -> None:
    pipeline.configure_new(**OPTIONS, scope="user_id")
    add_all(pipeline, user_id="ann")
    refused = form(pipeline)
    asked.clear()
    pipeline.add([note("of-bob", write_texts(1)[2], user_id="bob")])
    assert form(pipeline) == refused
    assert sum(asked) == 0
    pipeline.add([note("of-all", f"{write_texts(1)[2]} Seen again.")])
    form(pipeline)
    assert sum(asked) > 0
    check_alike(pipeline)


def test_another_program_asks_again(pipeline: Pipeline, asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.configure_new(**OPTIONS)
    add_all(pipeline)
    refused = form(pipeline)
    asked.clear()
    monkeypatch.setattr(recall_answers, "describe_code", lambda: {"digest": "another"})
    assert form(pipeline) == refused
    assert sum(asked) > 0
