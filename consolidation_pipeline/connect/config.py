"""Configuration of a connected store: from what people give to a mapping, and to a connection."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from consolidation_pipeline.connect import presets
from consolidation_pipeline.connect.folder_config import FOLDER
from consolidation_pipeline.connect.mapping import Field as StoreField
from consolidation_pipeline.connect.mapping import TableMapping, Vector
from consolidation_pipeline.connect.store import StoreConfig
from consolidation_pipeline.core.invalid_values import explain_errors
from consolidation_pipeline.errors import ConflictError, StoreError, UsageError
from consolidation_pipeline.scopes import COLUMNS

# Connection to the database of a store, in autocommit.
StoreConnection = psycopg.Connection[Any]

TABLE = "table"
KINDS = (*presets.PRESETS, TABLE)
# For so long a lock in the store is waited for. Its program is held up meanwhile: Postgres queues it behind us, or it
# needs a row that we hold already.
_LOCK_TIMEOUT = "100ms"

# Errors by which constraints, triggers and rules of the store's program forbid a change.
_FORBIDDEN = (
    psycopg.errors.IntegrityError,
    psycopg.errors.RaiseException,
    psycopg.errors.TriggeredDataChangeViolation,
    psycopg.errors.FeatureNotSupported,
)

# Images of rows and keys are text: it must hold every digit, and be read alike in any other session.
_SET_SESSION = """
    SELECT set_config('lock_timeout', %s, false), set_config('TimeZone', 'UTC', false),
        set_config('DateStyle', 'ISO, YMD', false), set_config('IntervalStyle', 'postgres', false),
        set_config('extra_float_digits', '1', false), set_config('bytea_output', 'hex', false)
