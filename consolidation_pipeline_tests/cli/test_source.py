"""`connect` and `source`: a store from the first look to the last trace."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from consolidation_pipeline_tests.cli.conftest import Cli
from consolidation_pipeline_tests.database_pool import temporary_database
from consolidation_pipeline_tests.service.sources.stores import FACTS, MEM0, USERS, WORDINGS, Store, all_wordings

CONNECT = ("connect", "mem0", "--url-env", "MEM0_URL", "--project", "shop", "--embedding-model", "local")
GROUPS = len(FACTS) * len(USERS)
DISCONNECT = ("source", "disconnect", "shop-mem0", "--restore")


@pytest.fixture
def store(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Filled collection of mem0 in a database that the environment names."""
    with temporary_database(server) as url, psycopg.connect(url, autocommit=True) as connection:
        monkeypatch.setenv("MEM0_URL", url)
        connection.execute("CREATE EXTENSION vector")
        connection.execute(MEM0.create)
        filled = Store(MEM0, connection)
        filled.add(all_wordings())
        yield filled


def test_store_is_connected_written_and_disconnected(store: Store, cli: Cli) -> None:
    before = store.checksum()
    connected = cli(*CONNECT, "--mode", "review", "--yes")
    assert connected.code == 0, connected
    assert "24 in 2 scopes" in connected.err
    assert "24 memories added, 24 with their vectors" in connected.out
    assert cli("run", "shop", "--json").code == 0
    assert "0 added, 0 revised, 0 gone" in cli("source", "sync", "shop-mem0").out
    diff = cli("source", "diff", "shop-mem0")
    assert f"{GROUPS} groups; {GROUPS * (WORDINGS - 1)} rows would be hidden" in diff.out
    assert "next: consolidation source write shop-mem0 ID.." in diff.err
    chosen = cli("source", "diff", "shop-mem0", "--json").json["groups"][0]["memory_id"]
    written = cli("source", "write", "shop-mem0", chosen, "--json").json["write"]
    assert (written["written"], written["hidden"]) == (1, WORDINGS - 1)
    assert len(store.texts()) == GROUPS * WORDINGS - WORDINGS + 1
    assert "shop-mem0" in cli("source", "list").out
    assert cli("source", "undo", "shop-mem0", chosen).code == 0
    assert store.checksum() == before
    assert cli("source", "disconnect", "shop-mem0", "--restore").code == 0
    assert store.checksum() == before
    assert cli("source", "list", "--json").json == {"sources": []}
    assert "0 memories added, 0 with their vectors; 0 refused; 24 are here already" in cli(*CONNECT, "--yes").out


def test_diff_shows_all_of_a_text_that_is_added(store: Store, cli: Cli) -> None:
    text = "The parser tests need the fixture folder mounted read-only"
    ends = ("and a fresh cache to pass on the build machine", "to pass on the build machine and on laptops")
    store.add([("alice", f"{text} {end}") for end in ends])
    assert cli(*CONNECT, "--mode", "review", "--yes").code == 0
    assert cli("run", "shop", "--json").code == 0
    (added,) = [line for line in cli("source", "diff", "shop-mem0").out.splitlines() if line.startswith("  add ")]
    assert all(end in added for end in ends)


