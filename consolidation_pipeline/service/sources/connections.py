"""Connection of a store, and its end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

from consolidation_pipeline.connect.restore import restore_database
from consolidation_pipeline.connect.store import Conflict, MemoryStore, Recognition, SourceRow, StoreConfig
from consolidation_pipeline.core.memories.memories import check_memory_type
from consolidation_pipeline.core.text.counted_nouns import counted
from consolidation_pipeline.errors import ConflictError, UsageError
from consolidation_pipeline.options import parse_options
from consolidation_pipeline.scopes import NO_WALLS, normalize_scope
from consolidation_pipeline.service.intake.importer import find_or_create_project
from consolidation_pipeline.service.sources.folder_reader import read_folder_config
from consolidation_pipeline.service.sources.rights import check_rights
from consolidation_pipeline.service.sources.stores import open_notes, open_store, read_config
from consolidation_pipeline.service.sources.undo_all import undo_everything
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.database.schema import SOURCE_MODES
from consolidation_pipeline.store.memories.memories import find_sources_of
from consolidation_pipeline.store.projects import Project, check_slug
from consolidation_pipeline.store.sources.source_writes import list_writes
from consolidation_pipeline.store.sources.sources import (
    Source,
    create_source,
    delete_source,
    get_source,
    list_sources,
    save_mode,
)

# Sources of memories that are added one by one over HTTP, the command line and MCP.
_TAKEN_NAMES = ("api", "cli", "mcp")
# Rows that are looked for among the memories of other sources.
_SAMPLE = 100


@dataclass(frozen=True)
class Connected:
    """A new connection and what was found in the store. ``watched``: the store tells of changes by itself."""

    source: Source
    found: Recognition
    watched: bool


def probe_source(config: Mapping[str, Any], *, mode: str = "mirror") -> Recognition:
    """Examine a store without changing anything.

    Raises:
        UsageError: The configuration does not fit the store, or the user has too few rights for the mode.
        StoreError: The database cannot be reached.
    """
    check_memory_type(read_config(config).memory_type)
    with open_store(config) as store:
        found = store.probe()
        check_rights(found, mode)
        return found


def connect_source(
    engine: Engine, name: str, *, project: str, config: Mapping[str, Any], mode: str = "mirror"
) -> Connected:
    """Connect a store with a project, which is created if it is missing. Its memories come with the first sync.

    In modes other than mirror the schema of the sidecar is created in the store, with a trigger that tells of changes.
    If anything fails, nothing is stored.

    Args:
        name: Name of the source; the memories have it as their source.
        project: The project. Its option ``scope`` has to separate at least what the store separates.
        config: As ``SourceConfig``.
        mode: One of ``SOURCE_MODES``.

    Raises:
        UsageError: The name is one of ours, the slug is not allowed, the configuration does not fit the store, the user
            has too few rights for the mode, or the project would mix scopes of the store.
        ConflictError: The name is taken, the same table is connected already, its rows are memories of another
            source, or an earlier connection hides rows there.
        StoreError: The database cannot be reached.
    """
    check_names(name, project, mode)
    checked = read_config(config)
    check_memory_type(checked.memory_type)
    names = checked.scope_names
    wanted = normalize_scope(",".join(names)) if names else NO_WALLS
    with engine.connect() as connection:
        connected = list_sources(connection)
    _check_unconnected(connected, checked)
    with open_store(checked.dump()) as store:
        found = _examine(store, name, mode, checked.address, connected=connected)
        with store.snapshot():
            sample = list(islice(store.iter_rows(), _SAMPLE)) if found.memories else []
    with engine.begin() as connection:
        _check_unconnected(list_sources(connection), checked)
        owner = find_or_create_project(connection, project, {"scope": wanted} if names else {})
        _check_walls(parse_options(owner.config).scope, wanted, project)
        _check_new(connection, owner, name, checked, sample)
        source = create_source(connection, owner.id, name, config=checked.dump(), mode=mode)
        if mode != "mirror":  # If this fails, nothing is stored here either.
            with open_store(source.config) as store:
                store.prepare(name, checked)
    return Connected(source, found, mode != "mirror" and found.rights.watch)


def ensure_connected(engine: Engine, name: str, *, project: str, config: Mapping[str, Any], mode: str) -> Source:
    """Connect a store that is not connected yet, as ``connect_source``; set its mode if it has another.

    Raises:
        ConflictError: The source is of another project, or its configuration is another one.
    """
    with engine.connect() as connection:
        source = next((each for each in list_sources(connection) if each.name == name), None)
    if source is None:
        return connect_source(engine, name, project=project, config=config, mode=mode).source
    given = {"project": project, **read_config(config).dump()}
    stored = {"project": source.project, **read_config(source.config).dump()}
    different = [
        f"{field} = {stored.get(field, 'default')}, not {given.get(field, 'default')}"
        for field in stored | given
        if stored.get(field) != given.get(field)
    ]
    if different:
        raise ConflictError(
            f"source {name} is connected already, with {'; '.join(different)}: disconnect it, or choose another name",
            (name,),
        )
    if source.mode != mode:
        set_mode(engine, name, mode)
    return source


def check_names(name: str, project: str, mode: str) -> None:
    """Raise UsageError if no source may have this name, no project this slug, or there is no such mode."""
    check_mode(mode)
    check_slug(project)
    if name in _TAKEN_NAMES:
        raise UsageError(f"a source cannot be named {name}: memories that are added one by one have this source")


def check_mode(mode: str) -> None:
    """Raise UsageError if there is no such mode."""
    if mode not in SOURCE_MODES:
        raise UsageError(f"mode is {mode!r}: expected one of {', '.join(SOURCE_MODES)}")


def _examine(
    store: MemoryStore,
    name: str,
    mode: str,
    address: str,
    *,
    connected: Sequence[Source],
    written: Collection[UUID] = (),
) -> Recognition:
    """Return what is found in a store. Raise an error if the mode does not fit it, or another source wrote there.

    Args:
        address: Option by which commands find the store.
        connected: Sources that are known here.
        written: Writes that are known here.
    """
    found = store.probe()
    check_rights(found, mode)
    if mode == "mirror":
        return found
    other = store.find_writer(name)
    if other is not None:
        told = f"{found.table} is connected as {other} there: use that name (--name {other})"
        here = [_describe_connected(found.table, source) for source in connected if source.name == other]
        raise ConflictError(next(iter(here), told), (other,))
    unknown = set(store.list_open(name)).difference(written)
    if unknown:
        raise ConflictError(
            f"{counted(len(unknown), 'group')} of an earlier connection of {found.table} or by the name {name} hide "
            f"rows there: `consolidation source restore {address}` shows them again; connect then, or with mode mirror",
            tuple(map(str, sorted(unknown))),
        )
    return found


def _describe_connected(place: str, source: Source) -> str:
    return (
        f"{place} is connected as {source.name} for project {source.project} already; to connect it in another way, "
        f"first `consolidation source disconnect {source.name} --restore`"
    )


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
        writes = list_writes(connection, source.id, ["intended", "written", "undone", "gone"])
        connected = list_sources(connection)
    check_mode(mode)
    if mode == "mirror" and any(write.status in ("intended", "written") for write in writes):
        raise ConflictError(f"source {name} has groups that are written in the store: undo them first", (name,))
    with open_store(source.config) as store:
        config = read_config(source.config)
        known = {write.id for write in writes}
        _examine(store, name, mode, config.address, connected=connected, written=known)
        if mode == "mirror":
            store.release(name, forget=True)
        else:
            store.prepare(name, config)
    with engine.begin() as connection:
        save_mode(connection, source.id, mode)


def _check_walls(own: str, wanted: str, project: str) -> None:
    missing = set(wanted.split(",")) - set(own.split(",")) if wanted != NO_WALLS else set()
    if missing:
        raise UsageError(
            f"project {project} has scope = {own}, which would mix memories that the store keeps apart by "
            f"{', '.join(sorted(missing))}: connect another project, set its scope, or give --scope without these"
        )


def _check_unconnected(sources: list[Source], config: StoreConfig) -> None:
    for source in sources:
        if config.overlaps(read_config(source.config)):
            raise ConflictError(_describe_connected(config.place, source), (source.name,))


def _check_new(
    connection: Connection, project: Project, name: str, config: StoreConfig, sample: Sequence[SourceRow]
) -> None:
    """Raise ConflictError if most rows of a store are memories of the project already, by another name."""
    found = find_sources_of(connection, project.id, [row.key for row in sample], [row.text for row in sample])
    other = max(found, key=lambda source: found[source], default=name)
    if other != name and 2 * found[other] >= len(sample):
        raise ConflictError(
            f"the rows of {config.place} are memories of {project.slug} already, with the source {other}: connect them "
            f"by the name {other}, or erase these memories first",
            (other,),
        )


def list_connected(engine: Engine, project_id: UUID | None = None) -> list[Source]:
    """Return the connected stores of a project, or all, by name."""
    with engine.connect() as connection:
        return list_sources(connection, project_id)


def find_source(engine: Engine, id: UUID) -> Source | None:
    """Return the connected store with this id; None if there is none."""
    return next((source for source in list_connected(engine) if source.id == id), None)


def describe_table(source: Source) -> str:
    """Return the name of the table that is connected, or the path of the folder."""
    return read_config(source.config).place


def disconnect_source(
    engine: Engine, name: str, *, restore: bool, tell: Callable[[str], None] = lambda _: None
) -> dict[UUID, list[Conflict]]:
    """End the connection of a store; its memories stay in the project.

    Args:
        restore: Undo all that is written in the store; if something stands in the way, the connection stays.
        tell: Called with each sentence on what came back with other values than before.

    Returns:
        The conflicts as ``undo_everything``; empty if the store is disconnected.

    Raises:
        NotFoundError: There is no such source.
        StoreError: The store's database cannot be reached.
    """
    with engine.connect() as connection:
        source = get_source(connection, name)
    if restore:
        conflicts = undo_everything(engine, name, tell=tell)
        if conflicts:
            return conflicts
    with open_store(source.config, fitting=False) as store:
        store.release(name, forget=restore)
    forget_source(engine, name)
    return {}


def forget_source(engine: Engine, name: str) -> tuple[int, str]:
    """Forget a store that is gone, without opening it. What was written there stays, and so does the sidecar.

    Returns:
        The number of groups that were written there, and the option by which `source restore` finds the store.

    Raises:
        NotFoundError: There is no such source.
    """
    with engine.begin() as connection:
        source = get_source(connection, name)
        written = len(list_writes(connection, source.id, ["written"]))
        delete_source(connection, source.id)
    return written, read_config(source.config).address


def restore_store(url_env: str) -> dict[UUID, list[Conflict]]:
    """Undo all that is written in a store, and remove its triggers, from its sidecar alone.

    Returns:
        The conflicts by write, with the rows that stay hidden. Without any the sidecar is removed.

    Raises:
        UsageError: The variable is not set, or the store has no sidecar.
        ConflictError: The triggers cannot be removed now.
        StoreError: The database cannot be reached.
    """
    return restore_database(url_env)


def restore_folder(path: Path) -> dict[UUID, list[Conflict]]:
    """Undo all that was written into a folder from its sidecar alone, as if our database were lost.

    Returns:
        The conflicts by write; what has none is undone.

    Raises:
        UsageError: There is no such folder, or nothing was written there.
    """
    with open_notes(read_folder_config({"kind": "folder", "path": str(path), "format": "notes"})) as store:
        if store.probe_sidecar() is None:
            raise UsageError(f"{path} has no folder .consolidated: nothing was written there")
        return store.undo_open()
