"""Recall gate: a group stays written only if the store's own search finds its successor as well as its rows before.

Before, the texts of its rows are compared with those of the memories that were merged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from consolidation_pipeline.connect.store import GroupWrite, MemoryStore, Receipt, SourceRow, scope_key
from consolidation_pipeline.errors import ConflictError, ConsolidationError
from consolidation_pipeline.service.sources.store_vectors import StoreEmbedder
from consolidation_pipeline.service.sources.write_plan import PlannedWrite
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.sources.source_writes import load_row_texts
from consolidation_pipeline.store.sources.sources import Source

# Places of the store's own search in which a successor has to be.
SEARCH_LIMIT = 20


class RecallError(ConsolidationError):
    """The store's own search would find the successor worse than a source."""


@dataclass(frozen=True)
class Places:
    """Places in the store's own search by the key of the row whose text is searched: 0 = first, None = not found.

    ``before``: of the best row of the group. ``after``: of the successor.
    """

    before: Mapping[str, int | None]
    after: Mapping[str, int | None]

    def check(self) -> None:
        """Raise RecallError if the successor is found worse for a source's text than the best source was."""
        worse = [key for key, place in self.before.items() if place is not None and not self._reaches(key, place)]
        if worse:
            now = self.after.get(worse[0])
            place = "not found" if now is None else f"at place {now + 1}"
            raise RecallError(
                f"the store's own search finds the successor worse for {len(worse)} of {len(self.before)} texts: for "
                f"{worse[0]} it was at place {(self.before[worse[0]] or 0) + 1}, and is {place}"
            )

    def _reaches(self, key: str, wanted: int) -> bool:
        place = self.after.get(key)
        return place is not None and place <= wanted

    def describe(self) -> str:
        """Return in words where a successor is found that passed."""
        found = [place for place in self.after.values() if place is not None]
        if not found:
            return "no vectors to search by"
        return f"found at place {max(found) + 1} or better for {len(found)} texts"


def read_rows(store: MemoryStore, plan: PlannedWrite) -> list[SourceRow]:
    """Return the rows of a group as the store has them now, with their vectors."""
    with store.transaction():
        return list(store.iter_rows(list(plan.stamps), vectors=store.has_vectors))


def check_texts(engine: Engine, source: Source, plan: PlannedWrite, rows: Sequence[SourceRow]) -> None:
    """Raise ConflictError if a memory says something else than its row: it was edited here, and the store was not.

    Left out are rows that changed since, which the write refuses, and successors, whose text is the united one.
    """
    with engine.connect() as connection:
        texts = load_row_texts(connection, source.id, [row.key for row in rows], state="mirrored")
    same = [row for row in rows if row.key in texts and row.stamp == plan.stamps[row.key]]
    edited = [row.key for row in same if _read_words(row) != texts[row.key].split()]
    if edited:
        raise ConflictError(
            f"the memory of row {edited[0]} was edited here, and the store has another text: undo the edit, or change "
            "the row in the store and sync",
            tuple(edited),
        )


def _read_words(row: SourceRow) -> list[str]:
    return f"{row.fields.get('goal') or ''} {row.text}".split()


def make_group(
    store: MemoryStore, plan: PlannedWrite, rows: Sequence[SourceRow], embedder: StoreEmbedder, write_id: UUID
) -> GroupWrite:
    """Return the order to write a group, with the vector of its new row.

    Raises:
        ConflictError: Its rows are of several scopes.
        UsageError: The new row needs a vector, and its model is not known.
    """
    if len({scope_key(row.scope) for row in rows}) > 1:
        raise ConflictError("its rows are of several scopes")
    needs_vector = plan.keep is None and store.has_vectors
    return plan.make_order(write_id, vector=embedder.embed(plan.text) if needs_vector else None)


def write_checked(
    store: MemoryStore, source: str, group: GroupWrite, rows: Sequence[SourceRow]
) -> tuple[Receipt, Places]:
    """Write a group in the transaction of ``store``, and search for its successor.

    Raises:
        ConflictError: A row changed or is gone since the merge was decided.
        RecallError: The store's own search finds the successor worse; the transaction has to be rolled back.
    """
    before = store.find_places(rows, set(group.stamps), SEARCH_LIMIT)
    receipt = store.write_group(source, group)
    places = Places(before, store.find_places(rows, {receipt.successor}, SEARCH_LIMIT))
    places.check()
    return receipt, places
