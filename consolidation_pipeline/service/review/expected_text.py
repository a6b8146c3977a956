"""The text that a person read before a decision, by its hash: a run may have written it anew meanwhile."""

from __future__ import annotations

from hashlib import sha256
from uuid import UUID

from consolidation_pipeline.errors import ConflictError

_HASH_CHARS = 12


def short_hash(text: str) -> str:
    """Return the first characters of the text's SHA-256 in hexadecimal, enough to tell its versions apart."""
    return sha256(text.encode()).hexdigest()[:_HASH_CHARS]


def check_expected(noun: str, id_: UUID, text: str, expected: str | None) -> None:
    """Raise ConflictError unless ``expected`` is None or the hash of the text."""
    if expected is not None and expected.strip().lower() != (current := short_hash(text)):
        raise ConflictError(
            f"the text of {noun} {id_} has the hash {current}, not {expected}: it was written anew since you read it. "
            "Read it again before you decide",
            (str(id_),),
        )
