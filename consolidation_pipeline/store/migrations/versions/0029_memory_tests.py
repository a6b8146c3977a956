"""Memory tests of a project.

Revision: 0029
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0029"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "memory_tests",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False, comment="Test id."),
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("name", sa.Text(), nullable=False, comment="What people call it; unique in a project."),
        sa.Column(
            "kind",
            sa.Text(),
            nullable=False,
            comment="must_find, must_not_merge, must_merge, must_remember, must_not_say or playbook_has.",
        ),
        sa.Column("body", postgresql.JSONB(astext_type=sa.Text()), nullable=False, comment="Texts or ids of the test."),
        sa.Column("source", sa.Text(), nullable=False, comment="yaml, cli, http or page: where it came from."),
        sa.Column(
            "enabled",
            sa.Boolean(),
            server_default=sa.text("true"),
            nullable=False,
            comment="False = it is kept, but not run.",
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was added or changed.",
        ),
        sa.Column("checked_at", sa.DateTime(timezone=True), nullable=True, comment="When it was run last."),
        sa.Column(
            "failure", sa.Text(), nullable=True, comment="Why it failed then; null = it passed. Quotes no memory."
        ),
        sa.CheckConstraint(
            "kind IN ('must_find', 'must_not_merge', 'must_merge', 'must_remember', 'must_not_say', 'playbook_has')",
            name=op.f("memory_tests_kind_check"),
        ),
        sa.CheckConstraint("source IN ('yaml', 'cli', 'http', 'page')", name=op.f("memory_tests_source_check")),
        sa.ForeignKeyConstraint(
            ["project_id"], ["consolidation.projects.id"], name=op.f("memory_tests_project_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("memory_tests_pkey")),
        sa.UniqueConstraint("project_id", "name", name=op.f("memory_tests_project_id_name_key")),
        schema="consolidation",
        comment="What people expect of a project's memories; a run commits nothing that makes one of them fail.",
    )


def downgrade() -> None:
    op.drop_table("memory_tests", schema="consolidation")
