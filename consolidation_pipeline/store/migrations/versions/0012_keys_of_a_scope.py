"""Keys of a scope: a key may be limited to the memories of one scope of its project.

Revision: 0012
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_COMMENT = "Scope of the project that the key is limited to; null = all."


def upgrade() -> None:
    column = sa.Column("scope_key", sa.Text(), nullable=True, comment=_COMMENT)
    op.add_column("api_keys", column, schema="consolidation")


def downgrade() -> None:
    # A key without its limit would reach more than it was made for.
    op.execute(
        "UPDATE consolidation.api_keys SET revoked_at = now() WHERE scope_key IS NOT NULL AND revoked_at IS NULL"
    )
    op.drop_column("api_keys", "scope_key", schema="consolidation")
