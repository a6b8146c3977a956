"""DataFrames of a project that was consolidated and that people have decided on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from pydantic import SecretStr

from consolidation_pipeline import frames
from consolidation_pipeline.errors import NotFoundError
from consolidation_pipeline.service.admin.costs import describe_costs
from consolidation_pipeline.service.lifecycle.manual_actions import archive_manually
from consolidation_pipeline.service.review.suggestion_decisions import approve_suggestion, reject_suggestion
from consolidation_pipeline.service.review.suggestions import list_suggestions
from consolidation_pipeline.settings import PROJECT_ROOT, Settings
from consolidation_pipeline.store.admin import frames as store
from consolidation_pipeline.store.database.engine import Engine, connect_engine, with_driver
from consolidation_pipeline_tests.database_pool import DatabasePool
from consolidation_pipeline_tests.openai_server import openai_server, reply_with_json
from consolidation_pipeline_tests.service.corpus import LESSONS, NEAR_MISSES, note, reworded_notes
from consolidation_pipeline_tests.service.model_replies import suggestion_reply
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline
from consolidation_pipeline_tests.service.review.test_suggestion_proposals import OPTIONS, propose

STALE = note("stale", "The old wiki is read only.")
EMPTY, FUTURE = "empty", "future"
PAGE = PROJECT_ROOT / "docs" / "frames.md"
OPTIONAL: dict[str, dict[str, Any]] = {"memories": {"vectors": True}, "changes": {"images": True}}


@dataclass(frozen=True)
class Reviewed:
    """A project after a run: of three suggestions one was approved, one rejected, one approved and rolled back."""

    pipeline: Pipeline
    approved: UUID
    rejected: UUID
    reopened: UUID
    archived: UUID

    @property
    def engine(self) -> Engine:
        return self.pipeline.engine


@pytest.fixture(scope="module")
def reviewed(databases: DatabasePool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reviewed]:
    """Reviewed project that the tests only read."""
    folder = tmp_path_factory.mktemp("frames")
    with (
        databases.database() as url,
        openai_server(reply_with_json(suggestion_reply)) as provider,
        pytest.MonkeyPatch.context() as patch,
    ):
        settings = Settings(database_url=SecretStr(url), data_dir=folder)
        patch.setenv("OPENAI_API_BASE", provider.api_base)
        patch.setenv("OPENAI_BASE_URL", provider.api_base)
        patch.setenv("OPENAI_API_KEY", "sk-test")
        yield _review(Pipeline(connect_engine(with_driver(url, "psycopg")), settings, folder))


def _review(pipeline: Pipeline) -> Reviewed:
    pipeline.configure_new(**OPTIONS)
    near = [note(f"{n}-{side}", text) for n, pair in enumerate(NEAR_MISSES) for side, text in enumerate(pair)]
    other_type = note("other-type", f"Note to self: {NEAR_MISSES[0][0]}", memory_type="warning")
    pipeline.add([*near, other_type, *reworded_notes(LESSONS[:3]), STALE])
    propose(pipeline)
    approved, rejected, reopened = (shown.id for shown in list_suggestions(pipeline.engine, SLUG).suggestions)
    decision: dict[str, Any] = {"decided_by": "anna", "settings": pipeline.settings}
    approve_suggestion(pipeline.engine, approved, **decision)
    reject_suggestion(pipeline.engine, rejected, note="two runners", decided_by="bert")
    pipeline.roll_back(approve_suggestion(pipeline.engine, reopened, **decision).group_id)
    archived = pipeline.value("SELECT id FROM {s}.task_memories WHERE external_id = 'stale'")
    archive_manually(pipeline.engine, [archived], reason="migrated", changed_by="anna")
    pipeline.write(
        "UPDATE {s}.llm_calls SET created_at = created_at - interval '1 day' "
        "WHERE id = (SELECT id FROM {s}.llm_calls ORDER BY id LIMIT 1)"
    )
    pipeline.configure_new(EMPTY)
    pipeline.add([note("far", "A long time from now.", created_at="9998-12-31T23:59:59.000001Z")], FUTURE)
    return Reviewed(pipeline, approved, rejected, reopened, archived)


def load_frame(name: str, reviewed: Reviewed, slug: str = SLUG, **options: Any) -> pd.DataFrame:
    frame: pd.DataFrame = getattr(frames, name)(slug, engine=reviewed.engine, **options)
    return frame


@pytest.mark.parametrize("name", frames.__all__)
def test_empty_frame_has_same_dtypes(reviewed: Reviewed, name: str) -> None:
    for options in ({}, OPTIONAL.get(name, {})):
        full, empty = (load_frame(name, reviewed, slug, **options) for slug in (SLUG, EMPTY))
        assert (len(full) > 0, len(empty)) == (True, 0)
        pd.testing.assert_series_equal(full.dtypes, empty.dtypes)
    float32 = full.dtypes.astype(str).loc[lambda kinds: kinds == "float32"]
    assert float32.index.tolist() == (["similarity"] if name == "pairs" else [])


@pytest.mark.parametrize("name", frames.__all__)
def test_frames_refuse_unknown_project(reviewed: Reviewed, name: str) -> None:
    with pytest.raises(NotFoundError, match="there is no project 'nowhere'; projects: empty, future, notes"):
        load_frame(name, reviewed, "nowhere")


@pytest.mark.parametrize("name", frames.__all__)
def test_batched_rows_form_one_frame(reviewed: Reviewed, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = load_frame(name, reviewed)
    monkeypatch.setattr(store, "BATCH_ROWS", 2)
    pd.testing.assert_frame_equal(load_frame(name, reviewed), whole)


def test_memories_frame_holds_every_row(reviewed: Reviewed) -> None:
    found = load_frame("memories", reviewed).set_index("id")
    count, of = "SELECT count(*) FROM {{s}}.{} WHERE project_id = :of", reviewed.pipeline.project().id
    tables = ("task_memories", "consolidated_memories")
    raw, derived = (reviewed.pipeline.value(count.format(table), of=of) for table in tables)
    assert found["kind"].value_counts()["raw"] == raw
    assert found["kind"].ne("raw").sum() == derived > 0
    assert found["level"].is_monotonic_increasing
    merged = found[found["status"] == "merged"]
    assert set(found.loc[merged["successor_id"], "kind"]) == {"merged"}
    assert sum(found["source_count"].fillna(0)) == len(merged)
    assert all(
        merged.loc[row.source_ids, "successor_id"].eq(row.Index).all() for row in found.query("level > 0").itertuples()
    )
    stale = found.loc[str(reviewed.archived)]
    assert (stale["status"], stale["archive_reason"], stale["external_id"]) == ("archived", "migrated", "stale")
    assert pd.isna(stale["successor_id"])
    assert stale["retired_at"].tzinfo is not None
    fields = stale[["tags", "importance", "reuse_count"]].tolist()
    assert fields == [STALE[name] for name in ("tags", "importance", "reused_count")]


def test_frame_times_exceed_nanosecond_range(reviewed: Reviewed) -> None:
    found = load_frame("memories", reviewed, FUTURE)
    assert found["learned_at"].dt.year.tolist() == [9998]
    assert found["learned_at"].dt.microsecond.tolist() == [1]


def test_memories_frame_adds_vectors_on_request(reviewed: Reviewed) -> None:
    assert "vector" not in load_frame("memories", reviewed)
    found = load_frame("memories", reviewed, vectors=True)
    matrix = np.stack(list(found["vector"]))
    assert (matrix.dtype, len(matrix)) == (np.float32, len(found))
    np.testing.assert_allclose(np.linalg.norm(matrix, axis=1), 1, rtol=1e-5)
    query = "SELECT embedding::real[] FROM {s}.task_memories WHERE id = :id"
    stored = reviewed.pipeline.value(query, id=UUID(found["id"][0]))
    assert np.array_equal(matrix[0], np.array(stored, dtype=np.float32))
    assert load_frame("memories", reviewed, FUTURE, vectors=True)["vector"].tolist() == [None]


def test_pairs_frame_matches_graph(reviewed: Reviewed) -> None:
    found = load_frame("pairs", reviewed)
    rows = reviewed.pipeline.rows("SELECT a::text, b::text, similarity, verdict FROM {s}.memory_pairs")
    names = {0: "topic", 1: "ask", 2: "merge"}
    expected = {(a, b): (pytest.approx(similarity), names[verdict]) for a, b, similarity, verdict in rows}
    verdicts = found["verdict"].astype(object)
    pairs = zip(found["a"], found["b"], strict=True)
    assert dict(zip(pairs, zip(found["similarity"], verdicts, strict=True), strict=True)) == expected
    assert {"ask", "merge"} <= set(verdicts)
    assert found["similarity"].is_monotonic_decreasing
    memory_type = load_frame("memories", reviewed).set_index("id")["memory_type"]
    across = found["a"].map(memory_type).ne(found["b"].map(memory_type))
    assert (verdicts[across] == "ask").all()
    assert (found["verdict"] >= "ask").sum() == verdicts.isin(["ask", "merge"]).sum()


def test_pairs_frame_filters_by_similarity(reviewed: Reviewed) -> None:
    whole = load_frame("pairs", reviewed)
    middle = float(whole["similarity"][len(whole) // 2])
    assert len(load_frame("pairs", reviewed, at_least=middle)) == (whole["similarity"] >= np.float32(middle)).sum()
    assert load_frame("pairs", reviewed, at_least=1.01).empty


def test_groups_frame_lists_members(reviewed: Reviewed) -> None:
    found = load_frame("groups", reviewed)
    assert found["member_ids"].map(len).equals(found["size"])
    assert found["member_ids"].str[0].astype("string[python]").equals(found["representative_id"])
    assert found["key"].is_unique
    assert set(found["tier"]) == {"merge", "suggest"}
    asked = found[found["tier"] == "suggest"]
    pairs = [pair for listed in asked["asked_pairs"] for pair in listed]
    assert [{pair["a"], pair["b"]} for pair in pairs] == [set(ids) for ids in asked["member_ids"]]
    assert {pair["if_same"] for pair in pairs} == {""}
    assert found.loc[found["tier"] == "merge", "asked_pairs"].isna().all()
    assert (found["cohesion_min"] <= found["cohesion_mean"]).all()
    assert found["job_id"].nunique() == 1


def test_suggestions_frame_shows_decisions(reviewed: Reviewed) -> None:
    found = load_frame("suggestions", reviewed).set_index("id")
    ids = [str(id_) for id_ in (reviewed.approved, reviewed.rejected, reviewed.reopened)]
    assert found.loc[ids, "status"].tolist() == ["validated", "rejected", "pending"]
    assert found.loc[ids, "reviewed_by"].fillna("").tolist() == ["anna", "bert", ""]
    assert found.loc[ids[1], "review_note"] == "two runners"
    assert found["reviewed_at"].notna().tolist() == found["status"].ne("pending").tolist()
    memories = load_frame("memories", reviewed).set_index("id")
    approved = found.loc[ids[0]]
    assert (memories.loc[approved["memory_ids"], "successor_id"] == approved["result_id"]).all()
    assert set(found["key"]) <= set(load_frame("groups", reviewed).query("tier == 'suggest'")["key"])


def test_changes_frame_matches_ledger(reviewed: Reviewed) -> None:
    found = load_frame("changes", reviewed)
    rows = reviewed.pipeline.rows(
        "SELECT seq, c.id::text, operation, changed_by FROM {s}.consolidation_changes c "
        "JOIN {s}.projects p ON p.id = c.project_id WHERE p.slug = :slug ORDER BY seq",
        slug=SLUG,
    )
    columns = found[["seq", "id", "operation", "changed_by"]]
    assert list(columns.itertuples(index=False, name=None)) == [*map(tuple, rows)]
    undone = found.loc[found["undone"], "id"]
    reverting = found[found["operation"] == "rollback"]
    assert len(reverting) > 0
    assert set(reverting["reverts_change_id"]) == set(undone)
    assert found["version_before"].isna().any()
    assert "new_state" not in found


def test_redone_changes_are_not_marked_undone(pipeline: Pipeline) -> None:
    pipeline.add([note("a", "One."), note("b", "Two.")])
    (archived,) = archive_manually(pipeline.engine, [find_id(pipeline, "a")], reason="old", changed_by="anna")
    undo = pipeline.roll_back(archived.group_id)
    pipeline.roll_back(undo.rollback_id)
    assert frames.changes(SLUG, engine=pipeline.engine)["undone"].tolist() == [False, True, False]


def find_id(pipeline: Pipeline, name: str) -> UUID:
    found: UUID = pipeline.value("SELECT id FROM {s}.task_memories WHERE external_id = :name", name=name)
    return found


def test_changes_frame_adds_images_on_request(reviewed: Reviewed) -> None:
    found = load_frame("changes", reviewed, images=True)
    made = found[found["version_before"].isna() & (found["entity_type"] == "consolidated_memories")]
    assert made["previous_state"].tolist() == [None] * len(made)
    states = made["new_state"].tolist()
    assert {state["kind"] for state in states} == {"merged"}
    assert not any("embedding" in state for state in states)


def test_changes_frame_filters_by_time(reviewed: Reviewed) -> None:
    whole = load_frame("changes", reviewed)
    since = whole["changed_at"].max().to_pydatetime()
    newest = load_frame("changes", reviewed, since=since)
    assert newest["id"].tolist() == whole.loc[whole["changed_at"] >= since, "id"].tolist() != []
    assert load_frame("changes", reviewed, since=datetime.now(UTC) + timedelta(days=1)).empty


def test_costs_frame_sums_by_day(reviewed: Reviewed) -> None:
    found = load_frame("costs", reviewed)
    total = describe_costs(reviewed.engine, SLUG, settings=reviewed.pipeline.settings)["total"]
    counts = ["calls", "failed", "cached", "reserved", "tokens"]
    assert found[counts].sum().to_dict() == {name: total[name] for name in counts}
    assert found["cost_usd"].sum() == pytest.approx(float(total["cost_usd"]))
    assert (found["calls"].tolist(), set(found["purpose"])) == ([1, 2], {"suggestion"})
    assert found["day"].diff().dropna().tolist() == [pd.Timedelta(days=1)]
    assert (found["day"] == found["day"].dt.normalize()).all()
    today = found["day"].max().date()
    assert load_frame("costs", reviewed, since=today)["calls"].tolist() == [2]


def test_frames_page_lists_every_column(reviewed: Reviewed) -> None:
    tables = PAGE.read_text().partition("## Columns")[2].partition("## Files")[0]
    sections = re.split(r"^### (\w+)$", tables, flags=re.MULTILINE)
    listed = {
        name: dict(re.findall(r"^\| `(\w+)` \| (\S.*?) \|", section, flags=re.MULTILINE))
        for name, section in zip(sections[1::2], sections[2::2], strict=True)
    }
    assert listed == {
        name: load_frame(name, reviewed, **OPTIONAL.get(name, {})).dtypes.astype(str).to_dict()
        for name in frames.__all__
    }


def test_frames_page_lists_every_status(reviewed: Reviewed) -> None:
    rows = re.findall(r"^\| `status` \| category \| (.*) \|$", PAGE.read_text(), flags=re.MULTILINE)
    for row, name in zip(rows, ("memories", "suggestions"), strict=True):
        listed = set(re.findall(r"`(\w+)`", row))
        assert listed == set(load_frame(name, reviewed)["status"].cat.categories)


def test_code_on_frames_page_runs(reviewed: Reviewed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSOLIDATION_DATABASE_URL", reviewed.pipeline.settings.database_url.get_secret_value())
    code = "".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL))
    shown: dict[str, Any] = {}
    exec(code.replace('"shop"', repr(SLUG)), shown)
    decided = shown["decided"]
    assert set(decided["status"]) == {"validated", "rejected", "pending"}
    assert decided["text_a"].notna().all()
    assert decided.loc[decided["status"] == "rejected", "review_note"].tolist() == ["two runners"]
    assert shown["by_status"]["count"].sum() == len(decided)
    assert len(shown["asked_pairs"]) == 3
    kinds = [difference.kind for found in shown["asked_pairs"]["differences"] for difference in found]
    assert sorted(kinds) == ["polarity", "value", "value"]
    assert shown["per_day"].shape == (2, 1)
    # The approval that was rolled back: a merged memory was made, its two originals were hidden.
    assert shown["undone"]["sum"]["merge"] == 3
    assert shown["matrix"].shape[1] == 256


def test_frames_read_store_from_environment(pipeline: Pipeline) -> None:
    pipeline.add([note("a", "One thing.")])
    assert frames.memories(SLUG)["content"].tolist() == ["One thing."]


def test_frames_accept_database_url(database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CONSOLIDATION_DATABASE_URL", "postgresql://nobody@localhost:1/nowhere")
    engine = connect_engine(with_driver(database_url, "psycopg"))
    Pipeline(engine, Settings(), tmp_path).add([note("a", "One thing.")])
    assert len(frames.memories(SLUG, engine=database_url)) == 1


@pytest.fixture
def pipeline(engine: Engine, settings: Settings, tmp_path: Path) -> Pipeline:
    return Pipeline(engine, settings, tmp_path)
