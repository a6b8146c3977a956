"""Keys of the texts of compared memories, so that a text is read once to screen its pairs.

Revision: 0043
"""

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "compared_memories",
        sa.Column(
            "text_keys",
            sa.LargeBinary(),
            comment="Hashes of the values and words of its text, by which pairs are screened.",
        ),
        schema="consolidation",
    )
    # Hashes cannot be compressed.
    op.execute("ALTER TABLE consolidation.compared_memories ALTER COLUMN text_keys SET STORAGE EXTERNAL")


def downgrade() -> None:
    op.drop_column("compared_memories", "text_keys", schema="consolidation")
