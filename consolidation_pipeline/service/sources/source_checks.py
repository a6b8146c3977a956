"""Observation of a connected store, and checks that all that was hidden there can be found and undone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from consolidation_pipeline.connect.store import MemoryStore
from consolidation_pipeline.options import parse_options
from consolidation_pipeline.service.sources.recall_gate import SEARCH_LIMIT
from consolidation_pipeline.service.sources.stores import open_store
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.sources.source_overview import count_rows, list_crossing_writes
from consolidation_pipeline.store.sources.source_writes import list_writes
from consolidation_pipeline.store.sources.sources import get_source, load_row_states

# Successors that are searched for in one check.
_SEARCHED = 100


@dataclass(frozen=True)
class Observation:
    """State of a store. ``version``: equal for equal keys and stamps of its rows, in any order."""

    project: str
    mode: str
    rows: int
    hidden: int
    version: str


def observe_store(engine: Engine, name: str) -> Observation:
    """Return the state of a store, by one scan of its rows.

    Raises:
        NotFoundError: There is no such source.
        StoreError: The store cannot be reached.
    """
    with engine.connect() as connection:
        source = get_source(connection, name)
        states = count_rows(connection, source.id)
    with open_store(source.config) as store, store.snapshot():
        rows, version = _digest(store.iter_stamps())
    return Observation(source.project, source.mode, rows, states.get("hidden", 0), version)


def _digest(stamps: Iterable[tuple[str, str]]) -> tuple[int, str]:
    """Return the number of rows, and the sum of the hashes of their keys and stamps."""
    count = total = 0
    for key, stamp in stamps:
        count += 1
        total += int.from_bytes(sha256(f"{stamp} {key}".encode()).digest()[:16])
    return count, f"{count}-{total % 2**128:032x}"


def check_store(engine: Engine, name: str) -> dict[str, list[str]]:
    """Return what is wrong with what was written into a store, by the name of the check.

    Raises:
        NotFoundError: There is no such source.
        StoreError: The store cannot be reached.
    """
    with engine.connect() as connection:
        source = get_source(connection, name)
        option = parse_options(get_project(connection, source.project).config).scope
        writes = list_writes(connection, source.id, ["written", "gone"])
        hidden = {key for key, row in load_row_states(connection, source.id).items() if row.state == "hidden"}
        crossing = list_crossing_writes(connection, source.id, scope=option)
    with open_store(source.config) as store:
        imaged = store.find_images([write.id for write in writes])
        found = store.read_receipts([write.id for write in writes if write.status == "written"])
        receipts = [receipt for receipt in found.values() if not receipt["undone"]]
        return {
            "hidden_rows_have_images": [
                f"row {key} is hidden, and the store has no image of it" for key in sorted(hidden - imaged)
            ],
            "successors_are_found": _find_lost_successors(store, receipts, hidden),
            "no_group_of_two_scopes": [f"memory {id_} was written for rows of several scopes" for id_ in crossing],
        }


def _find_lost_successors(store: MemoryStore, receipts: Sequence[Mapping[str, Any]], hidden: set[str]) -> list[str]:
    # A row that a later write hid has a successor of its own, which is looked for.
    keys = sorted({receipt["successor"] for receipt in receipts} - {None, *hidden})
    with store.snapshot():
        rows = {row.key: row for row in store.iter_rows(keys, vectors=store.has_vectors)}
        gone = [f"row {key} stands for hidden ones, and is not there" for key in keys if key not in rows]
        lost = []
        for key in [key for key in keys if key in rows][:_SEARCHED]:
            places = store.find_places([rows[key]], {key}, SEARCH_LIMIT)
            if key in places and places[key] is None:
                lost.append(f"row {key} stands for hidden ones, and the store's own search does not find it")
    return [*gone, *lost]