def test_connect_asks_before_it_connects(store: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    del store
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    answer = cli(*CONNECT)
    assert answer.code != 0
    assert "not confirmed, nothing was done" in answer.err
    assert "nothing is changed in the store" in answer.err
    assert cli("source", "list", "--json").json == {"sources": []}


def test_connect_refuses_names_before_it_asks(store: Store, cli: Cli) -> None:
    del store
    for given, told in (
        (["--project", "x y"], "project 'x y' is not allowed"),
        (["--name", "api"], "a source cannot be named api"),
        (["--mode", "all"], "mode is 'all': expected one of"),
    ):
        answer = cli(*CONNECT, *given)
        assert answer.code == 2
        assert told in answer.err
        assert "memories" not in answer.err.replace("memories that are added one by one", "")


@pytest.mark.slow
def test_restore_needs_only_the_store(store: Store, cli: Cli) -> None:
    before = store.checksum()
    assert cli(*CONNECT, "--mode", "review", "--yes", "--json").json["sync"]["added"] == len(all_wordings())
    assert cli("run", "shop", "--json").code == 0
    chosen = [group["memory_id"] for group in cli("source", "diff", "shop-mem0", "--json").json["groups"]]
    assert cli("source", "write", "shop-mem0", *chosen, "--json").json["write"]["written"] == GROUPS
    assert cli("source", "restore", "--url-env", "MEM0_URL").code == 0
    assert store.checksum() == before


@pytest.mark.slow
def test_conflicting_undo_is_told_with_the_rows(store: Store, cli: Cli) -> None:
    assert cli(*CONNECT, "--mode", "review", "--yes", "--json").code == 0
    assert cli("run", "shop", "--json").code == 0
    group = cli("source", "diff", "shop-mem0", "--json").json["groups"][0]
    assert cli("source", "write", "shop-mem0", group["memory_id"]).code == 0
    store.connection.execute("DELETE FROM mem0 WHERE id = %s", [group["keep"]])
    answer = cli("source", "undo", "shop-mem0")
    assert answer.code == 3
    assert f"the kept row was deleted, mem0 {group['keep']}" in answer.err
    hidden = sorted(key for key in group["stamps"] if key != group["keep"])
    for command in (("disconnect", "shop-mem0", "--restore"), ("restore", "--url-env", "MEM0_URL")):
        assert cli("source", "sync", "shop-mem0").code == 0
        refused = cli("source", *command)
        assert refused.code == 3
        assert f"2 rows still hidden: {', '.join(hidden)}" in refused.err
    assert "To leave them so: DROP SCHEMA consolidation_sidecar CASCADE, in the store" in refused.err
    assert "To leave them so: consolidation source disconnect shop-mem0 --keep" in cli(*DISCONNECT).err
    assert cli("source", "disconnect", "shop-mem0", "--keep").code == 0
    again = cli(*CONNECT, "--mode", "review", "--yes")
    assert again.code == 3
    assert "`consolidation source restore --url-env MEM0_URL` shows them again" in again.err


def test_view_is_not_advised_to_take_mode_review(store: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    store.connection.execute("CREATE VIEW shown AS SELECT id, payload FROM mem0")
    place = ("--table", "shown", "--key", "id", "--text", "payload.data", "--scope", "user_id=payload.user_id")
    assert cli("connect", "table", "--url-env", "MEM0_URL", "--project", "shop", *place, "--yes").code == 0
    assert cli("run", "shop", "--json").code == 0
    diff = cli("source", "diff", "shop-table")
    assert f"{GROUPS} groups" in diff.out
    assert "note: in mode mirror nothing is written, and mode review needs a table, and shown is none" in diff.err
    written = cli("source", "write", "shop-table", "--all")
    assert (written.code, "source mode" in written.err) == (2, False)
    assert "source shop-table: in mode mirror nothing is written, and mode review needs a table" in written.err
    assert cli("source", "mode", "shop-table", "review").code == 2
    monkeypatch.setenv("MEM0_URL", "postgresql://me@127.0.0.1:1/x")
    unreachable = cli("source", "diff", "shop-table")
    assert (unreachable.code, "to write: consolidation source mode" in unreachable.err) == (0, True)


def test_unknown_mode_is_refused(store: Store, cli: Cli) -> None:
    del store
    answer = cli(*CONNECT, "--mode", "overwrite", "--yes")
    assert answer.code == 2
    assert "expected one of mirror, review, write" in answer.err


def test_everything_shown_is_written_at_once(store: Store, cli: Cli) -> None:
    assert cli(*CONNECT, "--yes").code == 0
    assert cli("run", "shop", "--json").code == 0
    assert "to write: consolidation source mode shop-mem0 review" in cli("source", "diff", "shop-mem0").err
    assert cli("source", "write", "shop-mem0", "--all").code == 2
    assert "shop-mem0 is in mode review" in cli("source", "mode", "shop-mem0", "review").out
    assert cli("source", "write", "shop-mem0", "--all", "--json").json["write"]["written"] == GROUPS
    assert len(store.texts()) == GROUPS
    assert cli("source", "write", "shop-mem0", "--all", "3da4125e-7674-5b2b-8df6-0dbdb0e6c7e3").code == 2


def test_plan_is_tried_shortened_and_written(store: Store, cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    assert cli(*CONNECT, "--mode", "review", "--yes").code == 0
    assert cli("run", "shop", "--json").code == 0
    diff = cli("source", "diff", "shop-mem0", "--gate", "--out", str(path), "--limit", "1")
    assert "gate  found at place 1 or better for 3 texts; 1 links would be changed" in diff.out
    assert f"{GROUPS} groups; {GROUPS * (WORDINGS - 1)} rows would be hidden; 0 groups would be refused" in diff.out
    assert f"apply: consolidation source write shop-mem0 --plan {path}" in diff.out
    plan = json.loads(path.read_text())
    dropped = plan["groups"].pop()["id"]
    path.write_text(json.dumps(plan))
    written = cli("source", "write", "shop-mem0", "--plan", str(path), "--json").json["write"]
    assert written["written"] == GROUPS - 1
    assert [group["id"] for group in cli("source", "diff", "shop-mem0", "--json").json["groups"]] == [dropped]
    assert cli("rollback", plan["groups"][0]["id"]).code == 0
    assert len(store.texts()) == GROUPS + 2 * (WORDINGS - 1)
    again = cli("source", "write", "shop-mem0", "--plan", str(path))
    assert again.code == 3
    assert "nothing was written: group" in again.err


def test_printed_diff_is_a_plan_of_its_groups(store: Store, cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    assert cli(*CONNECT, "--mode", "review", "--yes").code == 0
    assert cli("run", "shop", "--json").code == 0
    path.write_text(cli("source", "diff", "shop-mem0", "--limit", "2", "--json").out)
    assert "2 groups written" in cli("source", "write", "shop-mem0", "--plan", str(path)).out
    assert len(store.texts()) == (GROUPS - 2) * WORDINGS + 2


def test_rows_to_be_shown_again_are_told_before(store: Store, cli: Cli, tmp_path: Path) -> None:
    assert cli(*CONNECT, "--mode", "review", "--yes").code == 0
    assert cli("run", "shop", "--json").code == 0
    waiting = cli("source", "write", "shop-mem0")
    assert f"{GROUPS} groups wait: in mode review what you name is written" in waiting.err
    assert cli("source", "write", "shop-mem0", "--json").json["write"]["waiting_for"] == {"review": GROUPS}
    group = cli("source", "diff", "shop-mem0", "--json").json["groups"][0]
    assert cli("source", "write", "shop-mem0", "--all").code == 0
    edit = "UPDATE mem0 SET payload = jsonb_set(payload, '{data}', to_jsonb('Lunch is at noon'::text)) WHERE id = %s"
    store.connection.execute(edit, [group["keep"]])
    assert "1 revised" in cli("source", "sync", "shop-mem0").out
    diff = cli("source", "diff", "shop-mem0", "--out", str(tmp_path / "plan.json"))
    assert f"{group['id']}  its merged memory is not there any more" in diff.out
    assert diff.out.count("\n  show  ") == WORDINGS - 1
    assert f"0 groups; 0 rows would be hidden; {WORDINGS - 1} rows would be shown again" in diff.out
    assert len(store.texts()) == GROUPS
    written = cli("source", "write", "shop-mem0", "--plan", str(tmp_path / "plan.json"))
    assert "1 earlier write undone, as its merged memory is not there any more" in written.out
    assert len(store.texts()) == GROUPS + WORDINGS - 1


def test_refusals_name_the_group_of_the_diff(store: Store, cli: Cli) -> None:
    assert cli(*CONNECT, "--mode", "review", "--yes").code == 0
    assert cli("run", "shop", "--json").code == 0
    group = cli("source", "diff", "shop-mem0", "--json").json["groups"][0]
    store.connection.execute("DELETE FROM mem0 WHERE id = %s", [group["keep"]])
    refused = cli("source", "write", "shop-mem0", group["id"][:8])
    assert f"refused {group['id']}: 1 of its 3 rows changed or are gone" in refused.err
    assert refused.code == cli("source", "write", "shop-mem0", group["id"], "--json").code == 3
    other = cli("source", "diff", "shop-mem0", "--json").json["groups"][1]
    assert cli("source", "write", "shop-mem0", other["id"]).code == 0
    assert f"{other['id']} is written to shop-mem0 already" in cli("source", "write", "shop-mem0", other["id"]).err
    store.connection.execute("DELETE FROM mem0 WHERE id = %s", [other["keep"]])
    assert f"{other['id']}: the kept row was deleted" in cli("source", "undo", "shop-mem0").err


def test_end_of_a_store_that_is_gone_is_named(store: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    del store
    assert cli(*CONNECT, "--mode", "review", "--yes").code == 0
    monkeypatch.setenv("MEM0_URL", "postgresql://me@127.0.0.1:1/gone")
    for end in ("--restore", "--keep"):
        answer = cli("source", "disconnect", "shop-mem0", end)
        assert answer.code != 0
        assert "consolidation source disconnect shop-mem0 --forget" in answer.err
    assert "--forget" not in cli("source", "disconnect", "shop", "--keep").err


def test_wrong_plan_files_and_options_are_refused(store: Store, cli: Cli, tmp_path: Path) -> None:
    del store
    path = tmp_path / "plan.json"
    path.write_text('{"format": 2}')
    assert cli(*CONNECT, "--mode", "review", "--yes").code == 0
    answer = cli("source", "write", "shop-mem0", "--plan", str(path))
    assert answer.code == 2
    assert "is not a plan of `consolidation source diff --out`" in answer.err
    assert cli("source", "write", "shop-mem0", "--plan", str(path), "--all").code == 2
    assert answer.err.count("format: expected 1, not 2") == 1
    path.write_text("{")
    assert "diff --out`: it is no JSON" in cli("source", "write", "shop-mem0", "--plan", str(path)).err
    assert "give --gate too" in cli("source", "diff", "shop-mem0", "--copy-url-env", "MEM0_URL").err
    assert "cannot be written" in cli("source", "diff", "shop-mem0", "--out", str(tmp_path)).err


def test_store_that_is_gone_is_forgotten(store: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli(*CONNECT, "--mode", "review", "--yes").code == 0
    assert cli("run", "shop", "--json").code == 0
    assert cli("source", "write", "shop-mem0", "--all").code == 0
    with monkeypatch.context() as patch:
        patch.setenv("MEM0_URL", "postgresql://nobody@127.0.0.1:1/none")
        assert cli("source", "disconnect", "shop-mem0", "--keep").code == 1
        assert cli("source", "disconnect", "shop-mem0", "--keep", "--forget").code == 2
        assert cli("source", "disconnect", "shop-mem0").code == 2
        forgotten = cli("source", "disconnect", "shop-mem0", "--forget")
    assert (forgotten.code, forgotten.out.strip()) == (0, "shop-mem0 is forgotten")
    assert f"and {GROUPS} written groups: consolidation source restore --url-env MEM0_URL" in forgotten.err
    assert cli("source", "list", "--json").json == {"sources": []}
    assert cli("source", "restore", "--url-env", "MEM0_URL").code == 0
    assert len(store.texts()) == len(all_wordings())


def test_project_that_hides_rows_is_not_deleted(store: Store, cli: Cli) -> None:
    before = store.checksum()
    assert cli(*CONNECT, "--mode", "review", "--yes").code == 0
    assert "; connected: shop-mem0; confirm with --yes" in cli("projects", "delete", "shop").err
    assert cli("run", "shop", "--json").code == 0
    assert cli("source", "write", "shop-mem0", "--all").code == 0
    told = f"shop-mem0 with {GROUPS * 2} rows hidden there, `consolidation source disconnect shop-mem0 --restore`"
    for options, code in (((), 2), (("--yes",), 3), (("--keep",), 2)):
        refused = cli("projects", "delete", "shop", *options)
        assert (refused.code, told in refused.err) == (code, True)
    deleted = cli("projects", "delete", "shop", "--yes", "--keep")
    assert deleted.code == 0
    assert "consolidation source restore --url-env MEM0_URL undoes it" in deleted.err
    assert len(store.texts()) == GROUPS
    assert cli("source", "restore", "--url-env", "MEM0_URL").code == 0
    assert store.checksum() == before


def test_project_without_hidden_rows_is_deleted(store: Store, cli: Cli) -> None:
    assert cli(*CONNECT, "--mode", "review", "--yes").code == 0
    assert cli("run", "shop", "--json").code == 0
    assert cli("source", "write", "shop-mem0", "--all").code == 0
    assert cli("source", "undo", "shop-mem0").code == 0
    deleted = cli("projects", "delete", "shop", "--yes")
    assert (deleted.code, "consolidation source restore --url-env MEM0_URL undoes it" in deleted.err) == (0, True)
    assert cli("source", "restore", "--url-env", "MEM0_URL").code == 0
    assert len(store.texts()) == len(all_wordings())
