"""Erasure: the ledger operation ``erase``, and a ledger whose images an erasure may empty.

Revision: 0020
"""

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_OPERATIONS = (
    "'merge', 'summarize', 'pattern', 'principle', 'promote', 'archive', 'restore', 'associate', 'edit', 'review', "
    "'rollback', 'retention'"
)
_FUNCTION = """
CREATE OR REPLACE FUNCTION consolidation.refuse_ledger_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF current_setting('consolidation.retention', true) = 'on' AND OLD.changed_at < now() - interval '90 days' THEN
            RETURN OLD;
        END IF;
    END IF;
    {erasure}
    RAISE EXCEPTION 'consolidation_changes is append-only: % is refused', TG_OP USING ERRCODE = 'restrict_violation';
END $$
"""
# An erasure removes what a change said. That there was one, and when, stays.
_ERASURE = """
    IF TG_OP = 'UPDATE' THEN
        IF current_setting('consolidation.erase', true) = 'on'
            AND (NEW.seq, NEW.id, NEW.project_id, NEW.group_id, NEW.operation, NEW.entity_type, NEW.changed_at)
                = (OLD.seq, OLD.id, OLD.project_id, OLD.group_id, OLD.operation, OLD.entity_type, OLD.changed_at) THEN
            RETURN NEW;
        END IF;
    END IF;
"""


def _allow(operations: str) -> None:
    name = "consolidation_changes_operation_check"
    op.drop_constraint(name, "consolidation_changes", schema="consolidation")
    op.create_check_constraint(
        op.f(name), "consolidation_changes", f"operation IN ({operations})", schema="consolidation"
    )


def upgrade() -> None:
    op.execute(_FUNCTION.format(erasure=_ERASURE))
    _allow(f"{_OPERATIONS}, 'erase'")


def downgrade() -> None:
    # Older code knows no such rows.
    op.execute("ALTER TABLE consolidation.consolidation_changes DISABLE TRIGGER append_only")
    op.execute("DELETE FROM consolidation.consolidation_changes WHERE operation = 'erase'")
    op.execute("ALTER TABLE consolidation.consolidation_changes ENABLE TRIGGER append_only")
    _allow(_OPERATIONS)
    op.execute(_FUNCTION.format(erasure=""))
