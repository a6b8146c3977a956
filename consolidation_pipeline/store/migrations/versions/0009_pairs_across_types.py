"""Verdict -1: a pair of different memory types, which is not judged if groups have one type. Old verdicts stay.

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
