"""Drop the indexes on words over all projects. The next run of each large project builds indexes of its own.

Revision: 0024
"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

_TABLES = ("task_memories", "consolidated_memories")
_OWN = "^(task|consolidated)_memories_words_[0-9a-f]{12}_idx$"


def upgrade() -> None:
    for table in _TABLES:
        op.drop_index(f"{table}_content_tsv_idx", schema="consolidation", if_exists=True)


def downgrade() -> None:
    query = sa.text("SELECT indexname FROM pg_indexes WHERE schemaname = 'consolidation' AND indexname ~ :names")
    for name in op.get_bind().execute(query, {"names": _OWN}).scalars().all():
        op.drop_index(name, schema="consolidation")
    for table in _TABLES:
        op.create_index(
            f"{table}_content_tsv_idx", table, ["content_tsv"], schema="consolidation", postgresql_using="gin"
        )
