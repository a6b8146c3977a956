"""Scopes: a consolidated memory knows the scope of its raw memories. A user may have a profile in each scope.

Revision: 0011
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_COMMENT = "Scope of all of its raw memories; null = made of any, in a project without walls."
_PROFILES = "kind = 'procedural' AND retired_at IS NULL"
_KEY = "consolidated_memories_procedural_key"

# The key under the default option. It stays null if there are raw memories of several users.
_FILL = """
UPDATE consolidation.consolidated_memories c SET scope_key = found.key FROM (
    SELECT d.id, min(coalesce(t.user_id, '')) AS key
    FROM consolidation.consolidated_memories d CROSS JOIN LATERAL unnest(d.source_memory_ids) AS source(id)
        JOIN consolidation.task_memories t ON t.id = source.id
    GROUP BY d.id HAVING count(DISTINCT coalesce(t.user_id, '')) = 1) found
WHERE found.id = c.id
"""
# One profile of each user stays active: the former key allows no other.
_RETIRE_PROFILES = """
UPDATE consolidation.consolidated_memories c SET retired_at = now(), archive_reason = 'profile of a scope'
WHERE c.kind = 'procedural' AND c.retired_at IS NULL AND EXISTS (
    SELECT 1 FROM consolidation.consolidated_memories o
    WHERE o.project_id = c.project_id AND o.kind = 'procedural' AND o.retired_at IS NULL
        AND coalesce(o.user_id, '') = coalesce(c.user_id, '') AND (o.updated_at, o.id) > (c.updated_at, c.id))
"""


def _create_key(*parts: str) -> None:
    op.create_index(
        op.f(_KEY),
        "consolidated_memories",
        ["project_id", *map(sa.text, parts)],
        unique=True,
        schema="consolidation",
        postgresql_where=sa.text(_PROFILES),
    )


def upgrade() -> None:
    column = sa.Column("scope_key", sa.Text(), nullable=True, comment=_COMMENT)
    op.add_column("consolidated_memories", column, schema="consolidation")
    op.execute(_FILL)
    op.drop_index(op.f(_KEY), "consolidated_memories", schema="consolidation")
    _create_key("coalesce(user_id, '')", "coalesce(scope_key, '')")


def downgrade() -> None:
    op.drop_index(op.f(_KEY), "consolidated_memories", schema="consolidation")
    op.execute(_RETIRE_PROFILES)
    _create_key("coalesce(user_id, '')")
    op.drop_column("consolidated_memories", "scope_key", schema="consolidation")
