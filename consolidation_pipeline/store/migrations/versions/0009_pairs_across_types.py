"""Pairs of memories of different types are not judged where groups are of one type; those that were stay as they are.

Revision: 0009
"""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_BEFORE = "0 on one topic at most, 1 a person decides, 2 may be merged."
_COMMENT = "-1 of different types, not judged; 0 on one topic at most, 1 a person decides, 2 may merge."


def upgrade() -> None:
    op.alter_column("memory_neighbors", "verdict", comment=_COMMENT, schema="consolidation")


def downgrade() -> None:
    op.execute("UPDATE consolidation.memory_neighbors SET verdict = 0 WHERE verdict < 0")
    op.alter_column("memory_neighbors", "verdict", comment=_BEFORE, schema="consolidation")
