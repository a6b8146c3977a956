"""Known claims of a compared scope: also its sentences and words, so that no known text is loaded again.

Revision: 0042
"""

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_column("compared_scopes", "judged_claims", schema="consolidation")
    op.add_column(
        "compared_scopes",
        sa.Column(
            "known_claims",
            sa.LargeBinary(),
            comment="Hashes of the sentences and words of the memories, and which sentences revise which.",
        ),
        schema="consolidation",
    )
    # Hashes cannot be compressed.
    op.execute("ALTER TABLE consolidation.compared_scopes ALTER COLUMN known_claims SET STORAGE EXTERNAL")


def downgrade() -> None:
    op.drop_column("compared_scopes", "known_claims", schema="consolidation")
    op.add_column(
        "compared_scopes",
        sa.Column(
            "judged_claims",
            sa.LargeBinary(),
            comment="Which sentences of the memories tell of a change, and which revise which, by hashes of them.",
        ),
        schema="consolidation",
    )
