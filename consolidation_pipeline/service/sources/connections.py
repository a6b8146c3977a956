"""Connection of a store, and its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from consolidation_pipeline.connect import sidecar
from consolidation_pipeline.connect.config import SourceConfig, make_mapping, open_store, read_config
from consolidation_pipeline.connect.probe import Recognition, probe
from consolidation_pipeline.connect.source_table import SourceTable, same_table
from consolidation_pipeline.connect.undo import Conflict, undo_all
from consolidation_pipeline.core.memories.memories import check_memory_type
from consolidation_pipeline.errors import ConflictError, UsageError
from consolidation_pipeline.options import parse_options
from consolidation_pipeline.scopes import NO_WALLS, normalize_scope
from consolidation_pipeline.service.intake.importer import ensure_project
from consolidation_pipeline.service.sources.write_back import undo_writes
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.schema import SOURCE_MODES
from consolidation_pipeline.store.sources.source_writes import list_writes
from consolidation_pipeline.store.sources.sources import (
    Source,
    create_source,
    delete_source,
    get_source,
    list_sources,
    save_mode,
)


@dataclass(frozen=True)
class Connected:
    """A new connection and what was found in the store. ``watched``: the store tells of changes by itself."""

    source: Source
    found: Recognition
    watched: bool


def probe_source(config: Mapping[str, Any]) -> Recognition:
    """Examine a store without changing anything.

    Raises:
        UsageError: The configuration does not fit the store, or this user may not read it.
        StoreError: The database cannot be reached.
    """
    checked = read_config(config)
    check_memory_type(checked.memory_type)
    with open_store(checked.url_env) as store:
        return probe(store, SourceTable(store, make_mapping(checked)))


def connect_source(
    engine: Engine, name: str, *, project: str, config: Mapping[str, Any], mode: str = "mirror"
) -> Connected:
    """Connect a store with a project, which is created if it is missing. Its memories come with the first sync.

    In modes other than mirror the schema of the sidecar is created in the store, with a trigger that tells of changes.

    Args:
        name: Name of the source; the memories have it as their source.
        project: The project. Its option ``scope`` has to separate at least what the store separates.
        config: As ``SourceConfig``.
        mode: One of ``SOURCE_MODES``.

    Raises:
        UsageError: The configuration does not fit the store, the user has too few rights for the mode, or the project
            would mix scopes of the store.
        ConflictError: The name is taken, or the same table is connected already.
        StoreError: The database cannot be reached.
    """
    checked = read_config(config)
    mapping = make_mapping(checked)
    found = _examine(checked, name, mode)
    wanted = normalize_scope(",".join(mapping.scope)) if mapping.scope else NO_WALLS
    with engine.connect() as connection:
        _check_unconnected(list_sources(connection), checked)  # Before a project is made.
    owner = ensure_project(engine, project, {"scope": wanted} if mapping.scope else {})
    _check_walls(parse_options(owner.config).scope, wanted, project)
    with engine.begin() as connection:
        _check_unconnected(list_sources(connection), checked)
        source = create_source(connection, owner.id, name, config=_dump(checked), mode=mode)
    if mode != "mirror":
        _prepare(checked, name, found)
    return Connected(source, found, mode != "mirror" and found.rights.watch)


def check_mode(mode: str) -> None:
    """Raise UsageError if there is no such mode."""
    if mode not in SOURCE_MODES:
        raise UsageError(f"mode is {mode!r}: expected one of {', '.join(SOURCE_MODES)}")


def _examine(config: SourceConfig, name: str, mode: str) -> Recognition:
    """Return what is found in a store. Raise an error if the mode does not fit it, or another source writes there."""
    check_mode(mode)
    found = probe_source(config.model_dump(exclude_none=True))
    if mode == "mirror":
        return found
    if not found.is_table:
        raise UsageError(f"mode {mode} needs a table, and {found.table} is none: connect what it reads, or mode mirror")
    if not (found.rights.write and found.rights.create_schema):
        raise UsageError(f"mode {mode} needs more rights: {'; '.join(found.warnings)}")
    with open_store(config.url_env) as store:
        others = sidecar.list_sources(store) if found.sidecar == sidecar.VERSION else {}
        for other, values in others.items():
            table = make_mapping(read_config(values)).table
            if other != name and same_table(store, table, found.table):
                raise ConflictError(f"table {found.table} is connected as {other} there: use that name", (other,))
    return found


def _prepare(config: SourceConfig, name: str, found: Recognition) -> None:
    """Make the sidecar in a store, and the trigger if this user may."""
    with open_store(config.url_env) as store, store.transaction():
        sidecar.install(store)
        sidecar.save_source(store, name, _dump(config))
        if found.rights.watch:
            table = SourceTable(store, make_mapping(config))
            sidecar.watch(store, table.mapping.table, table.key_sql)


def set_mode(engine: Engine, name: str, mode: str) -> None:
    """Change the mode of a connected store.

    Raises:
        NotFoundError: There is no such source.
        UsageError: There is no such mode, or the user has too few rights for it.
        ConflictError: It becomes a mirror while something that was written is not undone.
        StoreError: The store's database cannot be reached.
    """
    with engine.connect() as connection:
        source = get_source(connection, name)
        is_written = bool(list_writes(connection, source.id, ["intended", "written"]))
    config = read_config(source.config)
    found = _examine(config, name, mode)
    if mode != "mirror":
        _prepare(config, name, found)
    elif is_written:
        raise ConflictError(f"source {name} has groups that are written in the store: undo them first", (name,))
    elif found.sidecar is not None:
        with open_store(config.url_env) as store, store.transaction():
            sidecar.unwatch(store, found.table)
            sidecar.forget_source(store, name)
            sidecar.remove_if_unused(store)
    with engine.begin() as connection:
        save_mode(connection, source.id, mode)


def _check_walls(own: str, wanted: str, project: str) -> None:
    missing = set(wanted.split(",")) - set(own.split(",")) if wanted != NO_WALLS else set()
    if missing:
        raise UsageError(
            f"project {project} has scope = {own}, which would mix memories that the store keeps apart by "
            f"{', '.join(sorted(missing))}: connect another project, set its scope, or give --scope without these"
        )


def _check_unconnected(sources: list[Source], config: SourceConfig) -> None:
    table = make_mapping(config).table
    for source in sources:
        other = read_config(source.config)
        if other.url_env == config.url_env and make_mapping(other).table == table:
            raise ConflictError(
                f"table {table} of {config.url_env} is connected as {source.name} already", (source.name,)
            )


def _dump(config: SourceConfig) -> dict[str, Any]:
    return config.model_dump(exclude_none=True, exclude_defaults=True) | {"kind": config.kind}


def list_connected(engine: Engine, project_id: UUID | None = None) -> list[Source]:
    """Return the connected stores of a project, or all, by name."""
    with engine.connect() as connection:
        return list_sources(connection, project_id)


def find_source(engine: Engine, id: UUID) -> Source | None:
    """Return the connected store with this id; None if there is none."""
    return next((source for source in list_connected(engine) if source.id == id), None)


def describe_table(source: Source) -> str:
    """Return the name of the table that is connected."""
    return make_mapping(read_config(source.config)).table


def disconnect_source(engine: Engine, name: str, *, restore: bool) -> dict[UUID, list[Conflict]]:
    """End the connection of a store; its memories stay in the project.

    Args:
        restore: Undo all that was written into the store; if something stands in the way, the connection stays.

    Returns:
        The conflicts by merged memory; empty if the store is disconnected.

    Raises:
        NotFoundError: There is no such source.
        StoreError: The store's database cannot be reached.
    """
    with engine.connect() as connection:
        source = get_source(connection, name)
    config = read_config(source.config)
    if restore:
        conflicts = undo_writes(engine, name)
        if conflicts:
            return conflicts
    with open_store(config.url_env) as store, store.transaction():
        if sidecar.find_version(store) is not None:
            sidecar.unwatch(store, make_mapping(config).table)
            if restore:
                sidecar.forget_source(store, name)
                sidecar.remove_if_unused(store)
    with engine.begin() as connection:
        delete_source(connection, source.id)
    return {}


def restore_store(url_env: str) -> dict[UUID, list[Conflict]]:
    """Undo all that was written into a store from its sidecar alone, as if our database were lost.

    Returns:
        The conflicts by write; what has none is undone.

    Raises:
        UsageError: The variable is not set, or the store has no sidecar.
        StoreError: The database cannot be reached.
    """
    with open_store(url_env) as store:
        if sidecar.find_version(store) is None:
            raise UsageError(f"the database of {url_env} has no schema {sidecar.SCHEMA}: nothing was written there")
        tables = {
            name: SourceTable(store, make_mapping(read_config(config)))
            for name, config in sidecar.list_sources(store).items()
        }
        return undo_all(store, tables)
