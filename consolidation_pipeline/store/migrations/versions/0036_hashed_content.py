"""Index the content of embedded rows by a hash of four bytes, no longer by model and 64 digits.

Revision: 0036
"""

from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

_SCHEMA = "consolidation"
_INDEXES = {
    "task_memories_embedded_content_idx": "task_memories",
    "consolidated_memories_embedded_content_idx": "consolidated_memories",
    "playbook_entries_embedded_content_idx": "playbook_entries",
    "staged_embeddings_content_idx": "staged_embeddings",
}


def upgrade() -> None:
    for name, table in _INDEXES.items():
        op.drop_index(name, table, schema=_SCHEMA)
        op.create_index(name, table, ["content_hash"], schema=_SCHEMA, postgresql_using="hash")


def downgrade() -> None:
    for name, table in _INDEXES.items():
        op.drop_index(name, table, schema=_SCHEMA)
        op.create_index(name, table, ["embedding_model", "content_hash"], schema=_SCHEMA)
