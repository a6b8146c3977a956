"""Answers of pair judges.

Revision: 0013
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_TABLE = "pair_judgements"


def upgrade() -> None:
    op.create_table(
        _TABLE,
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("judge", sa.Text(), nullable=False, comment="Model, and version of its prompt or hash of its files."),
        sa.Column("question_hash", sa.Text(), nullable=False, comment="SHA-256 of the two texts in the order asked."),
        sa.Column("answer", sa.Text(), nullable=False, comment="same, different or unsure."),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was given.",
        ),
        sa.CheckConstraint("answer IN ('same', 'different', 'unsure')", name=op.f("pair_judgements_answer_check")),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("pair_judgements_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("project_id", "judge", "question_hash", name=op.f("pair_judgements_pkey")),
        schema="consolidation",
        comment="Answers of pair judges, kept so that nothing is asked twice.",
    )


def downgrade() -> None:
    op.drop_table(_TABLE, schema="consolidation")
