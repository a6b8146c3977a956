"""Answers of pair judges by the content of the pair: no pair is asked twice, and a rebuilt graph is the same."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from sqlalchemy import Connection, text

_LOAD_ANSWERS = """
    SELECT question_hash, answer FROM consolidation.pair_judgements WHERE project_id = :project AND judge = :judge
"""


def load_answers(connection: Connection, project_id: UUID, judge: str) -> dict[str, str]:
    """Return all answers of a judge by the hash of the question."""
    rows = connection.execute(text(_LOAD_ANSWERS), {"project": project_id, "judge": judge})
    return {row.question_hash: row.answer for row in rows}


_APPEND_ANSWERS = """
    INSERT INTO consolidation.pair_judgements (project_id, judge, question_hash, answer)
    SELECT :project, :judge, question, answer FROM unnest(CAST(:questions AS text[]), CAST(:answers AS text[]))
        AS given(question, answer)
    ON CONFLICT DO NOTHING
"""


def append_answers(connection: Connection, project_id: UUID, judge: str, answers: Mapping[str, str]) -> None:
    """Store answers by the hash of the question; an answer that is stored already stays."""
    bound = {"project": project_id, "judge": judge, "questions": [*answers], "answers": [*answers.values()]}
    connection.execute(text(_APPEND_ANSWERS), bound)


_LOAD_REJECTED_GROUPS = """
    SELECT original_memory_ids FROM consolidation.consolidation_suggestions
    WHERE project_id = :project AND status = 'rejected'
"""


def load_rejected_groups(connection: Connection, project_id: UUID) -> list[list[UUID]]:
    """Return the memories of each suggestion that a person rejected: no judge may merge them."""
    return [list(ids) for ids in connection.scalars(text(_LOAD_REJECTED_GROUPS), {"project": project_id})]
