"""Votes on memories: whom they helped, and whom not, once a day.

Revision: 0018
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_LEARNED = {
    "task_memories": "When the agent learned it; age counts from here",
    "consolidated_memories": "Earliest learned_at of its sources; age counts from here",
}


def upgrade() -> None:
    op.create_table(
        "memory_votes",
        sa.Column("memory_id", sa.Uuid(), nullable=False, comment="Memory or playbook entry."),
        sa.Column(
            "voter",
            sa.Text(),
            nullable=False,
            comment="Who used it: an agent's key, whatever session it claims, or the session of a trusted caller.",
        ),
        sa.Column("day", sa.Date(), nullable=False, comment="Day, UTC; a voter has one vote a day on a memory."),
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("verdict", sa.SmallInteger(), nullable=False, comment="1 = it helped, -1 = it did not."),
        sa.Column(
            "own_share",
            sa.REAL(),
            nullable=False,
            comment="Share of its sources that the voter wrote; these count less.",
        ),
        sa.Column(
            "group_id",
            sa.Uuid(),
            nullable=True,
            comment="Changes of the feedback in the ledger, which can be undone; null = the memory was reported as used.",
        ),
        sa.CheckConstraint("verdict IN (-1, 1)", name=op.f("memory_votes_verdict_check")),
        sa.CheckConstraint("own_share BETWEEN 0 AND 1", name=op.f("memory_votes_own_share_check")),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("memory_votes_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("memory_id", "voter", "day", name=op.f("memory_votes_pkey")),
        schema="consolidation",
        comment="What readers found useful: search and the playbook rank by it.",
    )
    op.create_index(
        op.f("memory_votes_project_id_day_idx"), "memory_votes", ["project_id", "day"], schema="consolidation"
    )
    _comment_ages(", or from the import.")


def downgrade() -> None:
    op.drop_table("memory_votes", schema="consolidation")
    _comment_ages(".")


def _comment_ages(end: str) -> None:
    for table, comment in _LEARNED.items():
        op.alter_column(table, "learned_at", comment=comment + end, existing_nullable=False, schema="consolidation")
