"""Rows of connected stores whose memories were erased.

Revision: 0023
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "erased_source_rows",
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column(
            "row_hash",
            sa.Text(),
            nullable=False,
            comment="SHA-256 of project, table and key of a row whose memory was erased.",
        ),
        sa.Column(
            "erased_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was erased.",
        ),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("erased_source_rows_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("project_id", "row_hash", name=op.f("erased_source_rows_pkey")),
        schema="consolidation",
        comment="Rows of connected stores that no sync copies again, also after the store is connected anew.",
    )


def downgrade() -> None:
    op.drop_table("erased_source_rows", schema="consolidation")
