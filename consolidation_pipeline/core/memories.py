"""What a raw memory is: its legal types, its text for embedding, its identity, and how an imported row becomes one."""

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid5

from consolidation_pipeline.errors import InvalidMemoryError

MEMORY_TYPES: tuple[str, ...] = (
    "error_fix",
    "discovery",
    "decision",
    "learning",
    "warning",
    "codebase_knowledge",
    "bugfix",
    "feature",
    "refactor",
    "change",
)

MAX_TEXT_CHARS = 100_000
# PostgreSQL refuses b-tree entries beyond about 2,700 bytes, and ids are indexed.
MAX_ID_CHARS = 512
# pgvector's limit for a column of type vector.
MAX_EMBEDDING_DIM = 16_000
FLOAT32_MAX, FLOAT32_TINY = 3.4028235e38, 1.1754944e-38
INT32_MAX = 2**31 - 1

# Changing this would give every stored row a new identity.
ID_NAMESPACE = UUID("f74a8103-de6f-46c0-bf63-0821c59df703")

_TRAILING_STOP = re.compile(r"(?<=[^\s.!…。])[.!…。]+$")
# Fewer digits in a text are a year or a calendar date.
_EPOCH_TEXT = re.compile(r"\d{9,}(\.\d+)?")
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
# What PostgreSQL 15 brings; `language` is a regconfig column and refuses any other name.
_LANGUAGES = """
    arabic armenian basque catalan danish dutch english finnish french german greek hindi hungarian indonesian irish
    italian lithuanian nepali norwegian portuguese romanian russian serbian simple spanish swedish tamil turkish yiddish
"""


def check_memory_type(value: object) -> str:
    """Return ``value`` if it is one of :data:`MEMORY_TYPES`; else raise InvalidMemoryError listing the legal ones."""
    if isinstance(value, str) and value in MEMORY_TYPES:
        return value
    raise _invalid("memory_type", value, f"one of {', '.join(MEMORY_TYPES)}")


@dataclass(frozen=True, kw_only=True)
class NewMemory:
    """One raw memory on its way into the store. Times are aware and in UTC; ``embedding`` has shape (dim,).

    Raises InvalidMemoryError for an unknown ``memory_type`` or a blank ``execution_summary``.
    """

    source: str
    external_id: str
    memory_type: str
    execution_summary: str
    goal: str | None = None
    result: str | None = None
    feedback: str | None = None
    lessons_learned: str | None = None
    tags: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    success: bool | None = None
    importance: float = 0.5
    user_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    task_id: str | None = None
    learned_at: datetime | None = None
    metadata: dict[str, object] = field(default_factory=dict)
    tool_usage: object = None
    error_patterns: object = None
    language: str = "english"
    reused_count: int = 0
    last_accessed_at: datetime | None = None
    pinned: bool = False
    embedding: tuple[float, ...] | None = None
    embedding_model: str | None = None

    def __post_init__(self) -> None:
        check_memory_type(self.memory_type)
        if not self.execution_summary.strip():
            raise _invalid("execution_summary", self.execution_summary, "a text that is not blank")


def embedding_text(
    *,
    goal: str | None,
    execution_summary: str | None,
    result: str | None,
    lessons_learned: str | None,
    feedback: str | None,
) -> str:
    """The text that stands for a memory in vector space: the non-blank fields in this order, one per line."""
    fields = (goal, execution_summary, result, lessons_learned, feedback)
    return "\n".join(text.strip() for text in fields if text and text.strip())


def content_hash(text: str) -> str:
    """SHA-256 of the UTF-8 text, 64 hex digits. Raises UnicodeEncodeError for lone surrogates."""
    return sha256(text.encode()).hexdigest()


def normalize_text(text: str) -> str:
    """The form in which two texts that say the same word for word are equal; idempotent.

    NFKC, casefold, runs of white space to one blank, stripped, closing ``.``, ``!``, ``…`` or ``。`` dropped. A closing
    question mark stays: a question is not the statement it asks about.
    """
    if text.isascii():
        folded = text.lower()
    else:  # case folding can undo the composition, hence NFKC on both sides of it
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return _TRAILING_STOP.sub("", " ".join(folded.split()))


def normalized_hash(text: str) -> str:
    """:func:`content_hash` of :func:`normalize_text`: equal for exact repeats."""
    return content_hash(normalize_text(text))


def memory_id(project_slug: str, source: str, external_id: str) -> UUID:
    """The id of a raw memory: uuid5 of what is unique about it, so that a second import meets the first."""
    return _uuid("memory", project_slug, source, external_id)


