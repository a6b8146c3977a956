"""Successors: the text and vector of the merged memory that a group would become."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np

from consolidation_pipeline.core.text.text_merge import MergedText, merge_capped
from consolidation_pipeline.core.vectors import normalize
from consolidation_pipeline.embed.embedder import is_free
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.engine import Row
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.knowledge.abstractions import APPROVED


class Bodies(NamedTuple):
    """Texts that become one. Those that a person ``approved`` come first and replace the texts of their sources.

    ``others``: texts of the other sources by id, in the order in which they are joined.
    """

    approved: Sequence[str]
    others: Mapping[UUID, str]


def select_bodies(bodies: Mapping[UUID, str], into: Mapping[UUID, UUID | None], existing: Sequence[Row[Any]]) -> Bodies:
    """Return the texts that the merged memory of some sources is made of.

    Args:
        bodies: Text of each source, in the order in which they are joined: the representative first, then by id.
        into: Merged memory that holds a source already.
        existing: These merged memories.
    """
    approved = {row.id: row.content for row in existing if APPROVED in row.details}
    return Bodies([*approved.values()], {id_: body for id_, body in bodies.items() if into[id_] not in approved})


def merge_bodies(bodies: Bodies, *, max_chars: int) -> MergedText:
    """Return the text of the merged memory of some sources."""
    approved, others = bodies.approved, [*bodies.others.values()]
    if not approved and len(set(others)) == 1 and len(others[0]) <= max_chars:
        return MergedText(others[0], ())
    return merge_capped([*approved, *others], max_chars=max_chars, keep_first=bool(approved))


def merge_all(groups: Sequence[Bodies], *, max_chars: int) -> list[MergedText]:
    """Return the text of the merged memory of each group of sources."""
    return [merge_bodies(bodies, max_chars=max_chars) for bodies in groups]


def hash_bodies(bodies: Bodies) -> bytes:
    """Return a hash (16 bytes) of what a merged text is made of, besides options and program."""
    digest = blake2b(digest_size=16)
    for part in (str(len(bodies.approved)), *bodies.approved, *bodies.others.values()):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()


def find_merged_text(known: Mapping[bytes, MergedText], bodies: Bodies, *, max_chars: int) -> MergedText:
    """Return the text of the merged memory of some sources, from the ``known`` ones if it is among them."""
    return known.get(hash_bodies(bodies)) or merge_bodies(bodies, max_chars=max_chars)


def sort_by_source_count(merged: Iterable[Row[Any]]) -> list[Row[Any]]:
    """Return merged memories sorted by their number of sources, most first; ties: the smallest id."""
    return sorted(merged, key=lambda row: (-row.source_count, row.id))


def estimate_vectors(run: ProjectRun, texts: Sequence[str], sources: Sequence[Vectors]) -> list[Vectors]:
    """Return the vector (d,) of each merged text.

    A model that is paid for is not asked, as a plan asks none and has to say what the run does. Then it is the mean of
    the vectors (s, d) of the sources of each text.
    """
    if is_free(run.embedder):
        return list(run.embedder.embed(texts)) if texts else []
    return [np.asarray(normalize(vectors.mean(axis=0, keepdims=True, dtype=np.float64))[0]) for vectors in sources]
