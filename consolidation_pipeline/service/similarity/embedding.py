"""Embedding of memories: every memory gets a vector of the project's model; equal texts are embedded once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np

from consolidation_pipeline.core.vectors import find_unusable
from consolidation_pipeline.embed.embedder import Embedder, describe_text, embed_batches
from consolidation_pipeline.errors import EmbeddingError
from consolidation_pipeline.service.runs.prefetch import prefetch
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.runs.worker_processes import start_processes
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.vector_copy import Vectors, to_ids, to_uuids
from consolidation_pipeline.store.memories.embeddings import (
    UnembeddedTexts,
    count_embedded,
    list_unembedded,
    load_unembedded,
    reuse_embeddings,
    save_embeddings,
)
from consolidation_pipeline.store.similarity.similarity_graph import load_dimension

# Rows that are loaded together. If the model embeds them in parts, each part is stored at once.
BATCH = 4096


@dataclass(frozen=True)
class EmbeddingResult:
    """Number of memories with a vector, and numbers of new vectors: computed, or reused from equal content."""

    memories: int
    computed: int
    reused: int


def embed_memories(run: ProjectRun) -> EmbeddingResult:
    """Embed memories that have no vector of the active model, batch by batch, each in its own transaction.

    Raises:
        EmbeddingError: the model gave no usable vector, or one of another length; the message names the memory.
        BudgetExhaustedError: the budget is used up. The vectors so far stay, but later phases need all vectors.
    """
    model = run.embedder.name
    computed = reused = 0
    with run.reading() as connection:
        counts = count_embedded(connection, run.project.id, model)
    waiting = [table for table, (_, missing) in counts.items() if missing]
    embedded, missing = counts["task_memories"]
    start_processes(memories=embedded + missing, new=missing)  # Later phases need them, and this one mostly waits.
    for table in waiting:
        with run.transaction() as connection:
            reused += reuse_embeddings(connection, run.project.id, table, model)
        # Agents write meanwhile. Rows that came during one pass are embedded by the next.
        while done := _embed_table(run, table):
            computed += done
    if waiting:
        with run.reading() as connection:
            counts = count_embedded(connection, run.project.id, model)
    return EmbeddingResult(sum(embedded for embedded, _ in counts.values()), computed, reused)


def embed_raw_memories(engine: Engine, embedder: Embedder, ids: Sequence[UUID]) -> None:
    """Embed these raw memories outside of any run, if they have no vector of the model yet."""
    with engine.connect() as connection:
        batch = load_unembedded(connection, "task_memories", to_ids(ids), embedder.name)
    if batch.texts:
        vectors = embedder.embed(batch.texts)
        with engine.begin() as connection:
            save_embeddings(connection, "task_memories", batch.ids, vectors, embedder.name)


def _embed_table(run: ProjectRun, table: str) -> int:
    """Embed the rows that have no vector now; return their number."""
    done = 0
    for batch, vectors in prefetch(_load_and_embed(run, table)):
        with run.transaction() as connection:
            save_embeddings(connection, table, batch.ids, vectors, run.embedder.name)
        done += len(batch.texts)
    return done


def _load_and_embed(run: ProjectRun, table: str) -> Iterator[tuple[UnembeddedTexts, Vectors]]:
    model = run.embedder.name
    with run.reading() as connection:
        ids = list_unembedded(connection, run.project.id, table, model)
        dimension = load_dimension(connection, run.project.id, model) if len(ids) else 0
    for start in range(0, len(ids), BATCH):
        with run.reading() as connection:
            batch = load_unembedded(connection, table, ids[start : start + BATCH], model)
        if batch.texts:
            for part, vectors in embed_texts(batch, run.embedder):
                check_vectors_of(part, vectors, model, dimension)
                dimension = vectors.shape[1]
                yield part, vectors


def embed_texts(batch: UnembeddedTexts, embedder: Embedder) -> Iterator[tuple[UnembeddedTexts, Vectors]]:
    """Yield parts of the batch with their vectors float32 (n, d); equal texts are embedded once."""
    numbers: dict[str, int] = {}
    # Number of the text of each row among the distinct texts, and the first row with each of these.
    positions = np.array([numbers.setdefault(content, len(numbers)) for content in batch.hashes])
    rows = np.unique(positions, return_index=True)[1].tolist()
    texts = [batch.texts[row] for row in rows]
    try:
        for start, vectors in embed_batches(embedder, texts):
            chosen = np.flatnonzero((positions >= start) & (positions < start + len(vectors)))
            yield batch.select(chosen), vectors[positions[chosen] - start]
    except EmbeddingError as error:
        # Embedders know no memories. They name a text as `describe_text` does, so add the memory to the message.
        named = [row for at, row in enumerate(rows) if describe_text(at, texts[at]) in str(error)]
        raise EmbeddingError(" ".join([str(error), *(f"({_name(batch, row)})" for row in named)])) from error


def check_vectors_of(batch: UnembeddedTexts, vectors: Vectors, model: str, dimension: int) -> None:
    """Raise EmbeddingError if a vector is unusable, or of another length than ``dimension``; 0 = any length."""
    unusable = find_unusable(vectors)
    if unusable.size:
        raise EmbeddingError(f"{model} gave {_name(batch, int(unusable[0]))} a vector that is zero or not finite")
    found = vectors.shape[1]
    if dimension and found != dimension:
        raise EmbeddingError(
            f"{model} gave {_name(batch, 0)} a vector of {found} dimensions, the others have {dimension}"
        )


def _name(batch: UnembeddedTexts, row: int) -> str:
    return f"memory {to_uuids(batch.ids[[row]])[0]}"
