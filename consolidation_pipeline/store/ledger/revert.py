"""Undoing: changes of the ledger taken back, newest first, and recorded as changes of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from uuid import UUID

from sqlalchemy import Connection, Table, text

from consolidation_pipeline.store.database.schema import consolidated_memories
from consolidation_pipeline.store.ledger.ledger_writer import (
    CACHES,
    LEDGERED,
    MOVES_IN_GRAPH,
    Author,
    checked_at_once,
    forget_comparisons,
    lineage_insert,
    mark_summarized,
    refuse,
)
from consolidation_pipeline.store.ledger.row_references import refuse_dangling


def revert_changes(
    connection: Connection,
    author: Author,
    changes: Sequence[int],
    *,
    group_id: UUID,
    reason: str | None,
    scope: str = "group",
) -> dict[str, int]:
    """Undo the changes with these ``seq`` numbers, newest first, and record that as changes of operation rollback.

    ``scope`` is what was to be undone, a group or a job. Returns rows per effect: ``restored``, ``deleted``,
    ``recreated``.

    Raises:
        ConflictError: a change was undone before, its row has changed since, or what it was made from is gone; nothing
        is written then.
    """
    recorded = {"group_id": group_id, "reason": reason, "scope": scope}
    done = {"restored": 0, "deleted": 0, "recreated": 0}
    with checked_at_once(connection, "row"):
        _revert_waves(connection, author, changes, recorded, done=done)
    return done


def _revert_waves(
    connection: Connection,
    author: Author,
    changes: Sequence[int],
    recorded: Mapping[str, object],
    *,
    done: dict[str, int],
) -> None:
    """Newest first, in as few turns as there can be when a turn holds no row twice."""
    turns = _stage_changes(connection, changes)
    refuse(
        connection,
        "SELECT c.id FROM consolidation.consolidation_changes c JOIN reverting r ON c.reverts_change_id = r.id",
        "undoes a change that was to be rolled back: it was rolled back before",
    )
    for turn in range(1, turns + 1):
        for name, table in LEDGERED.items():
            connection.execute(
                text(
                    "CREATE TEMP TABLE wave ON COMMIT DROP AS "
                    "SELECT * FROM reverting WHERE turn = :turn AND entity_type = :name"
                ),
                {"turn": turn, "name": name},
            )
            _revert_wave(connection, table, done)
            connection.execute(text("DROP TABLE wave"))
        _append_rollback(connection, author, turn, recorded)
    refuse_dangling(connection, "reverting")
    connection.execute(text("DROP TABLE reverting"))


def _revert_wave(connection: Connection, table: Table, done: dict[str, int]) -> None:
    """Put the rows of ``wave`` back: rows that came go first and rows that went come last, so unique keys stay free."""
    _refuse_changed(connection, table)
    columns = [column.name for column in table.c if column.computed is None]
    for effect, statement in (
        ("deleted", f"DELETE FROM {table} t USING wave w WHERE t.id = w.entity_id AND w.previous_state IS NULL"),
        ("restored", _restore(table, columns)),
        ("recreated", _recreate(table, columns)),
    ):
        done[effect] += connection.execute(text(statement)).rowcount
    _revert_parts(connection, table)


def _restore(table: Table, columns: Sequence[str]) -> str:
    restored = [name for name in columns if name not in {"id", "project_id", "version", *CACHES}]
    moved = f"w.previous_state ?| ARRAY{list(MOVES_IN_GRAPH)}"
    reset = f", graph_version = CASE WHEN {moved} THEN NULL ELSE t.graph_version END"
    return (
        f"UPDATE {table} t SET version = w.version_before{reset if 'graph_version' in table.c else ''}, "
        f"({', '.join(restored)}) = (SELECT {', '.join('r.' + name for name in restored)} "
        "FROM jsonb_populate_record(t, w.previous_state) r) "
        "FROM wave w WHERE t.id = w.entity_id AND w.previous_state IS NOT NULL AND w.new_state IS NOT NULL"
    )


def _recreate(table: Table, columns: Sequence[str]) -> str:
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join('r.' + name for name in columns)} "
        f"FROM wave w, LATERAL jsonb_populate_record(NULL::{table}, w.previous_state) r WHERE w.new_state IS NULL"
    )


def _append_rollback(connection: Connection, author: Author, turn: int, recorded: Mapping[str, object]) -> None:
    connection.execute(
        text(
            "INSERT INTO consolidation.consolidation_changes (job_id, project_id, group_id, operation, entity_type, "
            "entity_id, previous_state, new_state, version_before, version_after, reason, confidence, changed_by, "
            "reverts_change_id, reverts_scope) "
            "SELECT :job_id, project_id, :group_id, 'rollback', entity_type, entity_id, new_state, previous_state, "
            "version_after, version_before, :reason, confidence, :changed_by, id, :scope "
            "FROM reverting WHERE turn = :turn ORDER BY seq DESC"
        ),
        {"job_id": author.job_id, "changed_by": author.changed_by, "turn": turn, **recorded},
    )


def _stage_changes(connection: Connection, changes: Sequence[int]) -> int:
    """Stage the changes as ``reverting``, each with its turn; returns the number of turns."""
    query = "SELECT seq, entity_id FROM consolidation.consolidation_changes WHERE seq = ANY(:changes) ORDER BY seq DESC"
    rows = connection.execute(text(query), {"changes": list(changes)}).all()
    turns = list(_turns([row.entity_id for row in rows]))
    connection.execute(
        text(
            "CREATE TEMP TABLE reverting ON COMMIT DROP AS "
            "SELECT c.*, t.turn FROM consolidation.consolidation_changes c "
            "JOIN unnest(CAST(:seqs AS bigint[]), CAST(:turns AS integer[])) AS t(seq, turn) USING (seq)"
        ),
        {"seqs": [row.seq for row in rows], "turns": turns},
    )
    connection.execute(text("ANALYZE reverting (entity_id, turn)"))
    return max(turns, default=0)


def _turns(entities: Iterable[UUID]) -> Iterator[int]:
    turn, seen = 1, set[UUID]()
    for entity in entities:
        if entity in seen:
            turn, seen = turn + 1, set()
        seen.add(entity)
        yield turn


def _refuse_changed(connection: Connection, table: Table) -> None:
    """Every row must be in the state its newest change left it in."""
    connection.execute(text(f"SELECT 1 FROM {table} t JOIN wave w ON t.id = w.entity_id ORDER BY t.id FOR UPDATE OF t"))
    refuse(
        connection,
        f"SELECT w.entity_id FROM wave w LEFT JOIN {table} t ON t.id = w.entity_id "
        "WHERE t.version IS DISTINCT FROM w.version_after",
        f"of {table.name} changed since",
    )


def _revert_parts(connection: Connection, table: Table) -> None:
    """Files and lineage of the wave as their before-images have them, and with these what is in which summary."""
    connection.execute(
        text(
            f"DELETE FROM consolidation.memory_files f USING wave w WHERE f.owner_id = w.entity_id AND {_touches('files')}"
        )
    )
    connection.execute(
        text(
            "INSERT INTO consolidation.memory_files (project_id, owner_id, path) SELECT w.project_id, w.entity_id, path "
            "FROM wave w, jsonb_array_elements_text(w.previous_state -> 'files') AS path"
        )
    )
    if table is not consolidated_memories:
        return
    forget_comparisons(
        connection, "SELECT entity_id FROM wave WHERE previous_state ? 'archive_reason' AND new_state IS NOT NULL"
    )
    connection.execute(
        text(
            "DELETE FROM consolidation.memory_lineage l USING wave w "
            f"WHERE l.child_id = w.entity_id AND {_touches('lineage')}"
        )
    )
    connection.execute(text(lineage_insert("w.project_id, w.entity_id", "wave w", "w.previous_state -> 'lineage'")))
    mark_summarized(
        connection,
        f"SELECT w.entity_id FROM wave w LEFT JOIN {table} t ON t.id = w.entity_id "
        "WHERE coalesce(t.kind, w.new_state ->> 'kind') = 'summary'",
    )


def _touches(part: str) -> str:
    return f"(w.previous_state IS NULL OR w.previous_state ? '{part}')"
