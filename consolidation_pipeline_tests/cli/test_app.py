"""Start-up, errors and exit codes of the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
import typer
from typer.core import TyperGroup

from consolidation_pipeline.cli import app, status
from consolidation_pipeline.cli.error_report import describe_error, error_name, report_error
from consolidation_pipeline.errors import (
    BudgetExhaustedError,
    ConflictError,
    InvalidOptionError,
    NotFoundError,
    StoreError,
    TimeLimitError,
)
from consolidation_pipeline_tests.cli.conftest import Answer, Cli

HEAVY = ("alembic", "dagster", "litellm", "numpy", "pandas", "psycopg", "pydantic", "rich", "sqlalchemy", "wordllama")
COMMANDS = (
    "init doctor dev demo import plan run calibrate status history metrics lineage rollback archive restore pin export "
    "projects relations review suggestions playbook cost search context keys cancel serve mcp events backup prune "
    "quarantine blast-radius used feedback add memories erase connect source shadow test replay report embeddings"
).split()


def test_help_starts_without_heavy_imports() -> None:
    code = (
        "import sys\nfrom consolidation_pipeline.cli.app import run_command\nassert run_command(['--help']) == 0\n"
        f"assert not (found := set({HEAVY!r}) & set(sys.modules)), found"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


READS = (
    "run notes",  # nothing changed
    "projects list",
    "search notes migrations",
    "context notes migrations",
    "memories list notes",
    "playbook notes",
    "status notes",
    "history notes",
)


@pytest.mark.usefixtures("cli", "consolidated")
def test_reads_start_without_heavy_imports() -> None:
    heavy = {*HEAVY, "scipy", "sklearn", "fastapi", "numba", "requests"} - {
        "numpy",
        "psycopg",
        "pydantic",
        "rich",
        "sqlalchemy",
    }
    code = (
        "import sys\nfrom consolidation_pipeline.cli.app import run_command\n"
        f"for line in {READS!r}:\n    assert run_command(line.split()) == 0, line\n"
        f"    assert not (found := {heavy!r} & set(sys.modules)), (line, found)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_help_lists_every_command(command: Cli) -> None:
    answer = command("--help")
    assert (answer.code, answer.err) == (0, "")
    listed = answer.out.partition("Start:")[2].splitlines()
    assert {line.split()[0] for line in listed if line.startswith("  ")} == set(COMMANDS)
    codes = "1 failed or cancelled, 2 usage, 3 conflict, 4 budget, 5 done, but a model failed, 130 interrupted."
    assert codes in " ".join(answer.out.split())
    headings = [line for line in listed if line and not line.startswith(" ")]
    assert headings == ["Memories:", "Runs:", "Read:", "Decide:", "Change and undo:", "Serve and operate:"]


def test_every_list_command_has_json() -> None:
    root = typer.main.get_command(app.app)
    assert isinstance(root, TyperGroup)
    groups = [root, *(command for command in root.commands.values() if isinstance(command, TyperGroup))]
    lists = {group.name: group.commands["list"] for group in groups if "list" in group.commands}
    assert {"projects", "keys", "events", "relations", "review", "suggestions"} <= set(lists)
    for name, command in lists.items():
        assert any("--json" in parameter.opts for parameter in command.params), name


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(command: Cli, name: str) -> None:
    answer = command(name, "--help")
    assert answer.code == 0
    assert f"Usage: consolidation {name}" in answer.out


@pytest.mark.parametrize("arguments", [(), ("projects",)])
def test_group_without_command_shows_help(command: Cli, arguments: tuple[str]) -> None:
    answer = command(*arguments)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("Usage: consolidation")
    assert "  list " in answer.err or "  doctor " in answer.err


@pytest.mark.parametrize(
    "arguments",
    [
        "feedback ID --helpful --misleading",
        "memories edit ID --failure --success",
        "projects configure notes --enable --disable",
        "test notes --enable a --disable a",
    ],
)
def test_contradicting_flags_are_refused(command: Cli, arguments: str) -> None:
    answer = command(*arguments.split())
    assert (answer.code, "contradict each other: give one of them" in answer.err) == (2, True)


def test_version_is_that_of_the_package(command: Cli) -> None:
    answer = command("--version")
    assert (answer.code, answer.out) == (0, f"consolidation {version('consolidation-pipeline')}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("serach", "x"), "Did you mean 'search'?"),
        (("projects", "lst"), "Did you mean 'list'?"),
        (("undo", "x"), "Did you mean `consolidation rollback`?"),
        (("configure", "shop"), "Did you mean `consolidation projects configure`?"),
        (("configur", "shop"), "Did you mean `consolidation projects configure`?"),
        (("projects", "run", "shop"), "Did you mean `consolidation run`?"),
        (("projects", "xyz"), "`consolidation projects` has: list, create, configure, delete."),
        (("xyz",), "`consolidation --help` lists the commands."),
    ],
)
def test_wrong_command_suggests_right_one(command: Cli, arguments: tuple[str, ...], message: str) -> None:
    answer = command(*arguments)
    assert (answer.code, answer.err) == (2, f"error: No such command {_wrong(arguments)!r}. {message}\n")


def _wrong(arguments: tuple[str, ...]) -> str:
    return arguments[1] if arguments[0] == "projects" else arguments[0]


def test_completion_knows_commands_and_options(
    command: Cli, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def complete(words: str) -> list[str]:
        monkeypatch.setenv("_CONSOLIDATION_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
        with pytest.raises(SystemExit) as ended:
            command()
        assert ended.value.code == 0
        return capfd.readouterr().out.split()

    assert complete("consolidation pro") == ["projects"]
    assert complete("consolidation projects c") == ["create", "configure"]
    assert complete("consolidation run --ph") == ["--phases"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("history",), "Missing argument 'PROJECT'"),
        (("run", "p", "--fast"), "--fast"),
        (("rollback", "not-an-id"), "is no id"),
        (("history", "p", "--limit", "0"), "--limit"),
    ],
)
def test_wrong_usage_is_one_line_with_exit_code_2(command: Cli, arguments: tuple[str, ...], message: str) -> None:
    answer = command(*arguments)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert message in answer.err


def test_json_error_is_one_object(cli: Cli) -> None:
    answer = cli("metrics", "nowhere", "--json")
    assert answer.code == 2
    assert answer.json == {"error": "not_found", "message": "there is no project 'nowhere'; projects: none"}
    assert answer.err == "error: there is no project 'nowhere'; projects: none\n"
    assert cli("metrics", "--json").json["error"] == "usage"


@pytest.mark.parametrize(
    "arguments", [("calibrate", "nowhere"), ("cost", "nowhere"), ("rollback", uuid4()), ("keys", "revoke", "nobody")]
)
def test_unknown_target_is_usage_error(cli: Cli, arguments: tuple[object, ...]) -> None:
    answer = cli(*arguments, "--json")
    assert (answer.code, answer.json["error"]) == (2, "not_found")


@pytest.mark.parametrize(
    ("error", "name", "code"),
    [
        (NotFoundError("x"), "not_found", 2),
        (InvalidOptionError("x"), "invalid_option", 2),
        (ConflictError("x"), "conflict", 3),
        (BudgetExhaustedError("x"), "budget_exhausted", 4),
        (StoreError("x"), "store", 1),
        (TimeLimitError("x"), "time_limit", 1),
        (KeyError("x"), "key", 1),
    ],
)
def test_error_has_name_and_exit_code(
    error: Exception, name: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report_error(error, as_json=True) == code
    assert Answer(code, *capsys.readouterr()).json["error"] == name == error_name(error)


def test_conflicts_are_listed_in_full_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    ids = tuple(f"id-{number}" for number in range(7))
    error = ConflictError("7 rows changed", ids)
    assert describe_error(error) == "error: 7 rows changed (id-0, id-1, id-2, id-3, id-4 and 2 more)"
    assert describe_error(ConflictError("row id-1 changed", ("id-1",))) == "error: row id-1 changed"
    report_error(error, as_json=True)
    assert Answer(3, *capsys.readouterr()).json["conflicts"] == list(ids)


def break_status(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def broken() -> None:
        raise error

    monkeypatch.setattr(status, "open_store", broken)


def test_error_of_a_lost_database_says_so() -> None:
    lost = describe_error(psycopg.OperationalError("server closed the connection\nLINE 1"))
    assert lost.startswith("error: the database went away or cannot go on: server closed the connection; ")


def test_unexpected_error_is_one_line_with_hint(command: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    break_status(monkeypatch, ZeroDivisionError("one\ntwo"))
    answer = command("status", "p", "--json")
    assert answer.code == 1
    assert answer.err.startswith("error: unexpected ZeroDivisionError: one (--debug")
    assert "Traceback" not in answer.err
    assert answer.json["error"] == "zero_division"


def test_debug_shows_traceback(command: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    break_status(monkeypatch, ZeroDivisionError("one"))
    with pytest.raises(ZeroDivisionError):
        command("status", "p", "--debug")
    with pytest.raises(ZeroDivisionError):
        command("--debug", "status", "p")


def test_interrupt_exits_with_130(command: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    break_status(monkeypatch, KeyboardInterrupt())
    assert command("status", "p").code == 130


def test_main_exits_with_command_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["consolidation", "nonsense"])
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == 2


def test_env_file_fills_missing_variables(command: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("CONSOLIDATION_DATABASE_URL=mysql://from-file\nCONSOLIDATION_TEST_GIVEN=file\n")
    monkeypatch.setenv("CONSOLIDATION_TEST_GIVEN", "environment")
    monkeypatch.setenv("CONSOLIDATION_DATABASE_URL", "")
    monkeypatch.delenv("CONSOLIDATION_DATABASE_URL")
    answer = command("metrics", "p")
    assert os.environ["CONSOLIDATION_TEST_GIVEN"] == "environment"
    assert (answer.code, "must start with postgresql://" in answer.err) == (1, True)


def test_invalid_variable_is_named(command: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSOLIDATION_API_PORT", "many")
    answer = command("metrics", "p")
    assert answer.code == 2
    assert "CONSOLIDATION_API_PORT: expected a whole number, not 'many'" in answer.err


def test_unreachable_database_is_one_line_error(command: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSOLIDATION_DATABASE_URL", "postgresql://me:secret@127.0.0.1:1/none")
    answer = command("history", "p")
    assert answer.code == 1
    assert answer.err.count("\n") == 1
    assert "cannot be reached" in answer.err
    assert "secret" not in answer.err


def test_missing_schema_names_init_command(
    command: Cli, monkeypatch: pytest.MonkeyPatch, empty_database_url: str
) -> None:
    monkeypatch.setenv("CONSOLIDATION_DATABASE_URL", empty_database_url)
    answer = command("history", "p", "--json")
    assert (answer.code, answer.json["error"]) == (1, "schema_out_of_date")
    assert "consolidation init" in answer.err
