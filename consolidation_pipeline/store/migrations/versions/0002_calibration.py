"""Calibration: options and reports of snapshots, grouping vectors without boilerplate, verdicts on pairs.

Revision: 0002
"""

import sqlalchemy as sa
from alembic import op
from pgvector.sqlalchemy import VECTOR
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_GRAPH = (
    "The similarity graph: every pair of raw memories at or above the pattern threshold; of exact repeats one stands "
    "for all."
)
_COLUMNS = {
    "options": "Options it was taken under; renewed when they change.",
    "report": "What it was derived from: spread, curve, estimates.",
}


def upgrade() -> None:
    for name, comment in _COLUMNS.items():
        op.add_column(
            "similarity_calibrations",
            sa.Column(
                name,
                postgresql.JSONB(astext_type=sa.Text()),
                server_default=sa.text("'{}'::jsonb"),
                nullable=False,
                comment=comment,
            ),
            schema="consolidation",
        )
    op.create_table(
        "grouping_embeddings",
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("memory_id", sa.Uuid(), nullable=False, comment="Raw or merged memory whose text holds boilerplate."),
        sa.Column("embedding_model", sa.Text(), nullable=False, comment="Model the vector comes from."),
        sa.Column(
            "text_hash",
            sa.Text(),
            nullable=False,
            comment="SHA-256 of the text without boilerplate; nothing is embedded twice.",
        ),
        sa.Column(
            "embedding",
            VECTOR(),
            nullable=False,
            comment="L2-normalised vector of that text; it takes the plain one's place in grouping.",
        ),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("grouping_embeddings_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("project_id", "embedding_model", "memory_id", name=op.f("grouping_embeddings_pkey")),
        schema="consolidation",
        comment="Vectors for grouping of memories that hold boilerplate; search uses the plain ones.",
    )
    # The graph is a cache: the next run rebuilds it.
    op.execute("TRUNCATE consolidation.memory_neighbors")
    op.execute("UPDATE consolidation.task_memories SET graph_version = NULL")
    op.add_column(
        "memory_neighbors",
        sa.Column(
            "verdict",
            sa.SmallInteger(),
            nullable=False,
            comment="0 on one topic at most, 1 a person decides, 2 may be merged.",
        ),
        schema="consolidation",
    )
    op.drop_constraint("memory_neighbors_project_id_fkey", "memory_neighbors", schema="consolidation")
    op.drop_index("memory_neighbors_b_idx", "memory_neighbors", schema="consolidation")
    for side, which in (("a", "smaller"), ("b", "larger")):
        op.alter_column("memory_neighbors", side, comment=f"Raw memory with the {which} id.", schema="consolidation")
    op.execute(f"COMMENT ON TABLE consolidation.memory_neighbors IS '{_GRAPH}'")
    op.drop_column("consolidated_memories", "graph_version", schema="consolidation")
    # Images hold a vector each, which compression makes slow to write and hardly smaller.
    for image in ("previous_state", "new_state"):
        op.execute(f"ALTER TABLE consolidation.consolidation_changes ALTER COLUMN {image} SET STORAGE EXTERNAL")


def downgrade() -> None:
    for image in ("previous_state", "new_state"):
        op.execute(f"ALTER TABLE consolidation.consolidation_changes ALTER COLUMN {image} SET STORAGE EXTENDED")
    op.add_column(
        "consolidated_memories",
        sa.Column(
            "graph_version",
            sa.Integer(),
            nullable=True,
            comment="Calibration under which the neighbours were computed; null = not yet.",
        ),
        schema="consolidation",
    )
    op.execute("TRUNCATE consolidation.memory_neighbors")
    op.execute("UPDATE consolidation.task_memories SET graph_version = NULL")
    op.create_index(
        "memory_neighbors_b_idx", "memory_neighbors", ["project_id", "embedding_model", "b"], schema="consolidation"
    )
    op.create_foreign_key(
        "memory_neighbors_project_id_fkey",
        "memory_neighbors",
        "projects",
        ["project_id"],
        ["id"],
        source_schema="consolidation",
        referent_schema="consolidation",
        ondelete="CASCADE",
    )
    op.drop_column("memory_neighbors", "verdict", schema="consolidation")
    op.drop_table("grouping_embeddings", schema="consolidation")
    for name in _COLUMNS:
        op.drop_column("similarity_calibrations", name, schema="consolidation")