def consolidated_id(project_slug: str, kind: str, source_ids: Iterable[UUID | str], algorithm_version: str) -> UUID:
    """The id of a derived row: uuid5 of project, kind, sorted distinct source ids and algorithm version.

    A re-run over the same sources therefore meets its own row, whatever order they come in.
    """
    return _uuid("consolidated", project_slug, kind, sorted({str(id_) for id_ in source_ids}), str(algorithm_version))


def _uuid(*parts: object) -> UUID:
    # JSON keeps ("a", "bc") and ("ab", "c") apart, which joining would not.
    return uuid5(ID_NAMESPACE, json.dumps(parts, ensure_ascii=False))


def parse_memory(row: Mapping[str, object], *, source: str, default_type: str = "learning") -> NewMemory:
    """Validate one imported JSON object (or CSV row) and return the memory it describes.

    ``execution_summary`` or ``content`` is required, everything else optional; null and "" mean missing. ``source`` and
    ``default_type`` hold where the row has none of its own. ``external_id`` wins over ``id``, ``learned_at`` over
    ``created_at``. Without an id the hash of the row is its identity, so equal rows are one memory. Keys that are not
    known, or lost to another one, are kept in ``metadata``.

    Raises InvalidMemoryError naming key, value and what would be right.
    """
    rest = {str(key): value for key, value in row.items() if not (_is_missing(value) and key in _KNOWN)}
    _check_row(rest)
    fields: dict[str, Any] = {"source": source, "external_id": _row_hash(rest), "memory_type": default_type}
    for name, read in _READERS.items():
        key = name if name in rest else _ALIASES.get(name, name)
        if key in rest:
            fields[name] = read(key, rest.pop(key))
    if "execution_summary" not in fields:
        raise _invalid("content", row.get("content"), "a text that is not blank, as content or execution_summary")
    if "embedding" in fields and "embedding_model" not in fields:
        raise _invalid("embedding_model", None, "the name of the model that made the embedding")
    if "embedding_model" in fields and "embedding" not in fields:
        rest["embedding_model"] = fields.pop("embedding_model")
    return NewMemory(**fields, metadata=_metadata(rest))


def _invalid(key: str, value: object, expected: str) -> InvalidMemoryError:
    shown = repr(value)
    return InvalidMemoryError(f"{key} is {shown if len(shown) <= 80 else shown[:77] + '...'}: expected {expected}")


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _row_hash(row: Mapping[str, object]) -> str:
    # An export that writes empty fields out and one that leaves them out are the same row.
    present = {key: value for key, value in row.items() if not _is_missing(value)}
    return "sha256:" + content_hash(json.dumps(present, sort_keys=True, default=str))


def _check_row(row: Mapping[str, object]) -> None:
    for key, value in row.items():
        _check_characters("a key of the row", key)
        # A vector and a time do not stay JSON; their readers check them.
        if key == "embedding" or (key in _TIMES and isinstance(value, datetime)):
            continue
        try:
            _check_storable(key, value)
        except RecursionError:
            raise _invalid(key, "...", "a value nested less deeply") from None


