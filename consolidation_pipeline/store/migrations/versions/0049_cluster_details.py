"""Comment on the details of a group: the pairs that a person is asked about.

Revision: 0049
"""

from alembic import op

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None

_COMMENT = "Of the representative: cohesion, and the pairs that a person is asked about."
_BEFORE = "Of the representative: cohesion, and why a pair was vetoed."


def upgrade() -> None:
    op.alter_column("memory_clusters", "details", comment=_COMMENT, schema="consolidation")


def downgrade() -> None:
    op.alter_column("memory_clusters", "details", comment=_BEFORE, schema="consolidation")
