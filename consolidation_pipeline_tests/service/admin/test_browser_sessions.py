"""Browser sessions: signed, limited in time, without the key itself."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from consolidation_pipeline.service.admin.api_keys import create_key, revoke_key
from consolidation_pipeline.service.admin.browser_sessions import SESSION_SECONDS, BrowserSessions, load_signing_secret
from consolidation_pipeline.store.database.engine import Engine

SECRET = b"s" * 32


def test_session_identifies_its_key_until_it_expires(engine: Engine) -> None:
    now = [1000.0]
    sessions = BrowserSessions(SECRET, clock=lambda: now[0])
    key, secret = create_key(engine, role="reader", name="anna")
    token = sessions.create_token(key.id)
    found = sessions.find_principal(engine, token)
    assert found is not None
    assert (found.name, found.role, found.key_id) == ("anna", "reader", key.id)
    assert secret not in token
    now[0] += SESSION_SECONDS
    assert sessions.find_principal(engine, token) is None


def test_revoking_key_ends_its_sessions(engine: Engine) -> None:
    sessions = BrowserSessions(SECRET)
    key, _ = create_key(engine, role="admin")
    token = sessions.create_token(key.id)
    revoke_key(engine, key.id)
    assert sessions.find_principal(engine, token) is None
    assert sessions.is_valid(token)


def test_tampered_session_token_is_rejected(engine: Engine) -> None:
    sessions, key = BrowserSessions(SECRET), create_key(engine, role="admin")[0]
    token = sessions.create_token(key.id)
    parts = token.split(".")
    later = ".".join([parts[0], str(int(parts[1]) + 1), *parts[2:]])
    other = ".".join([uuid4().hex, *parts[1:]])
    for wrong in (
        later,
        other,
        token[:-1],
        token + "x",
        "",
        ".",
        "...",
        "é.1.2.3",
        BrowserSessions(b"t" * 32).create_token(key.id),
    ):
        assert not sessions.is_valid(wrong), wrong
        assert sessions.find_principal(engine, wrong) is None


def test_anonymous_session_has_no_principal(engine: Engine) -> None:
    sessions = BrowserSessions(SECRET)
    token = sessions.create_token(None)
    assert sessions.is_valid(token)
    assert sessions.find_principal(engine, token) is None


def test_form_token_belongs_to_one_session() -> None:
    sessions = BrowserSessions(SECRET)
    one, other = sessions.create_token(None), sessions.create_token(None)
    assert sessions.is_valid_form(one, sessions.form_token(one))
    assert not sessions.is_valid_form(one, sessions.form_token(other))
    assert not sessions.is_valid_form(one, "")
    assert not sessions.is_valid(sessions.form_token(one))


def test_signing_secret_is_shared_and_private(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    assert load_signing_secret(folder) == load_signing_secret(folder)
    assert len(load_signing_secret(folder)) == 32
    (file,) = folder.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def test_unwritable_folder_gives_secret_per_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    assert load_signing_secret(tmp_path / "file") != load_signing_secret(tmp_path / "file")
