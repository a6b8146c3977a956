"""Labelled pairs: a person says whether two memories may become one, and calibration measures its errors on that.

Revision: 0014
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "labelled_pairs",
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("a", sa.Uuid(), nullable=False, comment="Raw memory with the smaller id."),
        sa.Column("b", sa.Uuid(), nullable=False, comment="Raw memory with the larger id."),
        sa.Column(
            "same",
            sa.Boolean(),
            nullable=True,
            comment="True = they may become one; null = the person skipped the pair.",
        ),
        sa.Column("labelled_by", sa.Text(), nullable=False, comment="Who."),
        sa.Column(
            "labelled_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When.",
        ),
        sa.CheckConstraint("a < b", name=op.f("labelled_pairs_order_check")),
        _foreign_key("project_id", "projects"),
        _foreign_key("a", "task_memories"),
        _foreign_key("b", "task_memories"),
        sa.PrimaryKeyConstraint("a", "b", name=op.f("labelled_pairs_pkey")),
        schema="consolidation",
        comment="Pairs of memories that a person labelled; calibration measures its errors on them.",
    )
    for column in ("b", "project_id"):
        op.create_index(op.f(f"labelled_pairs_{column}_idx"), "labelled_pairs", [column], schema="consolidation")


def _foreign_key(column: str, table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        [column], [f"consolidation.{table}.id"], name=op.f(f"labelled_pairs_{column}_fkey"), ondelete="CASCADE"
    )


def downgrade() -> None:
    op.drop_table("labelled_pairs", schema="consolidation")
