"""Erase: remove memories for good, with everything made of them, and certify that nothing of them is left.

It is one transaction: a process that is killed leaves everything or nothing. The next run derives knowledge again from
what stays. It cannot be undone, and no older change can bring anything of it back.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

from consolidation_pipeline.errors import NotFoundError, UsageError
from consolidation_pipeline.service.lifecycle.named_memories import check_reason, find_named
from consolidation_pipeline.service.runs.run_lifecycle import hold_project
from consolidation_pipeline.service.similarity.pair_answers import hash_question
from consolidation_pipeline.service.sources.erase import erase_in_sources
from consolidation_pipeline.store.admin.canary_scan import locate, scan_database
from consolidation_pipeline.store.admin.erasure import (
    delete_erased,
    delete_memory_tests,
    find_erased,
    find_first_instant,
    find_memories_of_user,
    free_survivors,
    load_erased_texts,
    load_judged_pairs,
    record_erasure,
    remove_boilerplate,
    rename_mentions,
    renew_statistics,
    scrub_ledger,
    stage_erased,
)
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.database.raw_connections import autocommit_connection
from consolidation_pipeline.store.ledger.active_keys import lock_active_keys
from consolidation_pipeline.store.ledger.ledger_writer import Author
from consolidation_pipeline.store.memories.archive import lock_memories
from consolidation_pipeline.store.projects import Project, find_project
from consolidation_pipeline.store.shadow.databases import drop_shadows

# Canaries of one scan: more of them make it slower, and each is a witness by itself.
MAX_CANARIES = 300
_SHORTEST_CANARY = 24
_LONGEST_CANARY = 200
# Characters that a dump writes in another way, and ends of sentences.
_BREAKS = re.compile(r"[\x00-\x1f\x7f\"\\]|(?<=[.!?])\s")


@dataclass(frozen=True)
class Erasure:
    """Content of an erasure. ``rows``, ``survivors``, ``left_in_sources``: as in its ``Certificate``."""

    project: str
    memories: Sequence[UUID]
    rows: Mapping[str, int]
    survivors: Mapping[str, int]
    left_in_sources: Mapping[str, int]


@dataclass(frozen=True)
class Certificate:
    """Certificate of an erasure, without content.

    Attributes:
        erasure_id: group of the record in the ledger.
        salt: text before each id in its hash. It is in no other place: who has it and an id can check the id.
        memories: salted SHA-256 of the id of each memory.
        rows: number of rows removed or emptied, by table.
        survivors: number of rows that changed as they were connected, by effect.
        scan: ``method`` (pg_dump, or sql without that program), ``database``, ``texts`` and ``ids`` that were looked
            for, ``found``: how many of them are left in places that no other memory explains, ``elsewhere``: texts
            that other memories say too, and ``places``: table.column of what is left.
        left_in_sources: number of rows that stay in connected stores, by source: those of mode mirror are only read.
    """

    project: str
    erasure_id: UUID
    erased_at: datetime
    erased_by: str
    reason: str | None
    salt: str
    memories: Sequence[str]
    rows: Mapping[str, int]
    survivors: Mapping[str, int]
    scan: Mapping[str, Any]
    left_in_sources: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        """True if the scan found nothing of the memories."""
        return not self.scan["found"]


def preview_erasure(
    engine: Engine, ids: Iterable[UUID] = (), *, project: str | None = None, user_id: str | None = None
) -> Erasure:
    """Return what ``erase_memories`` would remove: it is done and rolled back. The errors are the same.

    Connected stores are not opened; a row of one that is gone there meanwhile is counted.
    """
    given = list(dict.fromkeys(ids))
    with engine.connect() as connection:
        owner, _ = _find_memories(connection, given, project, user_id)
    with hold_project(engine, owner), engine.connect() as connection, connection.begin() as transaction:
        author = Author(owner.id, None, "preview")
        removal = _remove(connection, author, owner.slug, given, user_id, salt="", is_preview=True)
        transaction.rollback()
    return Erasure(owner.slug, removal.memories, removal.rows, removal.survivors, removal.left)


@dataclass(frozen=True)
class _Removal:
    """Removal in a transaction. ``group_id``: group of its changes. ``ids``: those of all rows that went."""

    memories: Sequence[UUID]
    group_id: UUID
    at: datetime
    ids: Sequence[UUID]
    canaries: Sequence[str]
    rows: Mapping[str, int]
    survivors: Mapping[str, int]
    left: Mapping[str, int]
    existed_since: datetime


def _remove(
    connection: Connection,
    author: Author,
    slug: str,
    given: Sequence[UUID],
    user_id: str | None,
    *,
    salt: str,
    reason: str | None = None,
    is_preview: bool = False,
) -> _Removal:
    """Remove raw memories and everything made of them, in the transaction of ``connection``.

    Args:
        is_preview: It will be rolled back: their rows in connected stores are only counted.
    """
    lock_active_keys(connection, [author.project_id])
    owner, memories = _find_memories(connection, given, slug, user_id)
    lock_memories(connection, memories)
    texts = load_erased_texts(connection, memories)
    questions = _hash_questions(load_judged_pairs(connection, owner.id, memories))
    found = find_erased(connection, owner.id, memories, user_id=user_id)
    in_sources = erase_in_sources(connection, owner.id, memories, is_preview=is_preview)
    pseudonyms = {id_: UUID(_hash_id(salt, id_)[:32]) for rows in found.values() for id_ in rows}
    stage_erased(connection, found, pseudonyms)
    existed_since = find_first_instant(connection, owner.id)
    group_id, now = uuid4(), datetime.now(UTC)
    survivors = free_survivors(connection, author, group_id=group_id, reason=reason, now=now)
    rows = delete_erased(connection, owner.id, questions)
    rows |= remove_boilerplate(connection, owner.id, ["\n".join(parts) for parts in texts.values()])
    rows |= delete_memory_tests(connection, owner.id, memories, [part for parts in texts.values() for part in parts])
    rows |= scrub_ledger(connection, owner.id, pseudonyms)
    rows |= rename_mentions(connection, owner.id, pseudonyms)
    rows |= {f"{name} (source)": count for name, count in in_sources.removed.items()}
    return _Removal(
        memories=memories,
        group_id=group_id,
        at=now,
        ids=list(pseudonyms),
        canaries=_choose_canaries(texts),
        rows={name: count for name, count in rows.items() if count},
        survivors=survivors,
        left=in_sources.left,
        existed_since=existed_since,
    )


def erase_memories(
    engine: Engine,
    ids: Iterable[UUID] = (),
    *,
    project: str | None = None,
    user_id: str | None = None,
    reason: str | None = None,
    changed_by: str,
) -> Certificate:
    """Remove raw memories for good: rows, vectors, images in the ledger, and everything that was ever made of them.

    Other memories that were merged with them are active again, and the next run derives knowledge from these. Replies
    of models that the project got since the oldest of the memories was stored leave the cache, as nobody knows which of
    them repeat it; their costs stay recorded. Shadows of the project are dropped.

    Args:
        engine: The store.
        ids: Raw memories of one project.
        project: Slug or id; may be left out with ids.
        user_id: All memories of this user of the project, and its profiles, instead of ids.
        reason: Reason for the ledger; it must not name what is erased.
        changed_by: Author for the ledger.

    Raises:
        UsageError: Neither ids nor a user is given, or both, or a memory is not raw.
        NotFoundError: There is no such project or memory, or the user has none.
        ProjectBusyError: A run or a rollback holds the project.
    """
    check_reason(reason)
    given = list(dict.fromkeys(ids))
    with engine.connect() as connection:
        owner, _ = _find_memories(connection, given, project, user_id)
    salt = secrets.token_hex(16)
    author = Author(owner.id, None, changed_by)
    with hold_project(engine, owner), engine.begin() as connection:
        removal = _remove(connection, author, owner.slug, given, user_id, salt=salt, reason=reason)
        hashes = [_hash_id(salt, id_) for id_ in removal.memories]
        summary = {
            "memories": hashes,
            "rows": removal.rows,
            "survivors": removal.survivors,
            "existed_since": removal.existed_since.isoformat(),
        }
        record_erasure(connection, author, group_id=removal.group_id, summary=summary, reason=reason)
    with autocommit_connection(engine) as connection:
        renew_statistics(connection, owner.id)
    drop_shadows(engine, owner.id)
    return Certificate(
        project=owner.slug,
        erasure_id=removal.group_id,
        erased_at=removal.at,
        erased_by=changed_by,
        reason=reason,
        salt=salt,
        memories=hashes,
        rows=removal.rows,
        survivors=removal.survivors,
        scan=_scan(engine, removal.canaries, removal.ids),
        left_in_sources=removal.left,
    )


def _find_memories(
    connection: Connection, ids: Sequence[UUID], reference: str | None, user_id: str | None
) -> tuple[Project, list[UUID]]:
    """Return the project and its raw memories to erase, by id. Raise the errors of ``erase_memories`` about them."""
    if bool(ids) == (user_id is not None):
        raise UsageError("name what to erase: ids of memories, or a user of a project")
    if user_id is not None:
        if reference is None or not user_id.strip():
            raise UsageError("a user's memories are erased in one project: name both")
        owner = find_project(connection, reference)
        memories = find_memories_of_user(connection, owner.id, user_id)
        if not memories:
            raise NotFoundError(f"project {owner.slug} has no memories of user {user_id!r}")
        return owner, memories
    owner, found = find_named(connection, ids, reference)
    for id_ in ids:
        if (kind := found[id_].kind) != "raw":
            raise UsageError(
                f"{id_} is of kind {kind}, made from other memories: erase these, and it goes with them; "
                f"`consolidation lineage {id_}` lists them"
            )
    return owner, sorted(ids)


def _hash_id(salt: str, id: UUID) -> str:
    return sha256(f"{salt}{id}".encode()).hexdigest()


def _hash_questions(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Return the hashes of the questions about pairs of texts, in both orders, as pair judges were asked them."""
    return [hash_question(both) for one, other in pairs for both in ((one, other), (other, one))]


