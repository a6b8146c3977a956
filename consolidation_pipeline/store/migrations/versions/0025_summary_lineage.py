"""Drop the column with the summary of a memory: its lineage says the same, and is not written with all of the memory.

Revision: 0025
"""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

_SCHEMA = "consolidation"
_FILL = """
    UPDATE consolidation.task_memories t SET summarized_into_id = s.id
    FROM consolidation.memory_lineage l JOIN consolidation.consolidated_memories s ON s.id = l.child_id
    WHERE l.parent_id = t.id AND s.kind = 'summary' AND NOT coalesce(
        s.archive_reason ^@ ANY(ARRAY['scope: ', 'quarantine: ', 'deleted: ', 'edited: ']), false)
"""


def upgrade() -> None:
    op.drop_column("task_memories", "summarized_into_id", schema=_SCHEMA)


def downgrade() -> None:
    reference = sa.ForeignKey(
        f"{_SCHEMA}.consolidated_memories.id",
        name="task_memories_summarized_into_id_fkey",
        deferrable=True,
        initially="DEFERRED",
    )
    column = sa.Column("summarized_into_id", sa.Uuid(), reference, nullable=True, comment="Summary that covers it.")
    op.add_column("task_memories", column, schema=_SCHEMA)
    op.execute(_FILL)
    op.create_index("task_memories_summarized_into_id_idx", "task_memories", ["summarized_into_id"], schema=_SCHEMA)
