"""Sessions in a browser: signed, ending, and never the key itself."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from consolidation_pipeline.service.admin.api_keys import create_key, revoke_key
from consolidation_pipeline.service.admin.browser_sessions import LASTS_SECONDS, Sessions, load_secret
from consolidation_pipeline.store.database.engine import Engine

SECRET = b"s" * 32


def test_a_session_is_of_its_key_until_it_ends(engine: Engine) -> None:
    now = [1000.0]
    sessions = Sessions(SECRET, clock=lambda: now[0])
    key, secret = create_key(engine, role="reader", name="anna")
    token = sessions.begin(key.id)
    found = sessions.identify(engine, token)
    assert found is not None
    assert (found.name, found.role, found.key_id) == ("anna", "reader", key.id)
    assert secret not in token
    now[0] += LASTS_SECONDS
    assert sessions.identify(engine, token) is None


def test_revoking_the_key_ends_its_sessions(engine: Engine) -> None:
    sessions = Sessions(SECRET)
    key, _ = create_key(engine, role="admin")
    token = sessions.begin(key.id)
    revoke_key(engine, key.id)
    assert sessions.identify(engine, token) is None
    assert sessions.is_valid(token)


def test_a_token_that_was_changed_or_signed_by_another_is_none(engine: Engine) -> None:
    sessions, key = Sessions(SECRET), create_key(engine, role="admin")[0]
    token = sessions.begin(key.id)
    parts = token.split(".")
    later = ".".join([parts[0], str(int(parts[1]) + 1), *parts[2:]])
    other = ".".join([uuid4().hex, *parts[1:]])
    for wrong in (later, other, token[:-1], token + "x", "", ".", "...", "é.1.2.3", Sessions(b"t" * 32).begin(key.id)):
        assert not sessions.is_valid(wrong), wrong
        assert sessions.identify(engine, wrong) is None


def test_nobody_has_a_session_too_but_is_nobody(engine: Engine) -> None:
    sessions = Sessions(SECRET)
    token = sessions.begin(None)
    assert sessions.is_valid(token)
    assert sessions.identify(engine, token) is None


def test_the_token_of_forms_is_that_of_one_session() -> None:
    sessions = Sessions(SECRET)
    one, other = sessions.begin(None), sessions.begin(None)
    assert sessions.fits(one, sessions.form_token(one))
    assert not sessions.fits(one, sessions.form_token(other))
    assert not sessions.fits(one, "")
    assert not sessions.is_valid(sessions.form_token(one))


def test_processes_with_one_data_folder_share_the_secret_and_nobody_else_reads_it(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    assert load_secret(folder) == load_secret(folder)
    assert len(load_secret(folder)) == 32
    (file,) = folder.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def test_without_a_folder_to_write_to_each_process_has_its_own(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    assert load_secret(tmp_path / "file") != load_secret(tmp_path / "file")
