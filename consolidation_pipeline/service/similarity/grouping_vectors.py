"""Grouping vectors of memories with boilerplate: the vectors of their texts without it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np

from consolidation_pipeline.core.memories.memories import content_hash
from consolidation_pipeline.core.text.boilerplate import strip_boilerplate
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.similarity.graph_nodes import ProjectContext
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import Ids, Vectors, to_uuids
from consolidation_pipeline.store.memories.memories import load_texts
from consolidation_pipeline.store.similarity.grouping_vectors import load_text_hashes, replace_grouping_vectors


@dataclass(frozen=True, eq=False)
class StrippedTexts:
    """The texts of memories with boilerplate, stripped of it.

    ``hashes``: hash of the stripped text by memory. ``vectors``: float32 (n, d), of the stripped texts that had none.
    ``computed``: row of ``vectors`` by hash.
    """

    hashes: Mapping[UUID, str]
    computed: Mapping[str, int]
    vectors: Vectors


def embed_stripped_texts(
    context: ProjectContext, texts: Mapping[UUID, str], boilerplate: Collection[str], *, known: Collection[str]
) -> StrippedTexts:
    """Strip ``boilerplate`` from the texts and embed the stripped texts, each distinct text once.

    Args:
        texts: texts by memory.
        boilerplate: sentences, normalised.
        known: hashes of texts that have a vector already; they are not embedded.
    """
    sentences = frozenset(boilerplate)
    stripped = {id_: strip_boilerplate(text, sentences) for id_, text in texts.items()}
    hashes = {id_: content_hash(text) for id_, text in stripped.items() if text != texts[id_]}
    missing = {hash_: stripped[id_] for id_, hash_ in sorted(hashes.items()) if hash_ not in known}
    vectors = context.embedder.embed(list(missing.values())) if missing else np.empty((0, 0), np.float32)
    return StrippedTexts(hashes, {hash_: row for row, hash_ in enumerate(missing)}, vectors)


def refresh_stripped_texts(run: ProjectRun, ids: Ids, boilerplate: Collection[str]) -> StrippedTexts:
    """Update the grouping vectors of the memories ``ids``."""
    chosen = to_uuids(ids)
    with run.reading() as connection:
        stored = load_text_hashes(connection, run.project.id, run.embedder.name)
        texts = load_texts(connection, chosen) if boilerplate and chosen else {}
    stripped = embed_stripped_texts(run, texts, boilerplate, known=set(stored.values()))
    if any(stored.get(id_) != stripped.hashes.get(id_) for id_ in chosen):
        with run.transaction() as connection:
            save_stripped_texts(connection, run, stripped, checked=chosen)
    return stripped


def save_stripped_texts(
    connection: Connection, context: ProjectContext, stripped: StrippedTexts, *, checked: Sequence[UUID] | None = None
) -> None:
    """Store the grouping vectors. ``checked``: memories that were checked for boilerplate; None = all."""
    replace_grouping_vectors(
        connection,
        context.project.id,
        context.embedder.name,
        text_hashes=stripped.hashes,
        computed=stripped.computed,
        vectors=stripped.vectors,
        checked=checked,
    )


def build_grouping_vectors(ids: Ids, plain: Vectors, stripped: StrippedTexts, stored: Mapping[str, Vectors]) -> Vectors:
    """Return the grouping vectors (n, d) of the memories ``ids``, before they are stored.

    Args:
        plain: vectors (n, d) of the whole texts.
        stored: vectors (d,) that are stored so far, by the hash of their text.
    """
    x = plain.copy()
    for row, id_ in enumerate(to_uuids(ids)):
        wanted = stripped.hashes.get(id_)
        if wanted is not None:
            x[row] = stripped.vectors[stripped.computed[wanted]] if wanted in stripped.computed else stored[wanted]
    return x
