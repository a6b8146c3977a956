"""Ranked suggestions: how much a decision is worth, how the originals differ, who wrote the text; status kept.

Revision: 0016
"""

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
_METHOD_COMMENT = "How the text was made: heuristic, llm, or hybrid = the model's text was refused."


def upgrade() -> None:
    op.add_column(
        _TABLE,
        sa.Column("worth", sa.REAL(), nullable=False, server_default=sa.text("0"), comment="Rank among those waiting."),
        schema="consolidation",
    )
    op.add_column(
        _TABLE,
        sa.Column(
            "difference_kinds",
            sa.ARRAY(sa.Text()),
            nullable=False,
            server_default=sa.text("'{}'::text[]"),
            comment="Kinds of differences between the originals, the most frequent first.",
        ),
        schema="consolidation",
    )
    # Until now, a model wrote every suggestion.
    method = sa.Column("method", sa.Text(), nullable=False, server_default=sa.text("'llm'"), comment=_METHOD_COMMENT)
    op.add_column(_TABLE, method, schema="consolidation")
    op.alter_column(_TABLE, "method", server_default=sa.text("'heuristic'"), schema="consolidation")
    op.create_check_constraint(
        op.f(_METHOD), _TABLE, "method IN ('llm', 'heuristic', 'hybrid')", schema="consolidation"
    )
    _replace_statuses((*_STATUSES, "kept"), "pending, validated, rejected, kept, superseded or expired.")


def downgrade() -> None:
    op.execute(f"UPDATE consolidation.{_TABLE} SET status = 'rejected' WHERE status = 'kept'")
    _replace_statuses(_STATUSES, _STATUS_COMMENT)
    op.drop_constraint(op.f(_METHOD), _TABLE, schema="consolidation")
    for column in ("method", "difference_kinds", "worth"):
        op.drop_column(_TABLE, column, schema="consolidation")


def _replace_statuses(statuses: tuple[str, ...], comment: str) -> None:
    listed = ", ".join(f"'{status}'" for status in statuses)
    op.drop_constraint(op.f(_STATUS), _TABLE, schema="consolidation")
    op.create_check_constraint(op.f(_STATUS), _TABLE, f"status IN ({listed})", schema="consolidation")
    op.alter_column(_TABLE, "status", comment=comment, schema="consolidation")