def _choose_canaries(texts: Mapping[UUID, Sequence[str]]) -> list[str]:
    """Return sentences of the texts that a dump writes as they are: the longest of each memory, then further ones."""
    ranked: list[tuple[int, str]] = []
    for parts in texts.values():
        pieces = {piece.strip()[:_LONGEST_CANARY] for part in parts for piece in _BREAKS.split(part)}
        usable = sorted((piece for piece in pieces if len(piece) >= _SHORTEST_CANARY), key=lambda p: (-len(p), p))
        ranked += enumerate(usable)
    return list(dict.fromkeys(piece for _, piece in sorted(ranked, key=lambda item: item[0])))[:MAX_CANARIES]


def _scan(engine: Engine, canaries: Sequence[str], ids: Sequence[UUID]) -> dict[str, Any]:
    """Look for the canaries and ids in the whole database."""
    names = [str(id_) for id_ in ids][:MAX_CANARIES]
    result = scan_database(engine, [*canaries, *names])
    places: dict[str, int] = {}
    elsewhere = 0
    with engine.connect() as connection:
        for canary in sorted(result.found):
            located = locate(connection, canary)
            # Another memory says the same, and what was made of it may repeat it.
            if canary not in names and any(place.startswith("task_memories.") for place in located):
                elsewhere += 1
                continue
            for place, count in (located or {"outside of the schema": 1}).items():
                places[place] = places.get(place, 0) + count
    found = len(result.found) - elsewhere
    return {
        "method": result.method,
        "database": engine.url.database,
        "texts": len(canaries),
        "ids": len(names),
        "found": found,
        "elsewhere": elsewhere,
        "places": places,
    }


def format_certificate(certificate: Certificate) -> str:
    """Return the certificate as JSON, to be kept outside of the database."""
    content = {**vars(certificate), "is_clean": certificate.is_clean}
    return json.dumps(content, indent=2, default=str)
