"""Writers: raw memories name the key of the agent that wrote them, as everything else about the writer is claimed.

Revision: 0015
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_COMMENT = (
    "Agent that wrote it: key:ID of its key, or local; null = an import or an operator, whose fields are trusted."
)


def upgrade() -> None:
    column = sa.Column("writer", sa.Text(), nullable=True, comment=_COMMENT)
    op.add_column("task_memories", column, schema="consolidation")


def downgrade() -> None:
    op.drop_column("task_memories", "writer", schema="consolidation")