"""
# Fields of the configuration of a folder alone.
_FOLDER_ONLY = ("path", "format")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SourceConfig(BaseModel):
    """Configuration of a connected store. Its URL is not part of it: it stays in the environment.

    Attributes:
        kind: One of ``KINDS``.
        url_env: Variable that holds the URL of its database.
        table: ``name`` or ``schema.name``; None = the preset's.
        key: Columns of the primary key, for the kind ``table``.
        text: Field of the text.
        scope: Fields that separate memories, by ``user_id``, ``agent_id``, ``session_id`` or ``metadata.KEY``; None =
            the preset's.
        created, updated, metadata, vector: Fields of the kind ``table``.
        embedding_model: Model of the vectors, if it is that of the project: they are taken along then.
        memory_type: Type of its memories.
    """

    model_config = ConfigDict(extra="forbid")

    kind: str
    url_env: str
    table: str | None = None
    key: list[str] = Field(default_factory=list)
    text: str | None = None
    scope: dict[str, str] | None = None
    created: str | None = None
    updated: str | None = None
    metadata: str | None = None
    vector: str | None = None
    embedding_model: str | None = None
    memory_type: str = "learning"

    @property
    def mapping(self) -> TableMapping:
        """Places where the store keeps what. Raise UsageError as ``make_mapping``."""
        return make_mapping(self)

    @property
    def place(self) -> str:
        """Name of the table."""
        return self.mapping.table

    @property
    def address(self) -> str:
        """Option by which commands find its database."""
        return f"--url-env {self.url_env}"

    @property
    def scope_names(self) -> tuple[str, ...]:
        """Fields of a memory that separate the memories of the store."""
        return tuple(self.mapping.scope)

    @property
    def can_insert(self) -> bool:
        """True if new rows are written; False = a successor is always one of the sources."""
        return self.mapping.can_insert

    @property
    def reuses_keys(self) -> bool:
        """False: a key is of one row only."""
        return False

    def overlaps(self, other: StoreConfig) -> bool:
        """Return True if both are of one table."""
        return isinstance(other, SourceConfig) and (self.url_env, self.place) == (other.url_env, other.place)

    def may_hide(self, key: str) -> bool:
        """Return True: every row can be hidden by itself."""
        del key
        return True

    def dump(self) -> dict[str, Any]:
        """Return the fields that were given."""
        return self.model_dump(exclude_none=True, exclude_defaults=True) | {"kind": self.kind}


def read_config(values: Mapping[str, Any]) -> SourceConfig:
    """Return the configuration.

    Raises:
        UsageError: A field is unknown, missing or of the wrong type, or the kind is unknown.
    """
    kind = values.get("kind")
    if isinstance(kind, str) and kind not in KINDS:
        kinds = ", ".join((*KINDS, FOLDER))
        raise UsageError(f"there is no kind of store {kind!r}; kinds: {kinds} (notes in Markdown, with their path)")
    if kind in KINDS and "url_env" not in values:
        raise UsageError("url_env is missing: name the environment variable that holds the URL of the store's database")
    try:
        config = SourceConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        [(field, problem)] = explain_errors([first], SourceConfig.model_fields).items()
        if first["type"] == "extra_forbidden" and field in _FOLDER_ONLY:
            raise UsageError(f"{field} does not apply to {values.get('kind')}: give it with the kind folder") from error
        raise UsageError(f"{field} of the source: {problem}") from error
    _check_variable(config.url_env)
    return config


def _check_variable(name: str) -> None:
    """Raise UsageError unless this may be the name of a variable, without repeating it: it may be a URL."""
    if not _VARIABLE.fullmatch(name):
        raise UsageError(
            "url_env is not the name of an environment variable: set one to the URL of the store's database, and give "
            "its name"
        )


def make_mapping(config: SourceConfig) -> TableMapping:
    """Return where the store keeps what.

    Raises:
        UsageError: A field that the kind ``table`` needs is missing, a field does not apply to the kind, or cannot be
            read.
    """
    if config.kind == TABLE:
        return _map_table(config)
    for name in ("key", "created", "updated", "metadata", "vector"):
        if getattr(config, name):
            raise UsageError(f"{name} is known for {config.kind}: give it with the kind {TABLE} only")
    given = {"table": config.table, "text": config.text}
    if config.text and config.kind != "langgraph":
        raise UsageError(f"text is known for {config.kind}: give it with langgraph or the kind {TABLE} only")
    mapping = presets.PRESETS[config.kind](**{name: value for name, value in given.items() if value})
    if config.scope is None:
        return mapping
    unknown = [name for name in config.scope if name not in mapping.scope]
    if unknown:
        raise UsageError(f"{config.kind} has no scope {unknown[0]}: it has {', '.join(mapping.scope)}")
    return replace(mapping, scope={name: mapping.scope[name] for name in config.scope})


def _map_table(config: SourceConfig) -> TableMapping:
    for name in ("table", "key", "text"):
        if not getattr(config, name):
            raise UsageError(f"{name} is missing: a source of kind {TABLE} needs table, key and text")
    for name in config.scope or {}:
        if name not in COLUMNS and not name.startswith("metadata."):
            raise UsageError(f"scope {name!r} is not one of {', '.join(COLUMNS)} or metadata.KEY")
    return TableMapping(
        kind=TABLE,
        table=config.table or "",
        key=tuple(config.key),
        text=StoreField.parse(config.text or ""),
        scope={name: StoreField.parse(field) for name, field in (config.scope or {}).items()},
        created=_parse(config.created),
        updated=_parse(config.updated),
        metadata=_parse(config.metadata),
        vector=None if config.vector is None else Vector(config.vector),
        can_insert=False,  # What else a new row needs is known to its program only.
    )


def _parse(name: str | None) -> StoreField | None:
    return None if name is None else StoreField.parse(name)


def _read_url(url_env: str) -> str:
    """Return the URL of a store in the words of libpq.

    No message repeats any of it: another variable may have been named, and libpq takes parts of a password that is not
    percent-encoded for host, port or database, which it names.
    """
    _check_variable(url_env)
    url = os.environ.get(url_env)
    if not url:
        state = "not set" if url is None else "empty"
        raise UsageError(f"the variable {url_env} is {state}: set it to the URL of the store's database")
    url = re.sub(r"^postgres(ql)?(\+\w+)?://", "postgresql://", url)
    try:
        if re.search(r"//[^/?@]*[/@][^?]*@", url):
            raise UsageError(
                f"the URL in {url_env} has an @ too many: write /, ? and @ in a name or password as %2F, %3F and %40"
            )
        conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise UsageError(
            f"the variable {url_env} does not hold the URL of a Postgres: postgresql://USER@HOST/NAME"
        ) from None
    return url


@contextmanager
def open_database(url_env: str) -> Iterator[StoreConnection]:
    """Open the database of a store, in autocommit.

    Raises:
        UsageError: The variable is not set, or holds no URL of a database.
        StoreError: The database cannot be reached. The message has no password.
    """
    url = _read_url(url_env)
    try:
        connection = psycopg.connect(
            url, autocommit=True, connect_timeout=10, application_name="consolidation", client_encoding="utf8"
        )
    except psycopg.Error as error:
        raise StoreError(f"the database of {url_env} cannot be reached: {str(error).strip()}") from None
    with connection:
        connection.execute(_SET_SESSION, [_LOCK_TIMEOUT])
        try:
            yield connection
        except psycopg.Error as error:
            raise StoreError(f"the database of {url_env} refused or broke off: {str(error).strip()}") from error


@contextmanager
def refuse_locked() -> Iterator[None]:
    """Raise ConflictError if another session holds a row for longer than we wait, or the store forbids the change.

    A constraint or trigger of the store's program concerns one group: others can be written.
    """
    try:
        yield
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
        raise ConflictError(
            f"another session of the store's program holds one of its rows for more than {_LOCK_TIMEOUT}: try again"
        ) from error
    except _FORBIDDEN as error:
        raise ConflictError(f"the store forbids the change: {error.diag.message_primary}") from error
