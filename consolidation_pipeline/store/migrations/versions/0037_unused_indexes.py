"""Drop indexes of consolidated memories that no query can use.

Revision: 0037
"""

from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

_TABLE, _SCHEMA = "consolidated_memories", "consolidation"


def upgrade() -> None:
    op.drop_index("consolidated_memories_source_memory_ids_idx", _TABLE, schema=_SCHEMA)
    op.drop_index("consolidated_memories_cluster_key_idx", _TABLE, schema=_SCHEMA)


def downgrade() -> None:
    op.create_index(
        "consolidated_memories_source_memory_ids_idx",
        _TABLE,
        ["source_memory_ids"],
        schema=_SCHEMA,
        postgresql_using="gin",
    )
    op.create_index("consolidated_memories_cluster_key_idx", _TABLE, ["project_id", "cluster_key"], schema=_SCHEMA)
