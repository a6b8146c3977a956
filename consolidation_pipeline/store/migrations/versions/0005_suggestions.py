"""Suggestions: a memory is in at most one pending suggestion, and the same merge is proposed once.

Revision: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# Whatever makes a suggestion pending, a rollback as well, goes through here; the key of the table does the rest.
_HOLD_ORIGINALS = """
CREATE FUNCTION consolidation.hold_originals() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM consolidation.suggestion_originals WHERE suggestion_id = NEW.id;
    IF NEW.status = 'pending' THEN
        INSERT INTO consolidation.suggestion_originals (memory_id, project_id, suggestion_id)
        SELECT DISTINCT memory_id, NEW.project_id, NEW.id FROM unnest(NEW.original_memory_ids) AS memory_id;
    END IF;
    RETURN NULL;
END $$
"""
_TRIGGER = """
CREATE TRIGGER hold_originals AFTER INSERT OR UPDATE OF status, original_memory_ids
ON consolidation.consolidation_suggestions FOR EACH ROW EXECUTE FUNCTION consolidation.hold_originals()
"""
_KEY = "consolidation_suggestions_fingerprint_key"


def upgrade() -> None:
    op.create_table(
        "suggestion_originals",
        sa.Column("memory_id", sa.Uuid(), nullable=False, comment="Memory that a pending suggestion would merge."),
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("suggestion_id", sa.Uuid(), nullable=False, comment="The suggestion."),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("suggestion_originals_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["suggestion_id"],
            ["consolidation.consolidation_suggestions.id"],
            name=op.f("suggestion_originals_suggestion_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "memory_id", name=op.f("suggestion_originals_pkey"), deferrable=True, initially="DEFERRED"
        ),
        schema="consolidation",
        comment="What pending suggestions would merge: a memory is in one of them at most.",
    )
    for column in ("suggestion_id", "project_id"):
        op.create_index(
            op.f(f"suggestion_originals_{column}_idx"), "suggestion_originals", [column], schema="consolidation"
        )
    # No version of this package wrote suggestions before; of others' that overlap, the oldest stays.
    op.execute(
        "UPDATE consolidation.consolidation_suggestions s SET status = 'superseded' WHERE status = 'pending' "
        "AND EXISTS (SELECT 1 FROM consolidation.consolidation_suggestions o WHERE o.status = 'pending' "
        "AND o.original_memory_ids && s.original_memory_ids AND (o.created_at, o.id) < (s.created_at, s.id))"
    )
    op.execute(
        "INSERT INTO consolidation.suggestion_originals (memory_id, project_id, suggestion_id) "
        "SELECT DISTINCT memory_id, project_id, id FROM consolidation.consolidation_suggestions, "
        "unnest(original_memory_ids) AS memory_id WHERE status = 'pending'"
    )
    op.execute(_HOLD_ORIGINALS)
    op.execute(_TRIGGER)
    op.drop_constraint(_KEY, "consolidation_suggestions", schema="consolidation")
    op.create_index(
        op.f(_KEY),
        "consolidation_suggestions",
        ["fingerprint"],
        unique=True,
        schema="consolidation",
        postgresql_where=sa.text("status <> 'superseded'"),
    )
    _comment("Hash of the originals and what they say: one question is asked once.")


def downgrade() -> None:
    _comment("Hash of the originals and their versions.")
    op.drop_index(_KEY, "consolidation_suggestions", schema="consolidation")
    # The older key covers superseded ones too: of one question they are told apart by their own ids.
    op.execute(
        "UPDATE consolidation.consolidation_suggestions SET fingerprint = fingerprint || ' ' || id "
        "WHERE status = 'superseded'"
    )
    op.create_unique_constraint(op.f(_KEY), "consolidation_suggestions", ["fingerprint"], schema="consolidation")
    op.execute("DROP TRIGGER hold_originals ON consolidation.consolidation_suggestions")
    op.execute("DROP FUNCTION consolidation.hold_originals()")
    op.drop_table("suggestion_originals", schema="consolidation")


def _comment(text: str) -> None:
    op.alter_column("consolidation_suggestions", "fingerprint", comment=text, schema="consolidation")
