"""Command calibrate: thresholds, errors of the merge decision, and the snapshot in force."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from consolidation_pipeline.service.runs import run_lifecycle
from consolidation_pipeline.service.runs.run_lifecycle import open_run
from consolidation_pipeline.service.similarity import calibration_fit
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline_tests.cli.conftest import Cli, Write, sample_rows

PHASES = "embedding_matrix,threshold_calibration,similarity_graph"


def snapshots(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT count(*) FROM consolidation.similarity_calibrations")).scalar_one())


@pytest.fixture
def sample(cli: Cli, write: Write) -> None:
    """Project `notes` with 130 of the sample memories, embedded and compared."""
    cli("import", write(*[f"{row}" for row in sample_rows(130)]), "--project", "notes")
    assert cli("run", "notes", "--phases", PHASES).code == 0


@pytest.mark.slow
@pytest.mark.usefixtures("sample")
def test_calibrate_shows_errors_and_writes_nothing(cli: Cli, engine: Engine) -> None:
    answer = cli("calibrate", "notes")
    assert (answer.code, answer.err) == (0, "")
    for text_part in (
        "t_merge",
        "t_pattern",
        "median cosine",
        "nearest neighbours",
        "this project's decisions",
        "none yet: approve or reject suggestions",
        "pairs of the product",
        "of 204 that differ would merge (95 %:",
        "of 234 that say the same would merge (95 %:",
        "boilerplate",
    ):
        assert text_part in answer.out
    assert "version 1; --apply puts this one in its place" in answer.out
    assert snapshots(engine) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("sample")
def test_calibrate_json_holds_both_calibrations(cli: Cli, engine: Engine) -> None:
    answer = cli("calibrate", "notes", "--json").json
    assert (answer["project"], answer["applied"]) == ("notes", False)
    assert (answer["in_force"]["version"], answer["fresh"]["version"]) == (1, 2)
    assert answer["in_force"]["thresholds"] == answer["fresh"]["thresholds"]
    assert {"median", "nearest"} <= answer["spread"].keys()
    assert answer["decided"] is None
    measured = answer["product_pairs"]
    assert measured["pairs"] == measured["wrong"]["of"] + measured["found"]["of"]
    assert measured["kinds"].keys() == {"near", "near_reworded", "para", "light_edit"}
    for share in (measured["wrong"], measured["found"], *measured["kinds"].values()):
        assert share["low"] <= share["share"] <= share["high"]
    assert snapshots(engine) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("sample")
def test_calibrate_apply_rebuilds_graph_in_next_run(cli: Cli, engine: Engine) -> None:
    answer = cli("calibrate", "notes", "--apply", "--json").json
    assert (answer["applied"], snapshots(engine)) == (True, 2)
    run: dict[str, Any] = cli("run", "notes", "--phases", PHASES, "--json").json
    assert run["metrics"]["threshold_calibration"]["taken"] is False
    assert run["metrics"]["similarity_graph"]["rebuilt"] is True
    assert run["metrics"]["similarity_graph"]["calibration_version"] == 2
    assert "from now on, as version 3" in cli("calibrate", "notes", "--apply").out


def test_calibrate_reports_small_project(cli: Cli, write: Write) -> None:
    cli("import", write({"content": "a"}, {"content": "b"}), "--project", "p")
    answer = cli("calibrate", "p")
    assert answer.code == 0
    assert "too few distinct memories" in answer.out
    assert "none yet; --apply" in answer.out
    assert "that differ would merge" in answer.out
    assert cli("calibrate", "p", "--json").json["in_force"] is None


@pytest.mark.breaks_rules  # the approval has no merged memory
def test_calibrate_shows_errors_on_decisions(cli: Cli, write: Write, engine: Engine) -> None:
    same, other = "The cache is cleared at night.", ("The limit is 30 seconds.", "The limit is 60 seconds.")
    texts = [same, f"Note: {same}", *other]
    cli("import", write(*[{"id": f"m{at}", "content": text} for at, text in enumerate(texts)]), "--project", "p")
    cli("run", "p", "--phases", "embedding_matrix")
    query = (
        "INSERT INTO consolidation.consolidation_suggestions (project_id, group_id, status, suggested_content, "
        "original_memory_ids, original_versions, fingerprint) SELECT project_id, 'g', :status, 'x', array_agg(id), "
        "array_agg(1), :status FROM consolidation.task_memories WHERE external_id = ANY(:names) GROUP BY project_id"
    )
    with engine.begin() as connection:
        for status, names in (("validated", ["m0", "m1"]), ("rejected", ["m2", "m3"])):
            connection.execute(text(query), {"status": status, "names": names})
    shown = cli("calibrate", "p").out
    assert "0.0% of 1 that differ would merge" in shown
    assert "100.0% of 1 that say the same would merge" in shown
    decided = cli("calibrate", "p", "--json").json["decided"]
    assert (decided["pairs"], decided["wrong"]["share"], decided["found"]["share"]) == (2, 0.0, 1.0)


def test_calibrate_apply_on_busy_project_is_conflict(
    cli: Cli, write: Write, engine: Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("import", write({"content": "a"}), "--project", "p")
    monkeypatch.setattr(run_lifecycle, "LOCK_WAIT_SECONDS", 0.0)
    with open_run(engine, "p", settings=settings):
        answer = cli("calibrate", "p", "--apply", "--json")
    assert (answer.code, answer.json["error"]) == (3, "project_busy")
    assert snapshots(engine) == 0


def test_calibrate_lists_boilerplate(cli: Cli, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration_fit, "MIN_CONTENTS", 12)
    rows = [{"content": f"Lesson {word} is about {word}.\nFill this in [later]."} for word in "abcdefghijklmn"]
    cli("import", write(*rows), "--project", "p")
    cli("run", "p", "--phases", PHASES)
    answer = cli("calibrate", "p")
    assert "1 sentences, left out of 14 memories" in answer.out
    assert "fill this in [later]" in answer.out
