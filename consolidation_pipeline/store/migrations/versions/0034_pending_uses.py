"""Uses that searches count are rows of their own until a run adds them to the memories.

Revision: 0034
"""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

_FOLD = """
    UPDATE consolidation.{table} m SET {count} = {count} + used.uses,
        last_accessed_at = greatest(m.last_accessed_at, used.used_at)
    FROM (SELECT memory_id, sum(uses) AS uses, max(used_at) AS used_at
        FROM consolidation.pending_uses GROUP BY memory_id) used
    WHERE m.id = used.memory_id
"""


def upgrade() -> None:
    op.create_table(
        "pending_uses",
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("memory_id", sa.Uuid(), nullable=False, comment="Raw or consolidated memory."),
        sa.Column("seq", sa.BigInteger(), sa.Identity(always=True), nullable=False, comment="Order of the counts."),
        sa.Column("uses", sa.Integer(), nullable=False, comment="How often it was returned to an agent."),
        sa.Column(
            "used_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was returned.",
        ),
        sa.CheckConstraint("uses > 0", name=op.f("pending_uses_uses_check")),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("pending_uses_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("project_id", "memory_id", "seq", name=op.f("pending_uses_pkey")),
        schema="consolidation",
        comment="Uses that searches counted, until a run adds them to the memories.",
    )


def downgrade() -> None:
    for table, count in (("task_memories", "reused_count"), ("consolidated_memories", "reuse_count")):
        op.execute(_FOLD.format(table=table, count=count))
    op.drop_table("pending_uses", schema="consolidation")
