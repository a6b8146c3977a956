"""Index on what people restored, which archiving asks for each night; it read the whole ledger.

Revision: 0046
"""

import sqlalchemy as sa
from alembic import op

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "consolidation_changes_restored_idx",
        "consolidation_changes",
        ["project_id", "changed_at"],
        schema="consolidation",
        postgresql_where=sa.text("operation = 'restore' OR reverts_scope = 'group'"),
    )


def downgrade() -> None:
    op.drop_index("consolidation_changes_restored_idx", table_name="consolidation_changes", schema="consolidation")
