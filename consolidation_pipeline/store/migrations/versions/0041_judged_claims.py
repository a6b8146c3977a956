"""Judged claims of a compared scope, so that only new sentences are read and compared.

Revision: 0041
"""

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "compared_scopes",
        sa.Column("code", sa.Text(), comment="Version of the program that compared them."),
        schema="consolidation",
    )
    op.add_column(
        "compared_scopes",
        sa.Column(
            "judged_claims",
            sa.LargeBinary(),
            comment="Which sentences of the memories tell of a change, and which revise which, by hashes of them.",
        ),
        schema="consolidation",
    )


def downgrade() -> None:
    op.drop_column("compared_scopes", "judged_claims", schema="consolidation")
    op.drop_column("compared_scopes", "code", schema="consolidation")
