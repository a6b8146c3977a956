"""`consolidation test`, and the refusals that `demo --break` shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from consolidation_pipeline_tests.cli.conftest import Cli

FACT = "The API used up all Postgres connections at 12 tasks."


@pytest.fixture
def project(cli: Cli) -> str:
    """Project with one memory."""
    cli("projects", "create", "shop")
    cli("add", "shop", FACT)
    return "shop"


def test_exit_code_tells_of_a_failing_test(cli: Cli, project: str, tmp_path: Path) -> None:
    assert cli("test", project).out.strip() == "shop has no memory tests"
    cli("test", project, "--add", f"must_remember: {FACT}", "--name", "pool")
    junit = tmp_path / "results.xml"
    done = cli("test", project, "--junit", str(junit))
    assert (done.code, "1 of 1 memory tests pass" in done.out) == (0, True)
    assert 'name="pool"' in junit.read_text()
    cli("test", project, "--add", "must_remember: The moon is made of cheese.", "--name", "moon")
    failed = cli("test", project, "--json")
    assert (failed.code, failed.json["passed"], failed.json["failed"]) == (1, 1, 1)
    assert cli("test", project, "pool").code == 0
    assert "FAILED" in cli("test", project, "--list").out
    assert cli("test", project, "--disable", "moon", "--json").json["tests"][1]["enabled"] is False
    assert cli("test", project).code == 0


def test_file_is_run_without_storing(cli: Cli, project: str, tmp_path: Path) -> None:
    path = tmp_path / "memory_tests.yaml"
    path.write_text(f"tests:\n- must_remember: {FACT}\n")
    assert cli("test", project, "--file", str(path)).code == 0
    assert cli("test", project, "--list", "--json").json["tests"] == []
    path.write_text("tests:\n- must_remembr: a\n")
    wrong = cli("test", project, "--file", str(path))
    assert (wrong.code, f"{path}, line 2: 'must_remembr' is no kind of memory test" in wrong.err) == (2, True)


def test_test_of_unknown_memories_is_told(cli: Cli, project: str, tmp_path: Path) -> None:
    added = cli("test", project, "--add", f'must_not_merge: ["{FACT}", "b"]', "--name", "apart")
    assert "warning: 'apart' tests nothing yet: no raw memory has the text or id of b" in added.err
    path = tmp_path / "memory_tests.yaml"
    path.write_text('tests:\n- must_merge: ["a", "b"]\n')
    assert (
        "tests nothing yet: no raw memory has the text or id of a and b"
        in cli("test", project, "--import", str(path)).err
    )
    assert "warning" not in cli("test", project, "--add", f"must_remember: {FACT}").err


def test_wrong_use_is_refused(cli: Cli, project: str) -> None:
    for arguments, message in (
        (["--list", "--junit", "x.xml"], "--list runs no test"),
        (["--name", "a"], "--name names the one test of --add"),
        (["nowhere"], "has no memory test 'nowhere'"),
        (["--remove", "nowhere"], "has no memory test 'nowhere'"),
        (["--import", "/nowhere.yaml"], "/nowhere.yaml cannot be read"),
    ):
        done = cli("test", project, *arguments)
        assert done.code != 0
        assert message in done.err


@pytest.mark.slow
def test_demo_shows_what_tests_refuse(cli: Cli) -> None:
    done = cli("demo", "--break")
    assert done.code == 0, done.err
    assert "REFUSED  test 'year-end freeze is known' would have failed" in done.out
    assert "10 of 10 memory tests pass after the run" in done.out
