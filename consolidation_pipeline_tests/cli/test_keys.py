"""`keys`: create, list and revoke."""

from __future__ import annotations

import logging

import pytest

from consolidation_pipeline.service.admin.api_keys import authenticate
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline_tests.cli.conftest import Cli


def test_key_is_shown_once(cli: Cli, engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    cli("projects", "create", "notes")
    made = cli("keys", "create", "--role", "agent", "--project", "notes", "--name", "ci")
    secret = made.out.removesuffix("\n")
    principal = authenticate(engine, secret)
    assert principal is not None
    assert (principal.role, principal.project) == ("agent", "notes")
    assert "not shown again" in made.err
    listed = cli("keys", "list")
    assert [word in listed.out for word in ("ci", "agent", "notes", str(principal.key_id))] == [True] * 4
    revoked = cli("keys", "revoke", "ci")
    assert f"{principal.key_id} (ci) is revoked" in revoked.out
    everywhere = made.err + listed.out + listed.err + revoked.out + revoked.err + cli("keys", "list", "--json").out
    assert secret not in everywhere + caplog.text
    assert authenticate(engine, secret) is None


def test_keys_are_listed_as_json(cli: Cli) -> None:
    assert cli("keys", "list", "--json").json == {"keys": []}
    assert "no keys yet" in cli("keys", "list").out
    made = cli("keys", "create", "--role", "admin", "--json").json
    assert (made["role"], made["project"], made["name"]) == ("admin", None, "admin of all projects")
    secret = made.pop("key")
    assert secret.startswith("cnsl_")
    assert cli("keys", "list", "--json").json == {"keys": [made]}
    assert cli("keys", "revoke", made["id"][:8], "--json").json["revoked_at"] is not None
    assert cli("keys", "create", "--role", "root", "--json").code == 2


def test_key_of_a_scope_needs_project_and_low_role(cli: Cli) -> None:
    cli("projects", "create", "notes")
    made = cli("keys", "create", "--role", "agent", "--project", "notes", "--scope", "ada", "--json").json
    assert (made["scope"], made["name"]) == ("ada", "agent of notes, scope ada")
    assert "ada" in cli("keys", "list").out
    for arguments, message in (
        (("--role", "agent"), "needs a project"),
        (("--role", "admin", "--project", "notes"), "has the role reader or agent"),
    ):
        refused = cli("keys", "create", *arguments, "--scope", "ada")
        assert (refused.code, message in refused.err) == (2, True)
