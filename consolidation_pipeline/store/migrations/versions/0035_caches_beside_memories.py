"""Keep what runs compute again beside the memories, whose wide rows were written anew with each of it.

Revision: 0035
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

_SCHEMA = "consolidation"
_MEMORIES = ("task_memories", "consolidated_memories")
_SCORES: tuple[tuple[str, Any, str], ...] = (
    ("relevance_score", sa.Double(), "Output of decay; never its input."),
    ("relevance_at", sa.DateTime(timezone=True), "Instant for which relevance_score was computed."),
)
# A score is overwritten every day, and then finds room on its page: no index is written.
_LEAVE_ROOM = "ALTER TABLE consolidation.relevance_scores SET (fillfactor = 50)"
_GRAPH_VERSION = "Calibration under which the neighbours were computed; null = not yet."
_TAKE_VERSIONS = """
    INSERT INTO consolidation.compared_memories (project_id, memory_id, graph_version)
    SELECT project_id, id, graph_version FROM consolidation.task_memories WHERE graph_version IS NOT NULL
    ORDER BY project_id, id
"""
_TAKE_SCORES = """
    INSERT INTO consolidation.relevance_scores (project_id, memory_id, relevance_score, relevance_at)
    SELECT project_id, id, relevance_score, relevance_at FROM consolidation.{}
    WHERE num_nulls(relevance_score, relevance_at) = 0 ORDER BY project_id, id
"""
_GIVE_VERSIONS = """
    UPDATE consolidation.task_memories t SET graph_version = c.graph_version FROM consolidation.compared_memories c
    WHERE c.project_id = t.project_id AND c.memory_id = t.id
"""
_GIVE_SCORES = """
    UPDATE consolidation.{} t SET relevance_score = s.relevance_score, relevance_at = s.relevance_at
    FROM consolidation.relevance_scores s WHERE s.project_id = t.project_id AND s.memory_id = t.id
"""


def upgrade() -> None:
    op.create_table(
        "compared_memories",
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("memory_id", sa.Uuid(), nullable=False, comment="Raw memory."),
        sa.Column(
            "graph_version",
            sa.Integer(),
            nullable=False,
            comment="Calibration under which its neighbours were computed.",
        ),
        sa.PrimaryKeyConstraint("project_id", "memory_id", name=op.f("compared_memories_pkey")),
        schema=_SCHEMA,
        comment="Raw memories whose neighbours are complete; any other one is compared by the next run.",
    )
    op.create_table(
        "relevance_scores",
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("memory_id", sa.Uuid(), nullable=False, comment="Raw or consolidated memory."),
        *(sa.Column(name, kind, nullable=False, comment=comment) for name, kind, comment in _SCORES),
        sa.PrimaryKeyConstraint("project_id", "memory_id", name=op.f("relevance_scores_pkey")),
        schema=_SCHEMA,
        comment="Relevance of memories, computed again every day.",
    )
    op.execute(_LEAVE_ROOM)
    op.execute(_TAKE_VERSIONS)
    op.drop_column("task_memories", "graph_version", schema=_SCHEMA)
    for table in _MEMORIES:
        op.execute(_TAKE_SCORES.format(table))
        for name, _, _ in _SCORES:
            op.drop_column(table, name, schema=_SCHEMA)
        # It was kept for the daily scores. Four rows of 1,800 bytes fit on a page without it, three with it.
        op.execute(f"ALTER TABLE consolidation.{table} RESET (fillfactor)")


def downgrade() -> None:
    for table in _MEMORIES:
        for name, kind, comment in _SCORES:
            op.add_column(table, sa.Column(name, kind, comment=comment), schema=_SCHEMA)
        op.execute(_GIVE_SCORES.format(table))
        op.execute(f"ALTER TABLE consolidation.{table} SET (fillfactor = 80)")
    op.add_column("task_memories", sa.Column("graph_version", sa.Integer(), comment=_GRAPH_VERSION), schema=_SCHEMA)
    op.execute(_GIVE_VERSIONS)
    op.drop_table("relevance_scores", schema=_SCHEMA)
    op.drop_table("compared_memories", schema=_SCHEMA)
