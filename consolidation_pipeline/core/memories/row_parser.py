"""Parser of imported rows: checks, fields from keys and their aliases, unknown keys into the metadata."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from consolidation_pipeline.core.memories.memories import NewMemory, content_hash, invalid_field
from consolidation_pipeline.core.memories.row_fields import (
    FIELD_ALIASES,
    FIELD_READERS,
    check_characters,
    check_size,
    check_storable,
    read_json,
)

_TIME_KEYS = ("learned_at", "created_at", "last_accessed_at")
_KNOWN_KEYS = frozenset(FIELD_READERS) | frozenset(FIELD_ALIASES.values())


def parse_memory(
    row: Mapping[str, object],
    *,
    source: str,
    default_type: str = "learning",
    find_language: Callable[[str], str] = lambda _: "english",
) -> NewMemory:
    """Validate one imported JSON object or CSV row and return its memory.

    ``execution_summary`` or ``content`` is required; null and "" mean missing. ``external_id`` has precedence over
    ``id``, ``learned_at`` over ``created_at``. The external id of a row without an id is its hash, so equal rows are
    one memory. Unknown and unused keys are kept in ``metadata``. The parameters apply to a row that names no source,
    type or language; ``find_language`` tells the text search configuration of a text.

    Raises:
        InvalidMemoryError: A value is not legal; the message has key, value and what is expected.
    """
    rest = {str(key): value for key, value in row.items() if not (_is_missing(value) and key in _KNOWN_KEYS)}
    _check_row(rest)
    has_id = "external_id" in rest or FIELD_ALIASES["external_id"] in rest
    fields: dict[str, Any] = {
        "source": source,
        "external_id": None if has_id else _row_hash(rest),
        "memory_type": default_type,
    }
    for name, read in FIELD_READERS.items():
        key = name if name in rest else FIELD_ALIASES.get(name, name)
        if key in rest:
            fields[name] = read(key, rest.pop(key))
    if "execution_summary" not in fields:
        raise invalid_field("content", row.get("content"), "a text that is not blank, as content or execution_summary")
    if "embedding" in fields and "embedding_model" not in fields:
        raise invalid_field("embedding_model", None, "the name of the model that made the embedding")
    if "embedding_model" in fields and "embedding" not in fields:
        rest["embedding_model"] = fields.pop("embedding_model")
    if "language" not in fields:
        fields["language"] = find_language(fields["execution_summary"])
    metadata = _collect_metadata(rest)
    if metadata:
        check_size("metadata", metadata)
    return NewMemory(**fields, metadata=metadata)


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _row_hash(row: Mapping[str, object]) -> str:
    # A row with empty fields is equal to a row without these fields.
    present = {key: value for key, value in row.items() if not _is_missing(value)}
    return "sha256:" + content_hash(json.dumps(present, sort_keys=True, default=str))


def _check_row(row: Mapping[str, object]) -> None:
    for key, value in row.items():
        check_characters("a key of the row", key)
        # Vectors and times are checked by their readers.
        if key == "embedding" or (key in _TIME_KEYS and isinstance(value, datetime)):
            continue
        try:
            check_storable(key, value)
        except RecursionError:
            raise invalid_field(key, "...", "a value nested less deeply") from None


def _collect_metadata(rest: dict[str, object]) -> dict[str, object]:
    """Return the row's metadata with all unused keys. A repeated key with another value gets an underscore."""
    parts = (_take_mapping(rest, "metadata"), _take_mapping(rest, "meta"), rest)
    metadata: dict[str, object] = {}
    for key, value in (item for part in parts for item in part.items()):
        while key in metadata and metadata[key] != value:
            key += "_"
        metadata[key] = value.isoformat() if isinstance(value, datetime) else value
    return metadata


def _take_mapping(rest: dict[str, object], key: str) -> dict[str, object]:
    value = rest.pop(key, None)
    decoded = {} if _is_missing(value) else read_json(key, value)
    if not isinstance(decoded, Mapping):
        raise invalid_field(key, value, "a JSON object")
    return {str(name): item for name, item in decoded.items()}
