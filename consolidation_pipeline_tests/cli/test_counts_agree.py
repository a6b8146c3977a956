"""Each count has one definition: plan, run, status, metrics, report, pages and demo tell the same of one run."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from fastapi.testclient import TestClient

from consolidation_pipeline.api.app import create_app
from consolidation_pipeline.service.admin.demo_report import build_demo_report
from consolidation_pipeline.service.jobs.run_report import write_report
from consolidation_pipeline.service.runs.run_lifecycle import preview_run
from consolidation_pipeline.settings import RESOURCE_DIR, Settings
from consolidation_pipeline.store.database.engine import open_engine
from consolidation_pipeline_tests.cli.conftest import Cli

SAMPLE = RESOURCE_DIR / "examples" / "memories.jsonl"
# Merged memories are archived too.
ARCHIVING = ("archive_max_share=1", "archive_stale_days=30", "archive_min_reuse=10")


def read_table(text: str) -> dict[str, str]:
    """Return the rows of a printed table of facts."""
    rows = (re.split(r"\s{2,}|\s*│\s*", line.strip(" │"), maxsplit=1) for line in text.splitlines())
    return {row[0]: row[1].strip(" │") for row in rows if len(row) == 2}


@pytest.mark.slow
def test_all_doors_tell_the_same_counts(cli: Cli) -> None:
    assert cli("import", SAMPLE, "--project", "sample").code == 0
    assert cli("projects", "configure", "sample", "scope=project", *ARCHIVING).code == 0
    plan = cli("plan", "sample", "--json").json
    planned = read_table(cli("plan", "sample").out)
    run = cli("run", "sample", "--json").json
    job = cli("status", run["job_id"], "--json").json
    told, project = read_table(cli("status", run["job_id"]).out), cli("metrics", "sample", "--json").json
    metrics = read_table(cli("metrics", "sample").out)
    archived = job["metrics"]["archived_memories"]

    groups, merged, gone = job["clusters_merged"], job["memories_merged"], job["memories_archived"]
    assert min(groups, merged, gone, archived["merged_archived"]) > 0
    assert (plan["totals"]["merge_groups"], plan["totals"]["memories_merged"]) == (groups, merged)
    assert plan["totals"]["memories_archived"] == gone == archived["memories_archived"] == run["memories_archived"]
    assert (run["groups_merged"], run["memories_merged"]) == (groups, merged)
    assert planned["merges"] == told["merged"] == f"{groups} groups, {merged} memories"
    assert planned["archived"].startswith(f"{gone} memories")
    assert told["archived"] == f"{gone} memories"

    # On a first run, the project has what the run did.
    assert project["archived"] == gone
    assert project["memories"] == project["active"] + project["consolidated"] + project["archived"]
    assert project["units"] == project["active"] + project["merged"] == run["units_after"]
    assert run["units_before"] == project["active"] + project["consolidated"]
    assert run["reduction"] == project["reduction"] == round(1 - run["units_after"] / run["units_before"], 6)
    assert metrics["active in all"] == str(project["units"])
    assert metrics["reduction"] == f"{project['reduction']:.1%}"
    (listed,) = cli("projects", "list", "--json").json["projects"]
    assert {name: listed[name] for name in ("active", "merged", "units")} == {
        name: project[name] for name in ("active", "merged", "units")
    }
    assert job["metrics"]["consolidation_report"].items() >= _own(project, groups, merged, gone).items()
    _check_pages(project)
    _check_card(cli, project)


def _own(project: Mapping[str, object], groups: int, merged: int, gone: int) -> dict[str, object]:
    names = ("memories", "active", "consolidated", "archived", "merged", "units", "reduction")
    shown = {name: project[name] for name in names}
    return {**shown, "groups_merged": groups, "memories_merged": merged, "memories_archived": gone}


def _check_pages(project: Mapping[str, float]) -> None:
    settings = Settings(api_auth="off", api_host="127.0.0.1")
    app = create_app(open_engine(settings), settings)
    with TestClient(app, base_url="http://127.0.0.1") as browser:
        card, page = browser.get("/projects").text, browser.get("/projects/sample").text
        reply = browser.get("/api/v1/projects/sample/metrics").json()
    active = f"<dd>{project['units']:,}</dd>"
    assert active in card
    assert active in page
    assert f"{project['reduction']:.1%}".replace("%", " %") in page
    assert reply["reduction_percentage"] == round(100 * project["reduction"], 4)
    assert (reply["units"], reply["archived_count"]) == (project["units"], project["archived"])


def _check_card(cli: Cli, project: Mapping[str, float]) -> None:
    engine = open_engine(Settings())
    counts = build_demo_report(engine, "sample").counts
    assert (counts.units, counts.archived, counts.reduction) == (
        project["units"],
        project["archived"],
        project["reduction"],
    )
    markdown = write_report(preview_run(engine, "sample", settings=Settings())).markdown
    assert f"| active in all | {project['units']} |" in markdown
    assert f"| reduction | {project['reduction']:.1%} |" in markdown
    card = read_table(cli("demo", "--repo", "/nowhere").out)
    # Without the archived memories as rivals, the run of the demo may merge another group.
    project = cli("metrics", "sample", "--json").json
    assert card["active now"].startswith(f"{project['units']} memories: {project['active']} raw, ")
    assert card["archived"] == f"{project['archived']} memories"
    assert card["merged away"] == f"{project['consolidated']} memories, reduction {project['reduction']:.1%}"
