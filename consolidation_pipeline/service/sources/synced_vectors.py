"""Vectors of the rows of a store for their memories: taken along where they are of the project's model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.connect.store import MemoryStore, SourceRow
from consolidation_pipeline.core.text.counted_nouns import counted
from consolidation_pipeline.core.vectors import find_unusable, normalize
from consolidation_pipeline.embed import load_embedder
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.options import parse_options
from consolidation_pipeline.service.sources.store_vectors import (
    StoreEmbedder,
    count_dimensions,
    name_model,
    parse_vectors,
    shares_model,
)
from consolidation_pipeline.service.sources.stores import read_config
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.vector_copy import Vectors, to_ids, to_uuids
from consolidation_pipeline.store.knowledge.abstractions import load_unit_vectors
from consolidation_pipeline.store.memories.embeddings import load_unembedded, save_embeddings
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.similarity.similarity_graph import load_dimension
from consolidation_pipeline.store.sources.sources import Source

# Cosine above which two vectors are one but for rounding.
_SAME_VECTOR = 0.99999
# Transactions that save vectors at a time, and the fewest vectors for which another one is worth its start.
_SAVED_AT_ONCE, _FEWEST_SAVED = 2, 100


@dataclass(frozen=True, eq=False)
class GivenVector:
    """Vector of a row for a memory. ``former``: unit vector (d,) of the text that it had."""

    memory_id: UUID
    row: SourceRow
    former: Vectors | None = None

    @property
    def text(self) -> str:
        """The vector as Postgres writes it."""
        return self.row.vector or ""

    @property
    def is_former(self) -> bool:
        """True if it is that of the former text: its program changed the text alone."""
        if self.former is None or count_dimensions(self.text) != len(self.former):
            return False
        return bool(normalize(parse_vectors([self.text]))[0] @ self.former > _SAME_VECTOR)


class SyncedVectors:
    """Vectors that one sync takes along. ``note``: is called with sentences for people."""

    def __init__(
        self, engine: Engine, project: Project, source: Source, store: MemoryStore, note: Callable[[str], None]
    ) -> None:
        self.engine, self.project, self.source, self.store, self.note = engine, project, source, store, note
        self.config = read_config(source.config)
        self.model = load_embedder(parse_options(project.config).embedding_model).name
        self.embedder = StoreEmbedder(engine, project, self.config, store)
        self.unused = (0, "")  # Rows whose vectors are made anew, and why those of the first ones are.

    @cached_property
    def are_taken(self) -> bool:
        """True if the vectors of the store are said to be of the project's model; else they are made anew here."""
        if not self.store.has_vectors:
            return False
        is_shared = shares_model(self.config, self.project)
        if not is_shared and self.source.synced_at is None:
            theirs, ours = name_model(self.config), parse_options(self.project.config).embedding_model
            self.note(f"vectors are made anew, not taken along: the store's are of {theirs}, the project's of {ours}")
        if is_shared:
            self.embedder.prepare()
        return is_shared

    def describe(self) -> Iterator[str]:
        """Yield a sentence if vectors are made anew that were to be taken along."""
        if self.unused[0]:
            yield f"vectors of {counted(self.unused[0], 'row')} are made anew, not taken along: {self.unused[1]}"

    def load_former(self, rows: Mapping[UUID, SourceRow]) -> Mapping[UUID, Vectors]:
        """Return the unit vectors that memories have before the texts of their rows are written to them."""
        if not rows:
            return {}
        with self.engine.connect() as connection:
            length = load_dimension(connection, self.project.id, self.model)
            return load_unit_vectors(connection, rows, self.model, length)

    def list_given(
        self, rows: Mapping[UUID, SourceRow], revised: Sequence[UUID], former: Mapping[UUID, Vectors]
    ) -> list[GivenVector]:
        """Return the vectors of rows for those of the revised memories that have no vector now."""
        if not (named := [id_ for id_ in revised if id_ in rows]):
            return []
        with self.engine.connect() as connection:
            bare = load_unembedded(connection, "task_memories", to_ids(named), self.model)
        return [GivenVector(id_, rows[id_], former.get(id_)) for id_ in to_uuids(bare.ids)]

    def save(self, given: Sequence[GivenVector]) -> int:
        """Write vectors to memories, and return how many; the next run makes those anew that cannot be used."""
        given = [vector for vector in given if not vector.is_former]
        if not given:
            return 0
        dimensions = self._check([vector.row for vector in given])
        given = [vector for vector in given if count_dimensions(vector.text) == dimensions]
        if not given:
            return 0
        found = parse_vectors([vector.text for vector in given])
        usable = np.setdiff1d(np.arange(len(given)), find_unusable(found))
        ids, unit = to_ids([given[at].memory_id for at in usable.tolist()]), normalize(found[usable])
        if not len(ids):
            return 0

        def save(rows: NDArray[np.int64]) -> None:
            with self.engine.begin() as connection:
                save_embeddings(connection, "task_memories", ids[rows], unit[rows], self.model)

        # Most of the time goes into the index on vectors, which takes rows of several transactions at once.
        parts = np.array_split(np.arange(len(ids)), min(_SAVED_AT_ONCE, -(-len(ids) // _FEWEST_SAVED)))
        with ThreadPoolExecutor(_SAVED_AT_ONCE) as threads:
            list(threads.map(save, parts))
        return len(ids)

    def _check(self, rows: Sequence[SourceRow]) -> int | None:
        """Return the length of the vectors of rows; None = they are made anew here."""
        try:
            return self.embedder.check(rows)
        except UsageError as error:
            self.unused = (self.unused[0] + len(rows), self.unused[1] or str(error))
            return None
