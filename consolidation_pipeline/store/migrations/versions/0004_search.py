"""Indexes from which search reads the languages of a project's memories.

Revision: 0004
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_TABLES = ("task_memories", "consolidated_memories")


def upgrade() -> None:
    for table in _TABLES:
        op.create_index(op.f(f"{table}_language_idx"), table, ["project_id", "language"], schema="consolidation")


def downgrade() -> None:
    for table in _TABLES:
        op.drop_index(op.f(f"{table}_language_idx"), table, schema="consolidation")
