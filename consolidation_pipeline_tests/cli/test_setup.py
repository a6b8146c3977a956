"""`init`, `doctor` and `dev`."""

from __future__ import annotations

import os
import re
import socket
import sys
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._daemon.types import DaemonHeartbeat
from sqlalchemy import text

from consolidation_pipeline.cli import setup
from consolidation_pipeline.launch import find_automation
from consolidation_pipeline.service.admin import database_checks, doctor
from consolidation_pipeline.service.admin.database_checks import _check_load, check_store
from consolidation_pipeline.service.admin.doctor import _check_automation, _check_join
from consolidation_pipeline.service.runs.run_lifecycle import open_run
from consolidation_pipeline.settings import PROJECT_ROOT, Settings
from consolidation_pipeline.store.database.engine import Engine, connect_engine, with_driver
from consolidation_pipeline.store.database.inspection import ServerLoad
from consolidation_pipeline.store.jobs.event_outbox import append_event
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline_tests.cli.conftest import Cli


def findings(answer: Any) -> dict[str, tuple[str, str]]:
    return {row["check"]: (row["status"], row["message"]) for row in answer.json["checks"]}


def test_init_twice_leaves_same_schema(command: Cli, monkeypatch: pytest.MonkeyPatch, empty_database_url: str) -> None:
    monkeypatch.setenv("CONSOLIDATION_DATABASE_URL", empty_database_url)
    first, second = command("init", "--json"), command("init", "--json")
    assert (first.code, second.code) == (0, 0)
    assert first.json == second.json
    assert first.json["embedded"] is False
    assert first.json["revision"]
    assert command("projects", "list").code == 0


