"""`demo`."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from consolidation_pipeline.service.admin.demo_report import explain_unusable_repository
from consolidation_pipeline_tests.cli.conftest import Cli


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Repository of three commits."""
    folder = tmp_path / "repository"
    folder.mkdir()
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgsign=false")
    git = ["git", "-C", str(folder), *who]
    subprocess.run([*git, "init", "-q"], check=True)
    for subject in ("Add the parser", "Fix the parser for empty input", "Fix the parser for empty input."):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", subject], check=True)
    return folder


@pytest.mark.slow
def test_second_demo_imports_and_approves_nothing(cli: Cli, repository: Path) -> None:
    first = cli("demo", "--repo", repository, "--json")
    assert first.code == 0, first
    sample, history = first.json["projects"]
    assert (sample["project"], history["project"], first.json["skipped"]) == ("sample", "history", [])
    assert (sample["imported"]["bad"], sample["imported"]["added"]) == (0, sample["counts"]["memories"])
    assert history["counts"]["memories"] == 3
    assert sample["counts"]["consolidated"] > 35
    assert [len(merged["sources"]) > 1 for merged in sample["merged"]] == [True, True]
    assert len(sample["asked_pairs"]) == 2
    for asked in sample["asked_pairs"]:
        assert asked["a"] != asked["b"]
        assert asked["differences"]
    learned = {one["kind"]: one for one in sample["learned"]}
    assert list(learned) == ["pattern", "principle", "playbook", "summary", "procedural"]
    assert {one["method"] for one in learned.values()} == {"heuristic"}
    assert len(sample["approved"]) == learned["playbook"]["count"] - learned["playbook"]["waiting"] > 0
    playbook = cli("playbook", "sample", "--json").json["entries"]
    assert {entry["id"] for entry in playbook} == set(sample["approved"])
    assert not any(entry["risks"] for entry in playbook)
    low, median, high = sample["relevance"]
    assert 0 < low <= median <= high

    again = cli("demo", "--repo", repository)
    assert again.code == 0
    assert again.out.count("nothing changed since") == 1  # The approvals of the sample are new to a run.
    assert "consolidation review approve" not in again.out
    # What was archived is no rival of a merge any more.
    found = re.search(r"(\d+) memories, reduction", again.out)
    assert found
    assert int(found[1]) >= sample["counts"]["consolidated"]
    assert f"consolidation rollback {history['run']['job_id']}" in again.out
    assert "kept apart" in again.out
    assert "consolidation review list sample" in again.out
    assert "llm_model=" in again.out
    assert "consolidation dev" in again.out


@pytest.mark.slow
def test_demo_skips_folder_without_history(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    answer = cli("demo", "--repo", tmp_path, "--json")
    assert answer.code == 0
    assert [played["project"] for played in answer.json["projects"]] == ["sample"]
    assert "not a git repository" in answer.json["skipped"][0]["reason"]
    assert "the project history is skipped" in answer.err


def test_demo_history_needs_two_commits(repository: Path) -> None:
    assert explain_unusable_repository(repository) is None
    subprocess.run(["git", "-C", str(repository), "update-ref", "HEAD", "HEAD~2"], check=True)
    assert explain_unusable_repository(repository) == f"{repository} has fewer than 2 commits"
