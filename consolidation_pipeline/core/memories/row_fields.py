"""Readers of the fields of an imported row, from JSON values or from text as in a CSV cell."""

import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from consolidation_pipeline.core.memories.memories import check_memory_type, invalid_field
from consolidation_pipeline.options import LANGUAGES

MAX_TEXT_CHARS = 100_000
# PostgreSQL refuses b-tree entries above about 2,700 bytes, and ids are indexed.
MAX_ID_CHARS = 512
# Far more than any memory has; a search filters by them.
MAX_STRINGS = {"tags": 1000, "files": 10_000}
MAX_METADATA_CHARS = 100_000
# pgvector's limit for a column of type vector.
MAX_EMBEDDING_DIM = 16_000
FLOAT32_MAX, FLOAT32_TINY = 3.4028235e38, 1.1754944e-38
INT32_MAX = 2**31 - 1

# Text with fewer digits is a year or a calendar date.
_EPOCH_TEXT = re.compile(r"\d{9,}(\.\d+)?")
# A language of two letters (ISO 639-1), perhaps with a script and country (BCP 47), and the text search configuration
# of each; PostgreSQL has none for other languages.
_LANGUAGE_TAG = re.compile(r"([a-z]{2})(?:[-_][a-z0-9]{2,8})*")
_LANGUAGES_BY_CODE = {
    "ar": "arabic",
    "hy": "armenian",
    "eu": "basque",
    "ca": "catalan",
    "da": "danish",
    "nl": "dutch",
    "en": "english",
    "fi": "finnish",
    "fr": "french",
    "de": "german",
    "el": "greek",
    "hi": "hindi",
    "hu": "hungarian",
    "id": "indonesian",
    "ga": "irish",
    "it": "italian",
    "lt": "lithuanian",
    "ne": "nepali",
    "no": "norwegian",
    "nb": "norwegian",
    "nn": "norwegian",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sr": "serbian",
    "es": "spanish",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
    "yi": "yiddish",
}
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def check_storable(key: str, value: object) -> None:
    """Raise InvalidMemoryError if PostgreSQL's text or jsonb cannot hold ``value`` or a value in it."""
    if isinstance(value, str):
        check_characters(key, value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise invalid_field(key, value, "a finite number")
    elif isinstance(value, Mapping):
        for name, item in value.items():
            check_characters(f"a key of {key}", str(name))
            check_storable(f"{key}.{name}", item)
    elif isinstance(value, list | tuple):
        for item in value:
            check_storable(key, item)
    elif not isinstance(value, int | float | None):
        raise invalid_field(key, value, "a JSON value")


def check_characters(key: str, text: str) -> None:
    """Raise InvalidMemoryError if ``text`` holds a character that PostgreSQL's text cannot hold."""
    if "\x00" in text:
        raise invalid_field(key, text, "text without NUL bytes")
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise invalid_field(key, text, "valid Unicode without lone surrogates")


def _read_text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise invalid_field(key, value, "text")
    if len(value) > MAX_TEXT_CHARS:
        raise invalid_field(key, value, f"at most {MAX_TEXT_CHARS:,} characters, not {len(value):,}")
    return value


def _read_name(key: str, value: object) -> str:
    """Return an id: text, or a whole number as its digits."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise invalid_field(key, value, "text or a whole number")
    name = str(value).strip()
    if len(name) > MAX_ID_CHARS:
        raise invalid_field(key, value, f"at most {MAX_ID_CHARS} characters, not {len(name)}")
    return name


def _read_type(_key: str, value: object) -> str:
    return check_memory_type(value.strip() if isinstance(value, str) else value)


def _read_language(key: str, value: object) -> str:
    language = _read_text(key, value).strip().lower()
    if code := _LANGUAGE_TAG.fullmatch(language):
        return _LANGUAGES_BY_CODE.get(code[1], "simple")
    if language not in LANGUAGES:
        raise invalid_field(key, value, f"a code such as de or pt-BR, or one of {', '.join(LANGUAGES)}")
    return language


def _read_boolean(key: str, value: object) -> bool:
    word = str(value).strip().lower()
    if not isinstance(value, bool | int | str) or word not in _BOOLEANS:
        raise invalid_field(key, value, "true, false, yes, no, 1 or 0")
    return _BOOLEANS[word]


def _to_number(value: object) -> float:
    """Return a JSON number or its text as a float; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def _read_importance(key: str, value: object) -> float:
    number = _to_number(value)
    if not (math.isfinite(number) and number >= 0):
        raise invalid_field(key, value, "a number >= 0")
    return number


def _read_count(key: str, value: object) -> int:
    number = _to_number(value)
    if not (0 <= number <= INT32_MAX and number.is_integer()):
        raise invalid_field(key, value, f"a whole number from 0 to {INT32_MAX:,}")
    return int(number)


def read_json(key: str, value: object) -> object:
    """Return ``value``, decoded if it is JSON text, as in a CSV cell.

    Raises:
        InvalidMemoryError: The decoded value cannot be stored.
    """
    if not isinstance(value, str):
        return value
    try:
        decoded: object = json.loads(value)
    except (ValueError, RecursionError):
        return value
    check_storable(key, decoded)
    return decoded


def _read_value(key: str, value: object) -> object:
    decoded = read_json(key, value)
    check_size(key, decoded)
    return decoded


def check_size(key: str, value: object) -> None:
    """Raise InvalidMemoryError if ``value`` is longer as JSON than any metadata is."""
    size = len(json.dumps(value, default=str))
    if size > MAX_METADATA_CHARS:
        raise invalid_field(key, value, f"at most {MAX_METADATA_CHARS:,} characters as JSON, not {size:,}")


def _read_strings(key: str, value: object) -> tuple[str, ...]:
    """Read a list of texts, JSON text of one, or texts separated by commas; strip them, drop blanks and repeats."""
    items = read_json(key, value)
    if isinstance(value, str) and not isinstance(items, list):
        items = value.split(",")
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise invalid_field(key, value, "a list of texts, or texts separated by commas")
    names = tuple(dict.fromkeys(item.strip() for item in items if item.strip()))
    if len(names) > MAX_STRINGS[key]:
        raise invalid_field(key, "...", f"at most {MAX_STRINGS[key]:,} texts, not {len(names):,}")
    if any(len(name) > MAX_ID_CHARS for name in names):
        raise invalid_field(key, "...", f"texts of at most {MAX_ID_CHARS} characters")
    return names


def _read_time(key: str, value: object) -> datetime:
    """Read ISO 8601, or seconds or milliseconds since 1970; a time without a zone is UTC."""
    try:
        time = _to_datetime(value)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise invalid_field(key, value, "an ISO 8601 time, or seconds or milliseconds since 1970") from None


def _to_datetime(value: object) -> datetime:
    if isinstance(value, datetime):
        return value
    text = str(value).strip()
    number = _to_number(value)
    if math.isnan(number) or (isinstance(value, str) and not _EPOCH_TEXT.fullmatch(text)):
        return datetime.fromisoformat(text)
    # 1e11 seconds is the year 5138 and 1e11 milliseconds is 1973, so no real time is ambiguous.
    return datetime.fromtimestamp(number / 1000 if abs(number) >= 1e11 else number, UTC)


def _read_embedding(key: str, value: object) -> tuple[float, ...]:
    items = read_json(key, value)
    if not isinstance(items, list | tuple) or not all(type(item) in (int, float) for item in items):
        raise invalid_field(key, value, "a flat list of numbers")
    if not 1 <= len(items) <= MAX_EMBEDDING_DIM:
        raise invalid_field(key, value, f"1 to {MAX_EMBEDDING_DIM:,} numbers, not {len(items):,}")
    # The comparison fails for NaN too. The database stores float32.
    if not all(abs(item) <= FLOAT32_MAX for item in items):
        raise invalid_field(key, value, "finite float32 numbers")
    if all(abs(item) < FLOAT32_TINY for item in items):
        raise invalid_field(key, value, "at least one number other than zero")
    return tuple(float(item) for item in items)


# Field -> the key that is read if the row lacks the field's own name.
FIELD_ALIASES = {"external_id": "id", "execution_summary": "content", "learned_at": "created_at"}
# Field -> reader of (key, value). Readers raise InvalidMemoryError with key, value and what is expected.
FIELD_READERS: dict[str, Callable[[str, object], object]] = {
    **dict.fromkeys(("execution_summary", "goal", "result", "feedback", "lessons_learned"), _read_text),
    **dict.fromkeys(("source", "external_id", "user_id", "agent_id", "session_id", "writer", "task_id"), _read_name),
    **dict.fromkeys(("tags", "files"), _read_strings),
    **dict.fromkeys(("success", "pinned"), _read_boolean),
    **dict.fromkeys(("learned_at", "last_accessed_at"), _read_time),
    **dict.fromkeys(("tool_usage", "error_patterns"), _read_value),
    "memory_type": _read_type,
    "importance": _read_importance,
    "reused_count": _read_count,
    "language": _read_language,
    "embedding": _read_embedding,
    "embedding_model": _read_name,
}
