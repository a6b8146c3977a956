"""Answers of the recall gate, as fingerprints: for which groups, by which memories, and under which program."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Connection, text

_LOAD = """
    SELECT answers FROM consolidation.recall_answers WHERE project_id = :project AND asked_by = :asked_by
"""


def load_recall_answers(connection: Connection, project_id: UUID, asked_by: str) -> bytes | None:
    """Return the packed answers of the last run; None if there are none, or another program gave them."""
    found: bytes | None = connection.execute(text(_LOAD), {"project": project_id, "asked_by": asked_by}).scalar()
    return found


_LOAD_SETTLED = """
    SELECT settled FROM consolidation.recall_answers WHERE project_id = :project AND asked_by = :asked_by
"""


def load_settled(connection: Connection, project_id: UUID, asked_by: str) -> str | None:
    """Return the hash of all that the answers follow from; None if they are to be asked for again."""
    found: str | None = connection.execute(text(_LOAD_SETTLED), {"project": project_id, "asked_by": asked_by}).scalar()
    return found


_UNSETTLE = """
    UPDATE consolidation.recall_answers SET settled = NULL WHERE project_id = :project AND settled IS NOT NULL
"""


def unsettle_answers(connection: Connection, project_id: UUID) -> None:
    """Note that the answers are to be asked for again."""
    connection.execute(text(_UNSETTLE), {"project": project_id})


_DELETE = "DELETE FROM consolidation.recall_answers WHERE project_id = :project"
_REPLACE = """
    INSERT INTO consolidation.recall_answers AS known (project_id, asked_by, settled, answers)
    VALUES (:project, :asked_by, :settled, :answers)
    ON CONFLICT (project_id) DO UPDATE
    SET asked_by = excluded.asked_by, settled = excluded.settled, answers = excluded.answers
    WHERE (known.asked_by, known.settled, known.answers)
        IS DISTINCT FROM (excluded.asked_by, excluded.settled, excluded.answers)
"""


def replace_recall_answers(
    connection: Connection, project_id: UUID, asked_by: str, answers: bytes | None, settled: str | None
) -> None:
    """Store the packed answers of a run in place of those before; None = there are none."""
    bound = {"project": project_id, "asked_by": asked_by, "answers": answers, "settled": settled}
    connection.execute(text(_DELETE if answers is None else _REPLACE), bound)
