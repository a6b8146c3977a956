"""API keys: shown once, stored as a hash, limited to a role and a project, rejected once revoked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text

from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.service.admin.api_keys import LOCAL, PREFIX, authenticate, create_key, list_keys, revoke_key
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.projects import create_project, delete_project
from consolidation_pipeline_tests.database_pool import DatabasePool


@pytest.fixture(scope="module")
def engine(databases: DatabasePool) -> Iterator[Engine]:
    """Engine on one database for all tests, each with keys of its own."""
    with databases.engine() as engine:
        with engine.begin() as connection:
            create_project(connection, "garden")
            create_project(connection, "shop")
        yield engine


def dump_keys(engine: Engine) -> str:
    """Return the content of the table of keys."""
    with engine.connect() as connection:
        return str(connection.execute(text("SELECT * FROM consolidation.api_keys")).all())


def load_use(engine: Engine, id_: Any) -> Any:
    query = "SELECT last_used_at, xmin::text FROM consolidation.api_keys WHERE id = :id"
    with engine.connect() as connection:
        return connection.execute(text(query), {"id": id_}).one()


def test_api_key_identifies_caller_and_is_hashed(engine: Engine) -> None:
    key, secret = create_key(engine, role="agent", project="garden", name="ci")
    assert secret.startswith(PREFIX)
    assert len(secret) == len(PREFIX) + 43
    principal = authenticate(engine, secret)
    assert principal is not None
    assert (principal.role, principal.project, principal.key_id, principal.name) == ("agent", "garden", key.id, "ci")
    assert secret not in dump_keys(engine)
    assert secret.removeprefix(PREFIX) not in dump_keys(engine)
    assert create_key(engine, role="agent")[1] != secret


def test_role_includes_lower_roles(engine: Engine) -> None:
    may = {}
    for role in ("reader", "agent", "admin"):
        principal = authenticate(engine, create_key(engine, role=role)[1])
        assert principal is not None
        may[role] = [needed for needed in ("reader", "agent", "admin") if principal.has_role(needed)]
    assert may == {"reader": ["reader"], "agent": ["reader", "agent"], "admin": ["reader", "agent", "admin"]}
    assert LOCAL.has_role("admin")


def test_scoped_key_accesses_only_its_project(engine: Engine) -> None:
    scoped = authenticate(engine, create_key(engine, role="admin", project="garden")[1])
    whole = authenticate(engine, create_key(engine, role="reader")[1])
    assert scoped is not None
    assert whole is not None
    assert scoped.project_id is not None
    assert (scoped.can_access(scoped.project_id), scoped.can_access(uuid4())) == (True, False)
    assert (whole.project_id, whole.can_access(uuid4())) == (None, True)


@pytest.mark.parametrize(
    "secret",
    [
        "",
        PREFIX,
        PREFIX + "A" * 43,
        PREFIX + "A" * 10**6,
        PREFIX + "\0" * 43,
        "\ud800" * 48,
        PREFIX + "é" * 43,
        "' OR 1=1",
    ],
)
def test_malformed_key_is_rejected(engine: Engine, secret: str) -> None:
    assert authenticate(engine, secret) is None


def test_key_with_changed_characters_is_rejected(engine: Engine) -> None:
    _, secret = create_key(engine, role="admin")
    assert [authenticate(engine, wrong) for wrong in (secret + "\n", " " + secret, secret[:-1], secret.upper())] == [
        None
    ] * 4


def test_revoked_key_is_rejected_and_stays_listed(engine: Engine) -> None:
    key, secret = create_key(engine, role="reader", name="old laptop")
    revoked = revoke_key(engine, key.id)
    assert revoked.revoked_at is not None
    assert authenticate(engine, secret) is None
    assert revoke_key(engine, "old laptop") == revoked
    assert revoked in list_keys(engine)


def test_revoking_ambiguous_key_name_is_refused(engine: Engine) -> None:
    made = [create_key(engine, role="reader", name="twin")[0] for _ in range(2)]
    with pytest.raises(ConflictError, match="2 keys are named 'twin'") as caught:
        revoke_key(engine, "twin")
    assert set(caught.value.conflicts) == {str(key.id) for key in made}
    revoke_key(engine, str(made[0].id))
    assert revoke_key(engine, "twin").id == made[1].id


def test_key_use_is_recorded_once_per_minute(engine: Engine) -> None:
    key, secret = create_key(engine, role="reader")
    assert load_use(engine, key.id).last_used_at is None
    authenticate(engine, secret)
    first = load_use(engine, key.id)
    assert first.last_used_at is not None
    authenticate(engine, secret)
    assert load_use(engine, key.id) == first
    with engine.begin() as connection:
        back = "UPDATE consolidation.api_keys SET last_used_at = now() - interval '2 minutes' WHERE id = :id"
        connection.execute(text(back), {"id": key.id})
    authenticate(engine, secret)
    assert load_use(engine, key.id).last_used_at > first.last_used_at


def test_deleting_project_invalidates_its_key(engine: Engine) -> None:
    with engine.begin() as connection:
        gone = create_project(connection, "gone")
    _, secret = create_key(engine, role="admin", project="gone")
    with engine.begin() as connection:
        delete_project(connection, gone)
    assert authenticate(engine, secret) is None


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"role": "root"}, UsageError, "the roles are reader, agent, admin"),
        ({"role": "agent", "project": "nowhere"}, NotFoundError, "garden"),
        ({"role": "agent", "name": " "}, UsageError, "printable"),
        ({"role": "agent", "name": "a\0b"}, UsageError, "printable"),
        ({"role": "agent", "name": "x" * 201}, UsageError, "200"),
    ],
)
def test_invalid_key_fields_are_refused(
    engine: Engine, wrong: dict[str, Any], error: type[Exception], message: str
) -> None:
    before = len(list_keys(engine))
    with pytest.raises(error, match=message):
        create_key(engine, **wrong)
    assert len(list_keys(engine)) == before


def test_revoking_unknown_key_is_refused(engine: Engine) -> None:
    for reference in (uuid4(), "nobody", "\0"):
        with pytest.raises(NotFoundError, match="keys list"):
            revoke_key(engine, reference)