def test_init_hides_database_password(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    url = os.environ["CONSOLIDATION_DATABASE_URL"]
    joint = "&" if "?" in url else "?"
    monkeypatch.setenv("CONSOLIDATION_DATABASE_URL", f"{url}{joint}password=hunter2")
    answer = cli("init")
    assert answer.code == 0
    assert answer.out.startswith("memories live in: Postgres at postgresql+psycopg://")
    assert "hunter2" not in answer.out + answer.err


@pytest.fixture
def dagster_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_POSTGRES_URL", "postgresql://me:hunter2@127.0.0.1:5432/runs")


@pytest.mark.usefixtures("dagster_url", "dagster_home")
def test_doctor_finds_no_problem_in_fresh_store(cli: Cli) -> None:
    answer = cli("doctor", "--json")
    assert answer.code == 0, answer
    assert answer.json["ok"] is True
    found = findings(answer)
    wrong = {name: message for name, message in found.items() if message[0] != "ok"}
    assert wrong.keys() == {"Dagster files"}, wrong  # tests have their own DAGSTER_HOME
    assert found["automation"][1].startswith("no daemon has run here")
    assert {"indexes", "search indexes", "stale vectors", "budget", "clock", "connections", "spans"} < set(found)
    assert {"database", "schema", "projects", "jobs", "vectors", "models", "embedding model", "disk"} < set(found)
    assert "pgvector 0." in found["database"][1]
    assert found["Dagster storage"][1] == "DAGSTER_POSTGRES_URL: postgresql+psycopg2://me:***@127.0.0.1:5432/runs"


def test_doctor_reports_unreachable_database_once(command: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_POSTGRES_URL", raising=False)
    monkeypatch.setenv("CONSOLIDATION_DATABASE_URL", "postgresql://me:hunter2@127.0.0.1:1/none")
    answer = command("doctor", "--json")
    assert (answer.code, answer.json["ok"]) == (1, False)
    found = findings(answer)
    assert [name for name, (status, _) in found.items() if status == "problem"] == ["database"]
    unchecked = ("warning", "not checked, as the database cannot be used")
    assert (found["language model"], found["automation"]) == (unchecked, unchecked)
    assert "hunter2" not in answer.out
    assert "problem" in command("doctor").out


@pytest.mark.usefixtures("dagster_url")
def test_doctor_reports_missing_schema(command: Cli, monkeypatch: pytest.MonkeyPatch, empty_database_url: str) -> None:
    monkeypatch.setenv("CONSOLIDATION_DATABASE_URL", empty_database_url)
    answer = command("doctor", "--json")
    assert answer.code == 1
    assert findings(answer)["schema"] == (
        "problem",
        next(message for _, message in findings(answer).values() if "consolidation init" in message),
    )


@pytest.mark.usefixtures("consolidated", "dagster_url")
def test_doctor_warns_of_dead_jobs_and_mixed_vectors(cli: Cli, engine: Engine, settings: Settings) -> None:
    with engine.connect() as connection:
        project = get_project(connection, "notes")
    with pytest.raises(KeyboardInterrupt), open_run(engine, "notes", settings=settings):
        raise KeyboardInterrupt
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE consolidation.consolidation_jobs SET status = 'running' WHERE status = 'cancelled'")
        )
        ids = connection.scalars(text("SELECT id FROM consolidation.task_memories ORDER BY id LIMIT 2")).all()
        change = "UPDATE consolidation.task_memories SET {} WHERE id = :id"
        connection.execute(
            text(change.format("embedding = NULL, embedding_model = NULL, embedding_dim = NULL")), {"id": ids[0]}
        )
        connection.execute(text(change.format("embedding_model = 'other'")), {"id": ids[1]})
    found = findings(cli("doctor", "--json"))
    assert {name: found[name][0] for name in ("jobs", "vectors", "models")} == dict.fromkeys(
        ("jobs", "vectors", "models"), "warning"
    )
    assert project.slug in found["jobs"][1]
    assert found["vectors"][1].startswith("1 memories of notes")
    assert "other" in found["models"][1]
    assert cli("status", "notes", "--json").json["status"] == "failed"
    assert findings(cli("doctor", "--json"))["jobs"][0] == "ok"


@pytest.mark.breaks_rules
@pytest.mark.usefixtures("consolidated", "dagster_url", "dagster_home")
def test_doctor_reports_damaged_store(cli: Cli, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("projects", "configure", "notes", "embedding_model=openai/text-embedding-3-small")
    monkeypatch.setattr(database_checks, "MIN_INDEXED_ROWS", 1)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "pigeon")
    with engine.begin() as connection:
        project = get_project(connection, "notes")
        append_event(connection, project.id, "budget.exhausted", {})
        connection.execute(text("DROP INDEX consolidation.llm_calls_job_id_idx"))
        invalid = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'consolidation.{}'::regclass"
        connection.execute(text(invalid.format("memory_lineage_parent_id_idx")))
        change = "UPDATE consolidation.consolidated_memories SET content = content || '!'"
        connection.execute(text(f"{change}, kind = 'pattern', abstraction_level = 2"))
    answer = cli("doctor", "--json")
    found = findings(answer)
    assert answer.code == 1
    assert {name for name, (status, _) in found.items() if status == "problem"} == {"indexes"}
    assert "llm_calls_job_id_idx is missing or incomplete: CREATE INDEX llm_calls_job_id_idx ON" in found["indexes"][1]
    assert "memory_lineage_parent_id_idx is missing or" in found["indexes"][1]
    warned = {name: message for name, (status, message) in found.items() if status == "warning"}
    assert warned.keys() == {"search indexes", "stale vectors", "budget", "spans", "Dagster files", "embedding model"}
    assert warned["search indexes"].startswith("1 vectors of ")
    assert "in notes, which has openai/text-embedding-3-small" in warned["stale vectors"]
    assert "in notes of texts that have changed since" in warned["stale vectors"]
    assert warned["budget"].startswith("notes met a budget today")
    with engine.begin() as connection:
        connection.execute(text("DROP EXTENSION vector CASCADE"))
    assert findings(cli("doctor", "--json"))["extension"][0] == "problem"


def test_doctor_reports_clock_difference(engine: Engine, settings: Settings) -> None:
    def at(seconds: float) -> tuple[str, str]:
        found = check_store(engine, settings, clock=lambda: datetime.now(UTC) + timedelta(seconds=seconds))
        return next((one.status, one.message) for one in found if one.check == "clock")

    assert at(0)[0] == "ok"
    assert at(30)[0] == at(-30)[0] == "warning"
    status, message = at(-90)
    assert status == "problem"
    assert re.search(r" (89|90)\.\d s apart", message)


def test_doctor_warns_of_full_server() -> None:
    dead = {"task_memories": (90_000, 10)}
    load = ServerLoad(datetime.now(UTC), 90, 97, 5_000_000_000, dead, 200_000, 128_000_000, 1_000_000_000)
    found = {finding.check: finding for finding in _check_load(load)}
    assert {name for name, finding in found.items() if finding.status == "warning"} == {
        "connections",
        "bloat",
        "outbox",
        "server memory",
    }
    assert found["database size"].message == "5.00 GB"


@pytest.mark.parametrize(
    ("folder", "message"), [(Path("/kept"), "compiles it first, and keeps it in /kept"), (None, "set NUMBA_CACHE_DIR")]
)
def test_doctor_does_not_compile_kernel(monkeypatch: pytest.MonkeyPatch, folder: Path | None, message: str) -> None:
    monkeypatch.setattr(doctor, "KERNEL", SimpleNamespace(is_kept=False, folder=folder))
    monkeypatch.setattr(doctor, "find_platform_problem", lambda: None)
    monkeypatch.setattr(doctor, "find_kernel_problem", lambda: pytest.fail("the kernel was compiled"))
    (finding,) = _check_join()
    assert (finding.status, finding.message.startswith("NumPy; ")) == ("ok", True)
    assert message in finding.message


@pytest.mark.parametrize(
    ("reason", "message"), [(None, "compiled for this processor"), ("it is wrong", "NumPy: it is wrong")]
)
def test_doctor_tries_cached_kernel(monkeypatch: pytest.MonkeyPatch, reason: str | None, message: str) -> None:
    monkeypatch.setattr(doctor, "KERNEL", SimpleNamespace(is_kept=True))
    monkeypatch.setattr(doctor, "find_platform_problem", lambda: None)
    monkeypatch.setattr(doctor, "find_kernel_problem", lambda: reason)
    assert [(finding.status, finding.message) for finding in _check_join()] == [("ok", message)]


@pytest.mark.usefixtures("dagster_home")
def test_doctor_reports_disabled_automation(cli: Cli) -> None:
    del cli
    with dg.DagsterInstance.get() as instance:
        now = datetime.now(UTC)
        instance.add_daemon_heartbeat(DaemonHeartbeat(now.timestamp(), "SENSOR", "d1", []))
    found = find_automation()
    assert (found.on, found.daemon_seen) == (["consolidation_job_status_sensor"], now)
    assert {"consolidation_nightly", "consolidation_requested_jobs_sensor"} < set(found.off)
    (finding,) = _check_automation(found)
    assert (finding.status, "requested_jobs_sensor" in finding.message) == ("warning", True)
    (late,) = _check_automation(replace(found, daemon_seen=now - timedelta(hours=1)))
    assert (late.status, "last seen" in late.message) == ("warning", True)
    (fine,) = _check_automation(replace(found, off=[]))
    assert fine.status == "ok"


@pytest.mark.usefixtures("dagster_home")
def test_doctor_warns_of_other_dagster_folder(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DAGSTER_POSTGRES_URL", "postgresql://me@127.0.0.1/runs")
    answer = cli("doctor", "--json")
    assert answer.code == 0
    assert findings(answer)["Dagster files"][0] == "warning"
    assert str(tmp_path) in findings(answer)["Dagster files"][1]


HEARTBEATS = (
    "CREATE TABLE daemon_heartbeats AS SELECT (now() - make_interval(days => 1)) AT TIME ZONE 'UTC' AS timestamp"
)


@pytest.mark.parametrize(("table", "message"), [(None, "no daemon has run here"), (HEARTBEATS, "last seen at")])
def test_doctor_asks_dagster_of_running_daemon_only(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, empty_database_url: str, table: str | None, message: str
) -> None:
    (Path(os.environ["DAGSTER_HOME"]) / "dagster.yaml").write_text("storage: ConsolidationPostgresStorage\n")
    monkeypatch.setenv("DAGSTER_POSTGRES_URL", empty_database_url)
    monkeypatch.setattr("consolidation_pipeline.launch.find_automation", lambda: pytest.fail("Dagster is asked"))
    if table is not None:
        with connect_engine(with_driver(empty_database_url, "psycopg")).begin() as connection:
            connection.execute(text(table))
    assert message in findings(cli("doctor", "--json"))["automation"][1]


class ReplacedError(Exception):
    """Raised where the process would be replaced."""


@pytest.fixture
def dev_call(command: Cli, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Call that would replace the process of `dev`; its Dagster instance is ``instance``."""
    del command
    seen: dict[str, Any] = {"instance": dg.DagsterInstance.ephemeral()}

    def replace(program: str, arguments: list[str]) -> None:
        seen.update(program=program, arguments=" ".join(arguments[1:]), folder=Path.cwd())
        seen["automation"] = os.environ["CONSOLIDATION_AUTOMATION"]
        raise ReplacedError

    monkeypatch.setattr(dg.DagsterInstance, "get", lambda: nullcontext(seen["instance"]))
    monkeypatch.setattr(os, "execv", replace)
    monkeypatch.setenv("CONSOLIDATION_AUTOMATION", "")
    monkeypatch.chdir(Path.cwd())
    return seen


@pytest.mark.usefixtures("consolidated")
def test_dev_registers_projects_and_starts_dagster(cli: Cli, dev_call: dict[str, Any]) -> None:
    assert cli("projects", "create", "later").code == 0
    answer = cli("dev", "--port", free_port())
    assert "unexpected ReplacedError" in answer.err
    assert dev_call["program"] == sys.executable
    workspace = PROJECT_ROOT / "workspace.yaml"
    assert dev_call["arguments"].startswith(
        f"-m dagster_dg_cli.cli dev --workspace {workspace} --host 127.0.0.1 --port "
    )
    assert (dev_call["folder"], dev_call["automation"]) == (Path(os.environ["DAGSTER_HOME"]), "running")
    assert set(dev_call["instance"].get_dynamic_partitions("consolidation_projects")) == {"notes", "later"}


@pytest.mark.parametrize(
    ("home", "has_dg", "expected"),
    [
        (PROJECT_ROOT, True, "dagster_dg_cli.cli dev --use-active-venv"),
        (PROJECT_ROOT.parent, True, f"dagster_dg_cli.cli dev --workspace {PROJECT_ROOT / 'workspace.yaml'}"),
        (PROJECT_ROOT, False, f"dagster dev --workspace {PROJECT_ROOT / 'workspace.yaml'}"),
    ],
)
def test_dev_uses_dg_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, home: Path, has_dg: bool, expected: str
) -> None:
    monkeypatch.setattr(setup, "find_spec", lambda _: object() if has_dg else None)
    assert " ".join(setup._make_dev_command(home)) == expected


def test_dev_refuses_a_used_port(cli: Cli, dev_call: dict[str, Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        answer = cli("dev", "--port", other.getsockname()[1])
    assert (answer.code, "another program uses it" in answer.err) == (1, True)
    assert "arguments" not in dev_call


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
