"""Stores of every kind: their configuration, and how they are opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from consolidation_pipeline.connect import config
from consolidation_pipeline.connect.database_store import open_table
from consolidation_pipeline.connect.folder_config import FOLDER, FolderConfig
from consolidation_pipeline.connect.folder_store import FolderStore, open_folder
from consolidation_pipeline.connect.store import MemoryStore, StoreConfig
from consolidation_pipeline.service.sources.folder_reader import FolderReader, read_folder_config


def read_config(values: Mapping[str, Any]) -> StoreConfig:
    """Return the configuration of a store.

    Raises:
        UsageError: A field is unknown, missing or of the wrong type, or the kind is unknown.
    """
    return read_folder_config(values) if values.get("kind") == FOLDER else config.read_config(values)


@contextmanager
def open_store(values: Mapping[str, Any], *, fitting: bool = True) -> Iterator[MemoryStore]:
    """Open the store with this configuration.

    Args:
        fitting: The configuration has to fit the store; else only what needs no columns works if it does not.

    Raises:
        UsageError: The configuration does not fit the store.
        StoreError: It cannot be reached.
    """
    if values.get("kind") == FOLDER:
        with open_notes(read_folder_config(values)) as notes:
            yield notes
        return
    with open_table(config.read_config(values), fitting=fitting) as table:
        yield table


@contextmanager
def open_notes(folder: FolderConfig) -> Iterator[FolderStore]:
    """Open a folder of notes. Raise StoreError if it is not there."""
    with open_folder(Path(folder.path), lambda opened: FolderReader(opened, folder.format)) as store:
        yield store
