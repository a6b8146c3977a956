"""Vectors of a second embedding model.

Revision: 0031
"""

import sqlalchemy as sa
from alembic import op
from pgvector.sqlalchemy import VECTOR

revision = "0031"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "staged_embeddings",
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("memory_id", sa.Uuid(), nullable=False, comment="Raw or consolidated memory, or playbook entry."),
        sa.Column("entity_type", sa.Text(), nullable=False, comment="Table of that row."),
        sa.Column(
            "content_hash",
            sa.Text(),
            nullable=False,
            comment="SHA-256 of the text that was embedded; the vector counts while the row has it.",
        ),
        sa.Column("embedding_model", sa.Text(), nullable=False, comment="Model the vector comes from."),
        sa.Column("embedding_dim", sa.Integer(), nullable=False, comment="Length of the vector."),
        sa.Column("embedding", VECTOR(), nullable=False, comment="L2-normalised vector."),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("staged_embeddings_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("project_id", "embedding_model", "memory_id", name=op.f("staged_embeddings_pkey")),
        schema="consolidation",
        comment="Vectors of both models while a project changes its embedding model; search reads them too.",
    )
    op.create_index(
        "staged_embeddings_content_idx",
        "staged_embeddings",
        ["embedding_model", "content_hash"],
        schema="consolidation",
    )


def downgrade() -> None:
    op.drop_table("staged_embeddings", schema="consolidation")
