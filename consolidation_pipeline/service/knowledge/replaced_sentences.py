"""Replaced sentences: what newer memories replaced in the units of a group is left out of its text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date
from uuid import UUID

from consolidation_pipeline.core.knowledge.disputes import find_disputes, list_statements
from consolidation_pipeline.core.knowledge.supersession import drop_superseded, is_superseded
from consolidation_pipeline.store.knowledge.abstractions import UnitRow
from consolidation_pipeline.store.knowledge.supersessions import Replacement, Replacements


def list_relations(raw_ids: Iterable[UUID], replacements: Replacements) -> frozenset[UUID]:
    """Return the relations that replaced something in these raw memories, by id."""
    return frozenset(one.id for id_ in raw_ids if id_ in replacements for one in replacements[id_])


def leave_out_replaced(units: Sequence[UnitRow], replacements: Replacements) -> tuple[UnitRow, ...]:
    """Return the units of a group without the sentences that newer memories replaced.

    A sentence stays if the text of the group tells it as former, because the newer unit is in the group and disputes
    it. If nothing is left of the group, its units keep their texts.
    """
    unit_of = {raw_id: unit for unit in units for raw_id in unit.raw_ids}

    def is_left_out(unit: UnitRow, found: Replacement) -> bool:
        newer = unit_of.get(found.newer_id)
        return newer is None or not _is_disputed(unit, newer, found.reason)

    told = []
    for unit in units:
        found = [one for raw_id in unit.raw_ids for one in replacements.get(raw_id, ())]
        reasons = [one.reason for one in found if is_left_out(unit, one)]
        told.append(replace(unit, text=drop_superseded(unit.text, reasons)) if reasons else unit)
    return tuple(told if any(unit.text for unit in told) else units)


def _is_disputed(older: UnitRow, newer: UnitRow, reason: str) -> bool:
    """Return True if the newer unit overrules the sentence that it replaced, by its own words."""
    statements = list_statements([older.text, newer.text], [read_day(older), read_day(newer)])
    overruled = {at for dispute in find_disputes(statements) for at in dispute.overruled}
    return any(statements[at].unit == 0 and is_superseded(statements[at].text, reason) for at in overruled)


def read_day(unit: UnitRow) -> date | None:
    """Return the day on which a unit was learned; None for a pattern, whose memories are of many days."""
    return None if unit.kind == "pattern" else unit.learned_at.astimezone(UTC).date()
