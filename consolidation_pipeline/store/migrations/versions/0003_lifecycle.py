"""Archived consolidated memories, the scope of a rollback, and the ledger operation ``retention``.

Revision: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_OPERATIONS = (
    "'merge', 'summarize', 'pattern', 'principle', 'promote', 'archive', 'restore', 'associate', 'edit', 'review', "
    "'rollback'"
)


def _allow(operations: str) -> None:
    name = "consolidation_changes_operation_check"
    op.drop_constraint(name, "consolidation_changes", schema="consolidation")
    op.create_check_constraint(
        op.f(name), "consolidation_changes", f"operation IN ({operations})", schema="consolidation"
    )


def upgrade() -> None:
    op.add_column(
        "consolidated_memories",
        sa.Column(
            "archive_reason",
            sa.Text(),
            nullable=True,
            comment="Why it was archived: staleness, forgotten or a person's words; null = active or superseded.",
        ),
        schema="consolidation",
    )
    op.create_check_constraint(
        op.f("consolidated_memories_archive_reason_check"),
        "consolidated_memories",
        "archive_reason IS NULL OR retired_at IS NOT NULL",
        schema="consolidation",
    )
    op.add_column(
        "consolidation_changes",
        sa.Column(
            "reverts_scope",
            sa.Text(),
            nullable=True,
            comment="Of a rollback, what it was asked to undo: group or job.",
        ),
        schema="consolidation",
    )
    op.create_check_constraint(
        op.f("consolidation_changes_reverts_scope_check"),
        "consolidation_changes",
        "reverts_scope IN ('group', 'job')",
        schema="consolidation",
    )
    _allow(f"{_OPERATIONS}, 'retention'")


def downgrade() -> None:
    # Older code knows no such rows, and neither how to bring an archived merged memory back.
    op.execute("UPDATE consolidation.consolidated_memories SET retired_at = NULL WHERE archive_reason IS NOT NULL")
    op.execute("ALTER TABLE consolidation.consolidation_changes DISABLE TRIGGER append_only")
    op.execute("DELETE FROM consolidation.consolidation_changes WHERE operation = 'retention'")
    op.execute("ALTER TABLE consolidation.consolidation_changes ENABLE TRIGGER append_only")
    _allow(_OPERATIONS)
    op.drop_constraint("consolidation_changes_reverts_scope_check", "consolidation_changes", schema="consolidation")
    op.drop_column("consolidation_changes", "reverts_scope", schema="consolidation")
    op.drop_constraint("consolidated_memories_archive_reason_check", "consolidated_memories", schema="consolidation")
    op.drop_column("consolidated_memories", "archive_reason", schema="consolidation")
