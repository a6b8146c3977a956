"""How an imported row becomes a memory: what is checked, which field takes which key, what is kept beside them."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from consolidation_pipeline.core.memories.memories import NewMemory, content_hash, invalid_field
from consolidation_pipeline.core.memories.row_fields import (
    ALIASES,
    READERS,
    check_characters,
    check_storable,
    read_json,
)

_TIMES = ("learned_at", "created_at", "last_accessed_at")
_KNOWN = frozenset(READERS) | frozenset(ALIASES.values())


def parse_memory(
    row: Mapping[str, object], *, source: str, default_type: str = "learning", default_language: str = "english"
) -> NewMemory:
    """Validate one imported JSON object (or CSV row) and return the memory it describes.

    ``execution_summary`` or ``content`` is required, everything else optional; null and "" mean missing. ``source``,
    ``default_type`` and ``default_language`` hold where the row has none of its own. ``external_id`` wins over ``id``,
    ``learned_at`` over ``created_at``. Without an id the hash of the row is its identity, so equal rows are one memory.
    Keys that are not known, or lost to another one, are kept in ``metadata``.

    Raises InvalidMemoryError naming key, value and what would be right.
    """
    rest = {str(key): value for key, value in row.items() if not (_is_missing(value) and key in _KNOWN)}
    _check_row(rest)
    fields: dict[str, Any] = {
        "source": source,
        "external_id": _row_hash(rest),
        "memory_type": default_type,
        "language": default_language,
    }
    for name, read in READERS.items():
        key = name if name in rest else ALIASES.get(name, name)
        if key in rest:
            fields[name] = read(key, rest.pop(key))
    if "execution_summary" not in fields:
        raise invalid_field("content", row.get("content"), "a text that is not blank, as content or execution_summary")
    if "embedding" in fields and "embedding_model" not in fields:
        raise invalid_field("embedding_model", None, "the name of the model that made the embedding")
    if "embedding_model" in fields and "embedding" not in fields:
        rest["embedding_model"] = fields.pop("embedding_model")
    return NewMemory(**fields, metadata=_metadata(rest))


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _row_hash(row: Mapping[str, object]) -> str:
    # An export that writes empty fields out and one that leaves them out are the same row.
    present = {key: value for key, value in row.items() if not _is_missing(value)}
    return "sha256:" + content_hash(json.dumps(present, sort_keys=True, default=str))


def _check_row(row: Mapping[str, object]) -> None:
    for key, value in row.items():
        check_characters("a key of the row", key)
        # A vector and a time do not stay JSON; their readers check them.
        if key == "embedding" or (key in _TIMES and isinstance(value, datetime)):
            continue
        try:
            check_storable(key, value)
        except RecursionError:
            raise invalid_field(key, "...", "a value nested less deeply") from None


def _metadata(rest: dict[str, object]) -> dict[str, object]:
    """The row's metadata and, beside it, every key that no field has taken; of two equal names the later is marked."""
    parts = (_mapping(rest, "metadata"), _mapping(rest, "meta"), rest)
    metadata: dict[str, object] = {}
    for key, value in (item for part in parts for item in part.items()):
        while key in metadata and metadata[key] != value:
            key += "_"
        metadata[key] = value.isoformat() if isinstance(value, datetime) else value
    return metadata


def _mapping(rest: dict[str, object], key: str) -> dict[str, object]:
    value = rest.pop(key, None)
    decoded = {} if _is_missing(value) else read_json(key, value)
    if not isinstance(decoded, Mapping):
        raise invalid_field(key, value, "a JSON object")
    return {str(name): item for name, item in decoded.items()}
