"""Answers of supersession judges, and which memories they were asked about.

Revision: 0047
"""

import sqlalchemy as sa
from alembic import op

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None

_TABLE = "supersession_answers"


def upgrade() -> None:
    op.create_table(
        _TABLE,
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("newer_id", sa.Uuid(), nullable=False, comment="Raw memory."),
        sa.Column("older_id", sa.Uuid(), nullable=False, comment="Raw memory of its scope that was learned before it."),
        sa.Column("judge", sa.Text(), nullable=False, comment="Model, and version of its prompt."),
        sa.Column(
            "newer_hash", sa.Text(), nullable=False, comment="Content hash of the newer memory as it was judged."
        ),
        sa.Column(
            "older_hash", sa.Text(), nullable=False, comment="Content hash of the older memory as it was judged."
        ),
        sa.Column(
            "was", sa.Text(), nullable=True, comment="Sentence of the older memory that no longer holds; null = none."
        ),
        sa.Column("now", sa.Text(), nullable=True, comment="Sentence of the newer memory that shows it."),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was given.",
        ),
        sa.CheckConstraint("(was IS NULL) = (now IS NULL)", name=op.f("supersession_answers_both_check")),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("supersession_answers_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("project_id", "newer_id", "older_id", name=op.f("supersession_answers_pkey")),
        schema="consolidation",
        comment="Answers of supersession judges, kept so that nothing is asked twice.",
    )
    op.add_column(
        "compared_memories",
        sa.Column(
            "judged_by",
            sa.Text(),
            nullable=True,
            comment="Judge that was asked which older memories it supersedes; null = none.",
        ),
        schema="consolidation",
    )


def downgrade() -> None:
    op.drop_column("compared_memories", "judged_by", schema="consolidation")
    op.drop_table(_TABLE, schema="consolidation")
