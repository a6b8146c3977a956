"""Relation ``supersedes``: from a newer memory to the older one whose place it takes.

Revision: 0017
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_TABLE = "memory_relations"
_INDEX = f"{_TABLE}_supersedes_idx"
_TYPES = ("contradicts", "explains", "shares_theme", "parallel_context")
_COMMENTS = {
    "a_id": (
        "One memory; the explaining one where the relation has a direction.",
        "One memory; the explaining or newer one where the relation has a direction.",
    ),
    "relation_type": (
        "contradicts, explains, shares_theme or parallel_context.",
        "contradicts, explains, shares_theme, parallel_context or supersedes.",
    ),
    "status": (
        "candidate, confirmed or rejected; only confirmed ones count for decay.",
        "candidate, confirmed or rejected; only confirmed ones have an effect.",
    ),
}


def upgrade() -> None:
    _replace_types((*_TYPES, "supersedes"))
    _comment(1)
    op.create_index(
        _INDEX,
        _TABLE,
        ["project_id"],
        schema="consolidation",
        postgresql_where=sa.text("relation_type = 'supersedes'"),
    )


def downgrade() -> None:
    op.drop_index(_INDEX, _TABLE, schema="consolidation")
    op.execute(f"DELETE FROM consolidation.{_TABLE} WHERE relation_type = 'supersedes'")
    _replace_types(_TYPES)
    _comment(0)


def _replace_types(types: tuple[str, ...]) -> None:
    name = op.f(f"{_TABLE}_relation_type_check")
    listed = ", ".join(f"'{one}'" for one in types)
    op.drop_constraint(name, _TABLE, schema="consolidation")
    op.create_check_constraint(name, _TABLE, f"relation_type IN ({listed})", schema="consolidation")


def _comment(at: int) -> None:
    for column, texts in _COMMENTS.items():
        op.alter_column(_TABLE, column, comment=texts[at], schema="consolidation")
