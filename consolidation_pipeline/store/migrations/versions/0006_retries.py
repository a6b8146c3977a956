"""Retries: an index of failed jobs, from which failures in a row are counted.

Revision: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_INDEX = "consolidation_jobs_failed_idx"


def upgrade() -> None:
    op.create_index(
        op.f(_INDEX),
        "consolidation_jobs",
        ["project_id", "created_at"],
        schema="consolidation",
        postgresql_where=sa.text("status = 'failed' AND retry_count > 0"),
    )
    _comment("retry_count", "Failures of this job in a row, its own included; a success starts anew.")
    _comment("max_retries", "Failures in a row after which sensors leave it alone.")


def downgrade() -> None:
    op.drop_index(op.f(_INDEX), "consolidation_jobs", schema="consolidation")
    _comment("retry_count", "Attempts after the first.")
    _comment("max_retries", "Attempts allowed after the first.")


def _comment(column: str, text: str) -> None:
    op.alter_column("consolidation_jobs", column, comment=text, schema="consolidation")
