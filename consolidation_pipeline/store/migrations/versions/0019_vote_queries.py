"""Queries of votes: a vote counts for queries that are similar to the one for which the memory helped.

Revision: 0019
"""

import sqlalchemy as sa
from alembic import op
from pgvector.sqlalchemy import VECTOR

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_KEY = "memory_votes_pkey"


def upgrade() -> None:
    op.create_table(
        "vote_queries",
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("query_hash", sa.Text(), nullable=False, comment="SHA-256 of the query; its text is not stored."),
        sa.Column("embedding_model", sa.Text(), nullable=False, comment="Model the vector comes from."),
        sa.Column("embedding", VECTOR(), nullable=False, comment="L2-normalised vector of the query."),
        sa.Column("day", sa.Date(), nullable=False, comment="Day of the last vote with it, UTC."),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("vote_queries_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("project_id", "query_hash", "embedding_model", name=op.f("vote_queries_pkey")),
        schema="consolidation",
        comment="Queries for which memories helped.",
    )
    column = sa.Column(
        "query_hash",
        sa.Text(),
        nullable=False,
        server_default=sa.text("''"),
        comment="Query for which it helped; empty = not said.",
    )
    op.add_column("memory_votes", column, schema="consolidation")
    _replace_key(["memory_id", "voter", "day", "query_hash"])


def downgrade() -> None:
    op.execute("DELETE FROM consolidation.memory_votes WHERE query_hash <> ''")
    _replace_key(["memory_id", "voter", "day"])
    op.drop_column("memory_votes", "query_hash", schema="consolidation")
    op.drop_table("vote_queries", schema="consolidation")


def _replace_key(columns: list[str]) -> None:
    op.drop_constraint(_KEY, "memory_votes", schema="consolidation")
    op.create_primary_key(_KEY, "memory_votes", columns, schema="consolidation")
