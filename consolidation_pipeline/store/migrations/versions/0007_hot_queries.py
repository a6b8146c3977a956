"""Indexes for frequent queries that had none; small vectors are stored inside their rows, where search reads them.

Revision: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_INDEXES = (
    ("consolidation_changes", "project_id_seq", ["project_id", "seq"]),
    ("consolidation_events", "project_id_created_at", ["project_id", "created_at"]),
    ("consolidation_jobs", "status", ["status"]),
    ("llm_calls", "project_id_created_at", ["project_id", "created_at"]),
    ("memory_relations", "project_id", ["project_id"]),
    ("playbook_entries", "embedded_content", ["embedding_model", "content_hash"]),
    ("playbook_entries", "source_id", ["source_id"]),
)
_SUPPORTING = "playbook_entries_supporting_memory_ids_idx"
# Bytes of a row up to which Postgres moves nothing out of it. With the usual 2,000 a vector of 256 dimensions lies
# elsewhere, and to fetch it takes longer than to compare it. Rows that are there stay as they are until VACUUM FULL.
_ROW_SIZE = 4080
_SEARCHED = ("task_memories", "consolidated_memories")


def upgrade() -> None:
    for table, name, columns in _INDEXES:
        op.create_index(op.f(f"{table}_{name}_idx"), table, columns, schema="consolidation")
    op.create_index(
        op.f(_SUPPORTING),
        "playbook_entries",
        [sa.text("supporting_memory_ids")],
        schema="consolidation",
        postgresql_using="gin",
    )
    for table in _SEARCHED:
        op.execute(f"ALTER TABLE consolidation.{table} SET (toast_tuple_target = {_ROW_SIZE})")


def downgrade() -> None:
    for table in _SEARCHED:
        op.execute(f"ALTER TABLE consolidation.{table} RESET (toast_tuple_target)")
    op.drop_index(_SUPPORTING, "playbook_entries", schema="consolidation")
    for table, name, _ in reversed(_INDEXES):
        op.drop_index(op.f(f"{table}_{name}_idx"), table, schema="consolidation")
