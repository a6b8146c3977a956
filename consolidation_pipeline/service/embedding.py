"""Give every memory a vector of the project's model; nothing is embedded twice."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from consolidation_pipeline.core.vectors import find_unusable
from consolidation_pipeline.embed import Embedder
from consolidation_pipeline.errors import EmbeddingError
from consolidation_pipeline.service.runs import ProjectRun
from consolidation_pipeline.store.engine import Engine
from consolidation_pipeline.store.memories import (
    EMBEDDED_TABLES,
    Unembedded,
    count_embedded,
    load_unembedded,
    reuse_embeddings,
    save_embeddings,
)
from consolidation_pipeline.store.vectors_io import Vectors, to_uuids

# Rows per transaction: a run that is killed loses at most this much paid work.
BATCH = 4096


@dataclass(frozen=True)
class Embedded:
    """Rows that have a vector now, and how the new ones got it: computed, or taken over from equal content."""

    memories: int
    computed: int
    reused: int


def embed_memories(run: ProjectRun) -> Embedded:
    """Embed what has no vector of the active model, batch by batch, each in a transaction of its own.

    Raises:
        EmbeddingError: the model gave no usable vector; the message names the memory. Earlier batches stay.
    """
    model = run.embedder.name
    memories = computed = reused = 0
    for table in EMBEDDED_TABLES:
        with run.engine.begin() as connection:
            reused += reuse_embeddings(connection, run.project.id, table, model)
        while done := _embed_batch(run.engine, run.project.id, table, run.embedder):
            computed += done
        with run.engine.connect() as connection:
            memories += count_embedded(connection, run.project.id, table, model)
    return Embedded(memories, computed, reused)


def _embed_batch(engine: Engine, project_id: UUID, table: str, embedder: Embedder) -> int:
    """Embed up to ``BATCH`` rows; returns how many there were."""
    with engine.connect() as connection:
        batch = load_unembedded(connection, project_id, table, embedder.name, BATCH)
    if not batch.texts:
        return 0
    vectors = _embed(batch, embedder)
    with engine.begin() as connection:
        save_embeddings(connection, table, batch.ids, vectors, embedder.name)
    return len(batch.texts)


def _embed(batch: Unembedded, embedder: Embedder) -> Vectors:
    """Vectors float32 (n, d) of the batch; equal texts are embedded once."""
    first = {content: at for at, content in reversed(list(enumerate(batch.hashes)))}
    rows = sorted(first.values())
    place = {batch.hashes[row]: at for at, row in enumerate(rows)}
    vectors = embedder.embed([batch.texts[row] for row in rows])[[place[content] for content in batch.hashes]]
    unusable = find_unusable(vectors)
    if unusable.size:
        raise EmbeddingError(
            f"{embedder.name} gave memory {to_uuids(batch.ids[unusable[:1]])[0]} a vector that is zero or not finite"
        )
    return vectors
