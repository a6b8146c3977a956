"""Stores of every kind: their configuration, and how they are opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from consolidation_pipeline.connect import config
from consolidation_pipeline.connect.database_store import open_table
from consolidation_pipeline.connect.store import MemoryStore, StoreConfig


def read_config(values: Mapping[str, Any]) -> StoreConfig:
    """Return the configuration of a store.

    Raises:
        UsageError: A field is unknown, missing or of the wrong type, or the kind is unknown.
    """
    return config.read_config(values)


@contextmanager
def open_store(values: Mapping[str, Any]) -> Iterator[MemoryStore]:
    """Open the store with this configuration.

    Raises:
        UsageError: The configuration does not fit the store.
        StoreError: It cannot be reached.
    """
    with open_table(config.read_config(values)) as store:
        yield store
