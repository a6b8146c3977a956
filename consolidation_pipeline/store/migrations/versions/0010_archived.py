"""Indexes of archived memories, a small part of most projects, for six checks of every run.

Revision: 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

# Whatever says that it is archived, by its time or by its reason: a check asks whether both do.
_ARCHIVED = {
    "task_memories": "archived_at IS NOT NULL OR archive_reason IS NOT NULL",
    "consolidated_memories": "(retired_at IS NOT NULL AND superseded_by_id IS NULL) OR archive_reason IS NOT NULL",
}


def upgrade() -> None:
    for table, condition in _ARCHIVED.items():
        op.create_index(
            op.f(f"{table}_archived_idx"),
            table,
            ["project_id"],
            schema="consolidation",
            postgresql_where=sa.text(condition),
        )


def downgrade() -> None:
    for table in _ARCHIVED:
        op.drop_index(op.f(f"{table}_archived_idx"), table, schema="consolidation")
