"""Queue of jobs: one running job per project, and any number of pending ones.

Revision: 0021
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_TABLE = "consolidation_jobs"
_LIVE = sa.text("status IN ('pending', 'running')")
_CANCEL_ALL_BUT_ONE = """
    UPDATE consolidation.consolidation_jobs SET status = 'cancelled', completed_at = now(), duration_seconds = 0
    WHERE id IN (
        SELECT id FROM (
            SELECT id, row_number() OVER (
                PARTITION BY project_id ORDER BY status = 'running' DESC, created_at, id) AS position
            FROM consolidation.consolidation_jobs WHERE status IN ('pending', 'running')) queue
        WHERE position > 1)
"""


def upgrade() -> None:
    op.drop_index("consolidation_jobs_live_key", _TABLE, schema="consolidation")
    _create("consolidation_jobs_running_key", ["project_id"], unique=True, where=sa.text("status = 'running'"))
    _create("consolidation_jobs_live_idx", ["project_id", "created_at"], unique=False, where=_LIVE)


def downgrade() -> None:
    # Older code knows one live job per project.
    op.execute(_CANCEL_ALL_BUT_ONE)
    op.drop_index("consolidation_jobs_live_idx", _TABLE, schema="consolidation")
    op.drop_index("consolidation_jobs_running_key", _TABLE, schema="consolidation")
    _create("consolidation_jobs_live_key", ["project_id"], unique=True, where=_LIVE)


def _create(name: str, columns: list[str], *, unique: bool, where: sa.TextClause) -> None:
    op.create_index(name, _TABLE, columns, unique=unique, postgresql_where=where, schema="consolidation")
