"""Ranked suggestions: how much a decision is worth, how the originals differ, who wrote the text; status kept.

Revision: 0016
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_TABLE = "consolidation_suggestions"
_STATUS = f"{_TABLE}_status_check"
_METHOD = f"{_TABLE}_method_check"
_STATUSES = ("pending", "validated", "rejected", "superseded", "expired")
_STATUS_COMMENT = "pending, validated, rejected, superseded or expired."
_COLUMNS: tuple[tuple[str, sa.types.TypeEngine[Any], str], ...] = (
    ("worth", sa.REAL(), "How much a decision is worth; the highest is asked first."),
    ("difference_kinds", sa.ARRAY(sa.Text()), "Kinds of differences between the originals, the most frequent first."),
    ("method", sa.Text(), "How the text was made: llm, heuristic, or hybrid = the model's text was refused."),
)


def upgrade() -> None:
    # Null in suggestions from before, and in states of theirs in the ledger.
    for name, type_, comment in _COLUMNS:
        column = sa.Column(name, type_, nullable=True, comment=comment)
        op.add_column(_TABLE, column, schema="consolidation")
    op.create_check_constraint(
        op.f(_METHOD), _TABLE, "method IN ('llm', 'heuristic', 'hybrid')", schema="consolidation"
    )
    _replace_statuses((*_STATUSES, "kept"), "pending, validated, rejected, kept, superseded or expired.")


def downgrade() -> None:
    op.execute(f"UPDATE consolidation.{_TABLE} SET status = 'rejected' WHERE status = 'kept'")
    _replace_statuses(_STATUSES, _STATUS_COMMENT)
    op.drop_constraint(op.f(_METHOD), _TABLE, schema="consolidation")
    for name, *_ in _COLUMNS:
        op.drop_column(_TABLE, name, schema="consolidation")


def _replace_statuses(statuses: tuple[str, ...], comment: str) -> None:
    listed = ", ".join(f"'{status}'" for status in statuses)
    op.drop_constraint(op.f(_STATUS), _TABLE, schema="consolidation")
    op.create_check_constraint(op.f(_STATUS), _TABLE, f"status IN ({listed})", schema="consolidation")
    op.alter_column(_TABLE, "status", comment=comment, schema="consolidation")
