"""Scopes whose groups are complete, and groups that gave no pattern or principle, which need not be read again.

Revision: 0040
"""

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "grouped_scopes",
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("scope", sa.Uuid(), nullable=False, comment="Hash of the scope key."),
        sa.Column(
            "nodes",
            sa.Text(),
            nullable=False,
            comment="Hash of the memories that were grouped, of the options and of the version of the program.",
        ),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("grouped_scopes_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("project_id", "scope", name=op.f("grouped_scopes_pkey")),
        schema="consolidation",
        comment="Scopes whose groups are complete; clusters skips those that have not changed since.",
    )
    op.create_table(
        "discarded_groups",
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("kind", sa.Text(), nullable=False, comment="pattern or principle."),
        sa.Column("cluster_key", sa.Text(), nullable=False, comment="Of the group."),
        sa.Column(
            "units",
            sa.Text(),
            nullable=False,
            comment="Hash of the units that were read, of the model and of the version of the program.",
        ),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("discarded_groups_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("project_id", "kind", "cluster_key", name=op.f("discarded_groups_pkey")),
        schema="consolidation",
        comment="Groups that gave no pattern or principle; they are not read again until one of their units changes.",
    )


def downgrade() -> None:
    op.drop_table("discarded_groups", schema="consolidation")
    op.drop_table("grouped_scopes", schema="consolidation")
