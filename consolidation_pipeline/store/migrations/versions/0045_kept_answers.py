"""Answers of the recall gate, and pairs of sentences that were compared, which need not be found again.

Revision: 0045
"""

import sqlalchemy as sa
from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "recall_answers",
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column(
            "asked_by",
            sa.Text(),
            nullable=False,
            comment="Hash of the version of the program, of the options and of the model.",
        ),
        sa.Column(
            "settled",
            sa.Text(),
            nullable=True,
            comment="Hash of all that the answers follow from; null = the next run asks again.",
        ),
        sa.Column(
            "answers",
            sa.LargeBinary(),
            nullable=False,
            comment="Hashes of the refused groups and of the memories that they were compared with.",
        ),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("recall_answers_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("project_id", name=op.f("recall_answers_pkey")),
        schema="consolidation",
        comment="Answers of the recall gate; clusters asks again only what new or changed memories may change.",
    )
    op.create_table(
        "compared_sentences",
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("memory_id", sa.Uuid(), nullable=False, comment="Pattern or principle."),
        sa.Column("asked_by", sa.Text(), nullable=False, comment="Hash of the version of the program."),
        sa.Column("pairs", sa.LargeBinary(), nullable=False, comment="Hashes of the pairs, and if both say the same."),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("compared_sentences_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("project_id", "memory_id", name=op.f("compared_sentences_pkey")),
        schema="consolidation",
        comment="Pairs of sentences that were compared for the text of a pattern; its next text does not read them again.",
    )
    # Hashes cannot be compressed.
    op.execute("ALTER TABLE consolidation.recall_answers ALTER COLUMN answers SET STORAGE EXTERNAL")
    op.execute("ALTER TABLE consolidation.compared_sentences ALTER COLUMN pairs SET STORAGE EXTERNAL")


def downgrade() -> None:
    op.drop_table("compared_sentences", schema="consolidation")
    op.drop_table("recall_answers", schema="consolidation")
