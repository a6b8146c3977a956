"""Raw memories: types, text for embedding, normal form, hashes and ids."""

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import blake2b, sha256
from uuid import UUID, uuid5

from consolidation_pipeline.core.invalid_values import shorten_value
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

# Kind of memory -> its level of abstraction.
LEVELS: Mapping[str, int] = {"raw": 0, "merged": 1, "pattern": 2, "summary": 2, "principle": 3, "procedural": 3}

# Memories that were learned later than this from now have a wrong date; clocks and time zones differ by less.
MAX_TIME_AHEAD = timedelta(days=1)

# Changing this would give every stored row a new id.
ID_NAMESPACE = UUID("f74a8103-de6f-46c0-bf63-0821c59df703")

_encode_json = json.JSONEncoder(ensure_ascii=False).encode
_TRAILING_STOP = re.compile(r"(?<=[^\s.!…。])[.!…。]+$")


def check_memory_type(value: object) -> str:
    """Return ``value`` if it is one of ``MEMORY_TYPES``.

    Raises:
        InvalidMemoryError: It is not; the message lists the legal types.
    """
    if isinstance(value, str) and value in MEMORY_TYPES:
        return value
    raise invalid_field("memory_type", value, f"one of {', '.join(MEMORY_TYPES)}")


@dataclass(frozen=True, kw_only=True)
class NewMemory:
    """A raw memory to be stored. Times are aware and in UTC; ``embedding`` has shape (d,).

    Raises:
        InvalidMemoryError: ``memory_type`` is unknown, or ``execution_summary`` is blank.
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
    writer: str | None = None
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
            raise invalid_field("execution_summary", self.execution_summary, "a text that is not blank")


def embedding_text(
    *,
    goal: str | None,
    execution_summary: str | None,
    result: str | None,
    lessons_learned: str | None,
    feedback: str | None,
) -> str:
    """Return the text of a memory that is embedded: the non-blank fields in this order, one per line."""
    fields = (goal, execution_summary, result, lessons_learned, feedback)
    return "\n".join(text.strip() for text in fields if text and text.strip())


def content_hash(text: str) -> str:
    """Return the SHA-256 of the UTF-8 text as 64 hex digits. Raise UnicodeEncodeError for lone surrogates."""
    return sha256(text.encode()).hexdigest()


def hash_text(text: str) -> int:
    """Return a hash of 64 bits of the UTF-8 text, the same in each process."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def normalize_text(text: str) -> str:
    """Return the normal form of a text, in which exact repeats are equal; idempotent.

    NFKC, case folding, one blank for each run of white space, no ``.``, ``!``, ``…`` and ``。`` at the end. A question
    mark stays: a question is not a statement.
    """
    if text.isascii():
        folded = text.lower()
    else:  # case folding can undo the composition, so NFKC comes before and after it
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return _TRAILING_STOP.sub("", " ".join(folded.split()))


def normalized_hash(text: str) -> str:
    """Return the hash of the normal form of a text: equal for exact repeats."""
    return content_hash(normalize_text(text))


def memory_id(project_slug: str, source: str, external_id: str) -> UUID:
    """Return the id of a raw memory, which depends on project, source and external id only."""
    return _derive_uuid("memory", project_slug, source, external_id)


def consolidated_id(project_slug: str, kind: str, source_ids: Iterable[UUID | str], algorithm_version: str) -> UUID:
    """Return the id of a derived memory: uuid5 of project, kind, sorted distinct source ids and algorithm version."""
    return _derive_uuid(
        "consolidated", project_slug, kind, sorted({str(id_) for id_ in source_ids}), str(algorithm_version)
    )


def relation_id(project_slug: str, relation_type: str, a_id: UUID, b_id: UUID) -> UUID:
    """Return the id of a relation from ``a_id`` to ``b_id``; both directions of an undirected relation have one id."""
    ends = [str(a_id), str(b_id)]
    return _derive_uuid("relation", project_slug, relation_type, ends if relation_type == "explains" else sorted(ends))


def _derive_uuid(*parts: object) -> UUID:
    # JSON distinguishes ("a", "bc") from ("ab", "c"); joined texts would not.
    return uuid5(ID_NAMESPACE, _encode_json(parts))


def invalid_field(key: str, value: object, expected: str) -> InvalidMemoryError:
    """Return an error that names the field, its shortened value and what is expected."""
    return InvalidMemoryError(f"{key} is {shorten_value(value)}: expected {expected}")
