"""Comment on raw memories: their content can be edited.

Revision: 0050
"""

from alembic import op

revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None

_COMMENT = "Raw memories that agents wrote; no run changes their content, and edits are in the ledger."
_BEFORE = "Raw memories that agents wrote; content is immutable."


def upgrade() -> None:
    op.create_table_comment("task_memories", _COMMENT, existing_comment=_BEFORE, schema="consolidation")


def downgrade() -> None:
    op.create_table_comment("task_memories", _BEFORE, existing_comment=_COMMENT, schema="consolidation")
