"""Outdated entries: active ones that tell what newer memories replaced since their status was set."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from uuid import UUID

from consolidation_pipeline.core.knowledge.supersession import is_superseded
from consolidation_pipeline.core.text.sentences import extract_sentences
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.knowledge.playbook import PlaybookEntry, load_replaced
from consolidation_pipeline.store.knowledge.supersessions import Replacements, load_confirmed_at

# What a pattern adds to a sentence: "(as of 11 August 2026)".
_NOTE = re.compile(r"\s*\([^()]*\)")
_NEVER, _NOW = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def list_outdated(
    connection: Connection,
    project_id: UUID,
    entries: Sequence[PlaybookEntry],
    replacements: Replacements,
    *,
    retired: Collection[UUID] = (),
    written: Collection[UUID] = (),
) -> frozenset[UUID]:
    """Return the active entries that tell a replaced sentence, or whose source said nothing else, by id.

    Left out is what was replaced before the status of the entry was set: whoever set it could know.

    Args:
        connection: Connection to the store.
        project_id: The project.
        entries: Its entries.
        replacements: Of its memories, stored ones and those to be stored.
        retired: Sources that are to be retired, as newer memories replaced all that they said.
        written: Sources that are to be written, retired ones among them.
    """
    active = [entry for entry in entries if entry.status == "active"]
    if not active:
        return frozenset()
    memories = {id_ for entry in active for id_ in entry.supporting_ids if id_ in replacements}
    confirmed_at = load_confirmed_at(connection, project_id, memories) if memories else {}
    retired_at = {id_: at for id_, at in load_replaced(connection, project_id).items() if id_ not in written}
    retired_at |= dict.fromkeys(retired, _NOW)

    def is_outdated(entry: PlaybookEntry) -> bool:
        since = entry.status_at or _NEVER
        if entry.source_id is not None and retired_at.get(entry.source_id, _NEVER) > since:
            return True
        found = (one for raw_id in entry.supporting_ids for one in replacements.get(raw_id, ()))
        reasons = [one.reason for one in found if confirmed_at.get(one.id, _NOW) > since]
        return bool(reasons) and _tells_replaced(entry.content, reasons)

    return frozenset(entry.id for entry in active if is_outdated(entry))


def _tells_replaced(content: str, reasons: Iterable[str]) -> bool:
    """Return True if a sentence of a text was replaced, by the reasons of relations."""
    told = [sentence.text for sentence in extract_sentences(content)]
    told += [_NOTE.sub("", text) for text in told]
    return any(is_superseded(text, reason) for reason in reasons for text in told)
