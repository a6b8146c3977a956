"""Keys of texts, by which pairs are screened: stored beside the memories that were compared, or read from the texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from consolidation_pipeline.core.chunks import split_chunks
from consolidation_pipeline.core.differences.pair_screen import (
    TextKeys,
    concatenate_keys,
    list_keys,
    pack_keys,
    unpack_keys,
)
from consolidation_pipeline.service.runs.worker_processes import compute_in_order
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import Ids, to_uuids
from consolidation_pipeline.store.similarity.similarity_graph import load_text_keys

# Texts that a worker process reads at a time.
_PORTION_TEXTS = 2_000


@dataclass(frozen=True, eq=False)
class ScreenKeys:
    """Keys of the texts of a project.

    ``version``: of the calibration; keys that were stored under another one may follow other rules. ``read``: keys of
    the texts that were read, packed, by memory. Whoever may write stores them with ``mark_compared``.
    """

    connection: Connection
    project_id: UUID
    version: int
    read: dict[UUID, bytes] = field(default_factory=dict)

    def find(self, ids: Ids, texts: Sequence[str]) -> TextKeys:
        """Return the keys of the texts of the memories ``ids`` S16 (n,)."""
        uuids = to_uuids(ids)
        known = load_text_keys(self.connection, self.project_id, uuids, self.version) | self.read
        missing = [at for at, id_ in enumerate(uuids) if id_ not in known]
        if missing:
            portions = split_chunks([texts[at] for at in missing], size=_PORTION_TEXTS)
            found = concatenate_keys(compute_in_order(list_keys, portions, memories=len(missing)))
            self.read.update(zip((uuids[at] for at in missing), pack_keys(found), strict=True))
            known |= self.read
        return unpack_keys([known[id_] for id_ in uuids])
