"""`plan`, and `run --plan`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from consolidation_pipeline_tests.cli.conftest import LESSONS, RECENT, Cli, Write


@pytest.fixture
def imported(cli: Cli, write: Write) -> None:
    rows = [{"id": f"n{at}", "content": text, "created_at": RECENT} for at, text in enumerate(LESSONS)]
    old = {"id": "old", "content": "The coffee machine on the third floor is broken.", "created_at": "2024-01-05"}
    old |= {"last_accessed_at": "2024-02-05", "reused_count": 1}
    assert cli("import", write(*rows, old), "--project", "notes", "--source", "test").code == 0


pytestmark = pytest.mark.usefixtures("imported")


def test_plan_shows_merges_suggestions_and_archives(cli: Cli) -> None:
    shown = cli("plan", "notes")
    assert shown.code == 0
    assert "merge: near-duplicates: 3 memories say the same" in shown.out
    assert "left to a person: " in shown.out
    assert "30 s" in shown.out
    assert "archive: not used for" in shown.out
    assert "coffee machine" in shown.out
    assert "if they are not used" in shown.out
    assert cli("metrics", "notes", "--json").json["last_run"] is None


def test_plan_names_the_pair_of_each_reason(cli: Cli, write: Write) -> None:
    row = {"content": LESSONS[3].replace("30", "90"), "created_at": RECENT}
    assert cli("import", write(row), "--project", "notes", "--source", "more").code == 0
    lines = cli("plan", "notes").out.splitlines()
    at = lines.index("left to a person: 3 memories that may say the same")
    texts = {line[2:4]: line for line in lines[at + 1 : at + 4]}
    assert texts.keys() == {"1.", "2.", "3."}
    reasons = lines[at + 4 : at + 7]
    assert sorted(line.split(":")[0] for line in reasons) == ["  1 and 2", "  1 and 3", "  2 and 3"]
    for line in reasons:
        pair, values = line.split(":")[0].split(" and "), line.split("different values: ")[1].split(" (")[0]
        told = [next(text for text in texts.values() if value in text)[2] for value in values.split(" / ")]
        assert sorted(told) == [side.strip() for side in pair]


def test_plan_json_lists_every_group(cli: Cli) -> None:
    made = cli("plan", "notes", "--json").json
    assert [len(merge["sources"]) for merge in made["merges"]] == [3]
    assert [archive["policy"] for archive in made["archives"]] == ["staleness"]
    assert made["costs"]["cost_usd"] == 0.0
    assert (made["totals"]["memories_merged"], made["totals"]["memories_archived"]) == (3, 1)


def test_plan_file_is_executed(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    assert cli("plan", "notes", "--out", file).code == 0
    done = cli("run", "notes", "--plan", file, "--json")
    assert (done.code, done.json["status"]) == (0, "completed")
    assert (done.json["merged_created"], done.json["memories_archived"]) == (1, 1)
    changes = cli("history", "notes", "--json").json["changes"]
    assert {change["operation"] for change in changes} == {"merge", "archive"}
    again = cli("run", "notes", "--plan", file, "--json")
    assert (again.code, again.json["merged_created"], again.json["memories_archived"]) == (0, 0, 0)


def test_printed_plan_is_executed(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(cli("plan", "notes", "--json").out)
    done = cli("run", "notes", "--plan", file, "--json")
    assert (done.code, done.json["merged_created"], done.json["memories_archived"]) == (0, 1, 1)


@pytest.mark.slow
def test_plan_run_and_status_tell_of_refused_merges(cli: Cli, write: Write) -> None:
    short = "The billing service calls the shipping service."
    texts = (
        short,
        f"{short} The support team reads its reply every quarter and writes a report for the auditors, who file it in "
        "the cabinet.",
        "The shipping service calls the billing service.",
        "Design review moved to Thursdays.",
        "Customer support asked for a dark theme in the admin console.",
        "Vendored fonts reduced the first paint noticeably.",
    )
    rows = [{"id": f"r{at}", "content": text, "created_at": RECENT} for at, text in enumerate(texts)]
    cli("import", write(*rows), "--project", "calls")
    cli("projects", "configure", "calls", "t_merge=0.5", "t_suggest=0.5", "t_pattern=0.5")
    shown = cli("plan", "calls").out
    told = "not merged: search for the first of these texts would find the merged memory at place 2, not 1\n"
    listed = shown.partition(told)[2].splitlines()[:3]
    assert [line[:8] for line in listed] == ["  - The ", "  - The ", "  below:"]
    assert listed[2].removeprefix("  below: ") in texts
    assert "1 group that search would find lower (recall_gate)" in shown
    done = cli("run", "calls", "--json").json
    assert (done["merges_refused_by_recall"], done["groups_merged"]) == (1, 0)
    assert "1 group that search would find lower (place 1 to 2: 1)" in cli("status", "calls").out
    assert cli("run", "calls", "--json").json["status"] == "unchanged"
    cli("projects", "configure", "calls", "t_merge=0.5", "t_suggest=0.5", "t_pattern=0.5", "recall_gate=false")
    assert cli("run", "calls", "--json").json["groups_merged"] == 1


@pytest.mark.slow
def test_outdated_plan_file_is_refused(cli: Cli, tmp_path: Path, write: Write) -> None:
    file = tmp_path / "plan.json"
    cli("plan", "notes", "--out", file)
    cli("import", write({"id": "n9", "content": LESSONS[2], "created_at": RECENT}), "--project", "notes")
    refused = cli("run", "notes", "--plan", file, "--json")
    assert (refused.code, refused.json["error"]) == (3, "conflict")
    assert "has changed since the plan was made" in refused.err
    assert cli("metrics", "notes", "--json").json["merged"] == 0
    assert cli("run", "notes", "--json").json["status"] == "completed"


def test_invalid_plan_arguments_are_usage_errors(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    assert cli("run", "notes", "--plan", file).code == 2
    cli("plan", "notes", "--out", file)
    assert cli("run", "notes", "--plan", file, "--phases", "clusters").code == 2
    assert cli("run", "--all", "--plan", file, "--job", "decay").code == 2
    assert cli("plan", "nowhere").code == 2
    assert cli("plan", "notes", "--out", tmp_path / "no" / "plan.json").code == 2
    made = json.loads(file.read_text())
    file.write_text(json.dumps({**made, "surprise": 1}))
    assert "surprise" in cli("run", "notes", "--plan", file).err


def test_jobs_can_be_run_by_name(cli: Cli) -> None:
    assert cli("run", "notes").code == 0
    associated = cli("run", "notes", "--job", "associate", "--json")
    assert (associated.code, associated.json["phases_completed"]) == (0, ["associations"])
    forgotten = cli("run", "notes", "--job", "forget", "--json")
    assert forgotten.json["phases_completed"] == ["decay_scores", "archived_memories"]
    assert cli("run", "notes", "--job", "dream").code == 2
    assert cli("run", "notes", "--job", "decay", "--phases", "clusters").code == 2


def test_plan_counts_what_scopes_keep_apart(cli: Cli, write: Write) -> None:
    rows = [{"id": f"{user}{at}", "content": text, "user_id": user} for user in "ab" for at, text in enumerate(LESSONS)]
    cli("import", write(*rows), "--project", "walled")
    shown = cli("plan", "walled").out
    assert "2 scopes (user_id); 5 exact repeats and" in shown
    walls = cli("plan", "walled", "--json").json["walls"]
    assert (walls["scope"], walls["scopes"], walls["repeats"]) == ("user_id", 2, 5)
