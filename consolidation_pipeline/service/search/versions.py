"""Versions of what a search found: newer memories that supersede it, and older ones that it supersedes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from consolidation_pipeline.core.search.results import MemoryVersion, SearchHit
from consolidation_pipeline.core.search.same_matter import list_linked
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.knowledge.versions import Version, load_rejected, load_versions

# Versions of each direction that a hit tells.
_MAX_TOLD = 3


@dataclass(frozen=True)
class FoundVersions:
    """Versions of ranked memories.

    ``newer_of``: ranked memories that supersede another one and are confirmed to, by the id of the older one.
    """

    newer_of: Mapping[str, set[str]] = field(default_factory=dict)
    newer: Mapping[UUID, Sequence[MemoryVersion]] = field(default_factory=dict)
    older: Mapping[UUID, Sequence[MemoryVersion]] = field(default_factory=dict)

    def add_to(self, hit: SearchHit) -> SearchHit:
        """Return a hit with its versions."""
        newer, older = (list(found.get(hit.id, ()))[:_MAX_TOLD] for found in (self.newer, self.older))
        return replace(hit, superseded_by=newer, supersedes=older) if newer or older else hit


def find_versions(
    connection: Connection, project_id: UUID, ids: Sequence[str], *, as_of: datetime | None
) -> FoundVersions:
    """Return the versions of raw and merged memories, as far as they were learned until ``as_of``.

    A memory that was merged is told as its merged memory. Of two merged memories that supersede each other, as a value
    that came back does, the one with the newest source is the newer; no memory supersedes one with a newer source.
    """
    found = load_versions(connection, project_id, ids, as_of=as_of)
    if not found:
        return FoundVersions()
    ranked = frozenset(map(UUID, ids))
    versions = [(one, _find_ends(one, ranked)) for one in found]
    newest: dict[tuple[UUID, UUID], datetime] = {}
    for one, ends in versions:
        newest[ends] = max(one.since, newest.get(ends, one.since))
    told: dict[bool, defaultdict[UUID, list[MemoryVersion]]] = {True: defaultdict(list), False: defaultdict(list)}
    newer_of: defaultdict[str, set[str]] = defaultdict(set)
    for one, (older, newer) in versions:
        back = newest.get((newer, older))
        if older == newer or one.is_told_again or (back is not None and back >= newest[older, newer]):
            continue
        other = newer if one.is_newer else older
        versions_of_hit = told[one.is_newer][one.hit_id]
        if all(known.id != other for known in versions_of_hit):
            versions_of_hit.append(MemoryVersion(other, one.content, one.learned_at, one.status, one.reason))
        if one.status == "confirmed" and newer in ranked and older in ranked:
            newer_of[str(older)].add(str(newer))
    return FoundVersions(newer_of, told[True], told[False])


def _find_ends(version: Version, ranked: frozenset[UUID]) -> tuple[UUID, UUID]:
    """Return the older and the newer memory: the ranked one, else the one that stands for the version now."""
    other = version.raw_id if version.raw_id in ranked else version.unit_id
    return (version.hit_id, other) if version.is_newer else (other, version.hit_id)


def drop_rejected(
    connection: Connection, project_id: UUID, links: Mapping[UUID, Sequence[UUID]]
) -> dict[UUID, list[UUID]]:
    """Return the links from memories to later ones with another value, but those of which a person said that both hold.

    ``links``: of raw and merged memories (``same_matter.link_other_values``).
    """
    rejected = load_rejected(connection, project_id, list_linked(links)) if links else set()
    kept = {older: [one for one in newer if (one, older) not in rejected] for older, newer in links.items()}
    return {older: newer for older, newer in kept.items() if newer}