def _check_storable(key: str, value: object) -> None:
    """Refuse what PostgreSQL's text and jsonb cannot hold, however deep it sits."""
    if isinstance(value, str):
        _check_characters(key, value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise _invalid(key, value, "a finite number")
    elif isinstance(value, Mapping):
        for name, item in value.items():
            _check_characters(f"a key of {key}", str(name))
            _check_storable(f"{key}.{name}", item)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_storable(key, item)
    elif not isinstance(value, int | float | None):
        raise _invalid(key, value, "a JSON value")


def _check_characters(key: str, text: str) -> None:
    if "\x00" in text:
        raise _invalid(key, text, "text without NUL bytes")
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise _invalid(key, text, "valid Unicode without lone surrogates")


def _read_text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise _invalid(key, value, "text")
    if len(value) > MAX_TEXT_CHARS:
        raise _invalid(key, value, f"at most {MAX_TEXT_CHARS:,} characters, not {len(value):,}")
    return value


def _read_name(key: str, value: object) -> str:
    """An id: text, or a whole number as its digits."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _invalid(key, value, "text or a whole number")
    name = str(value).strip()
    if len(name) > MAX_ID_CHARS:
        raise _invalid(key, value, f"at most {MAX_ID_CHARS} characters, not {len(name)}")
    return name


def _read_type(_key: str, value: object) -> str:
    return check_memory_type(value.strip() if isinstance(value, str) else value)


def _read_language(key: str, value: object) -> str:
    language = _read_text(key, value).strip().lower()
    if language not in _LANGUAGES.split():
        raise _invalid(key, value, f"one of {', '.join(_LANGUAGES.split())}")
    return language


def _read_boolean(key: str, value: object) -> bool:
    word = str(value).strip().lower()
    if not isinstance(value, bool | int | str) or word not in _BOOLEANS:
        raise _invalid(key, value, "true, false, yes, no, 1 or 0")
    return _BOOLEANS[word]


def _number(value: object) -> float:
    """A JSON number or its text as a float; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def _read_importance(key: str, value: object) -> float:
    number = _number(value)
    if not (math.isfinite(number) and number >= 0):
        raise _invalid(key, value, "a number >= 0")
    return number


def _read_count(key: str, value: object) -> int:
    number = _number(value)
    if not (0 <= number <= INT32_MAX and number.is_integer()):
        raise _invalid(key, value, f"a whole number from 0 to {INT32_MAX:,}")
    return int(number)


def _decoded(key: str, value: object) -> object:
    """``value``, or what it holds if it is JSON text, as in a CSV cell."""
    if not isinstance(value, str):
        return value
    try:
        decoded: object = json.loads(value)
    except (ValueError, RecursionError):
        return value
    _check_storable(key, decoded)
    return decoded


def _read_strings(key: str, value: object) -> tuple[str, ...]:
    """A list of texts, JSON text of one, or texts separated by commas; stripped, without blanks and repeats."""
    items = _decoded(key, value)
    if isinstance(value, str) and not isinstance(items, list):
        items = value.split(",")
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise _invalid(key, value, "a list of texts, or texts separated by commas")
    return tuple(dict.fromkeys(item.strip() for item in items if item.strip()))


def _read_time(key: str, value: object) -> datetime:
    """ISO 8601, or seconds or milliseconds since 1970; without a zone it is UTC."""
    try:
        time = _instant(value)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise _invalid(key, value, "an ISO 8601 time, or seconds or milliseconds since 1970") from None


def _instant(value: object) -> datetime:
    if isinstance(value, datetime):
        return value
    text = str(value).strip()
    number = _number(value)
    if math.isnan(number) or (isinstance(value, str) and not _EPOCH_TEXT.fullmatch(text)):
        return datetime.fromisoformat(text)
    # 1e11 seconds is the year 5138, 1e11 milliseconds is 1973: no real time is ambiguous.
    return datetime.fromtimestamp(number / 1000 if abs(number) >= 1e11 else number, UTC)


def _read_embedding(key: str, value: object) -> tuple[float, ...]:
    items = _decoded(key, value)
    if not isinstance(items, list | tuple) or not all(type(item) in (int, float) for item in items):
        raise _invalid(key, value, "a flat list of numbers")
    if not 1 <= len(items) <= MAX_EMBEDDING_DIM:
        raise _invalid(key, value, f"1 to {MAX_EMBEDDING_DIM:,} numbers, not {len(items):,}")
    # Written so that NaN fails too; the database keeps float32.
    if not all(abs(item) <= FLOAT32_MAX for item in items):
        raise _invalid(key, value, "finite float32 numbers")
    if all(abs(item) < FLOAT32_TINY for item in items):
        raise _invalid(key, value, "at least one number other than zero")
    return tuple(float(item) for item in items)


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
    decoded = {} if _is_missing(value) else _decoded(key, value)
    if not isinstance(decoded, Mapping):
        raise _invalid(key, value, "a JSON object")
    return {str(name): item for name, item in decoded.items()}


_TIMES = ("learned_at", "created_at", "last_accessed_at")
_ALIASES = {"external_id": "id", "execution_summary": "content", "learned_at": "created_at"}
_READERS: dict[str, Callable[[str, object], object]] = {
    **dict.fromkeys(("execution_summary", "goal", "result", "feedback", "lessons_learned"), _read_text),
    **dict.fromkeys(("source", "external_id", "user_id", "agent_id", "session_id", "task_id"), _read_name),
    **dict.fromkeys(("tags", "files"), _read_strings),
    **dict.fromkeys(("success", "pinned"), _read_boolean),
    **dict.fromkeys(("learned_at", "last_accessed_at"), _read_time),
    **dict.fromkeys(("tool_usage", "error_patterns"), _decoded),
    "memory_type": _read_type,
    "importance": _read_importance,
    "reused_count": _read_count,
    "language": _read_language,
    "embedding": _read_embedding,
    "embedding_model": _read_name,
}
_KNOWN = frozenset(_READERS) | frozenset(_ALIASES.values())
