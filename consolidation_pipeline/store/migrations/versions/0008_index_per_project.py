"""Drop the vector indexes over all projects. The next run of each large project builds an index of its own.

Revision: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

# An index of all projects had one digest in its name, that of a project has two.
_SHARED = "^(task|consolidated)_memories_embedding_[0-9a-f]{12}_idx$"
_OWN = "^(task|consolidated)_memories_embedding_[0-9a-f]{12}_[0-9a-f]{12}_idx$"


def upgrade() -> None:
    _drop(_SHARED)


def downgrade() -> None:
    _drop(_OWN)


def _drop(names: str) -> None:
    query = sa.text("SELECT indexname FROM pg_indexes WHERE schemaname = 'consolidation' AND indexname ~ :names")
    for name in op.get_bind().execute(query, {"names": names}).scalars().all():
        op.drop_index(name, schema="consolidation")
