"""Scopes whose memories were compared, so that supersessions skips those that have not changed.

Revision: 0039
"""

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0037"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "compared_scopes",
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("scope", sa.Text(), nullable=False, comment="Hash of the scope key."),
        sa.Column(
            "memories",
            sa.Text(),
            nullable=False,
            comment="Hash of the dated memories that were compared, and of the version of the program.",
        ),
        sa.Column("relations", sa.Text(), nullable=False, comment="Hash of the relations supersedes between them."),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("compared_scopes_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("project_id", "scope", name=op.f("compared_scopes_pkey")),
        schema="consolidation",
        comment="Scopes whose memories supersessions has compared; it skips those that have not changed since.",
    )


def downgrade() -> None:
    op.drop_table("compared_scopes", schema="consolidation")
