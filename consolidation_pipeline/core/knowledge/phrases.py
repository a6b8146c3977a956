"""Phrases of patterns, summaries and profiles without a model, from TOML files with a table for each language."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from importlib.resources import files
from typing import TypeVar

T = TypeVar("T")


def load_phrases(name: str, shape: Callable[..., T]) -> dict[str, T]:
    """Return the phrases of a file by language, each table as a ``shape`` of its keys."""
    tables = tomllib.loads((files(__package__) / name).read_text("utf-8"))
    return {language: shape(**phrases) for language, phrases in tables.items()}
