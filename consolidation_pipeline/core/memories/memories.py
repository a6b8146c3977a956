"""What a raw memory is: its legal types, its text for embedding, its normal form and its identity."""

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
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

# Kind of memory -> its level of abstraction.
LEVELS: Mapping[str, int] = {"raw": 0, "merged": 1, "pattern": 2, "summary": 2, "principle": 3, "procedural": 3}

# Changing this would give every stored row a new identity.
ID_NAMESPACE = UUID("f74a8103-de6f-46c0-bf63-0821c59df703")

_TRAILING_STOP = re.compile(r"(?<=[^\s.!…。])[.!…。]+$")


def check_memory_type(value: object) -> str:
    """Return ``value`` if it is one of :data:`MEMORY_TYPES`; else raise InvalidMemoryError listing the legal ones."""
    if isinstance(value, str) and value in MEMORY_TYPES:
        return value
    raise invalid_field("memory_type", value, f"one of {', '.join(MEMORY_TYPES)}")


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
            raise invalid_field("execution_summary", self.execution_summary, "a text that is not blank")


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


def relation_id(project_slug: str, relation_type: str, a_id: UUID, b_id: UUID) -> UUID:
    """The id of a relation from ``a_id`` to ``b_id``; where it has no direction, both ways have one id."""
    ends = [str(a_id), str(b_id)]
    return _uuid("relation", project_slug, relation_type, ends if relation_type == "explains" else sorted(ends))


def _uuid(*parts: object) -> UUID:
    # JSON keeps ("a", "bc") and ("ab", "c") apart, which joining would not.
    return uuid5(ID_NAMESPACE, json.dumps(parts, ensure_ascii=False))


def invalid_field(key: str, value: object, expected: str) -> InvalidMemoryError:
    """The error that names the field, its value, shortened, and what would be right."""
    shown = repr(value)
    return InvalidMemoryError(f"{key} is {shown if len(shown) <= 80 else shown[:77] + '...'}: expected {expected}")
