"""Store the similarity graph in one row per memory, without the pairs across types that nothing reads.

Revision: 0027
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0027"
down_revision = "0025"
branch_labels = None
depends_on = None

_TABLE, _SCHEMA = "memory_neighbors", "consolidation"
_PAIRS = """
CREATE VIEW consolidation.memory_pairs AS
SELECT n.project_id, n.embedding_model, least(n.memory_id, p.id) AS a, greatest(n.memory_id, p.id) AS b,
    p.similarity, p.verdict
FROM consolidation.memory_neighbors n, unnest(n.neighbor_ids, n.similarities, n.verdicts) AS p(id, similarity, verdict)
"""
_PACK = """
INSERT INTO consolidation.memory_neighbors (
    project_id, embedding_model, memory_id, neighbor_ids, similarities, verdicts)
SELECT project_id, embedding_model, a, array_agg(b), array_agg(similarity), array_agg(verdict)
FROM consolidation.old_neighbors WHERE verdict >= 0 GROUP BY project_id, embedding_model, a
"""
_UNPACK = """
INSERT INTO consolidation.old_neighbors (project_id, embedding_model, a, b, similarity, verdict)
SELECT project_id, embedding_model, a, b, similarity, verdict FROM consolidation.memory_pairs
"""


def upgrade() -> None:
    op.rename_table(_TABLE, "old_neighbors", schema=_SCHEMA)
    op.execute("ALTER INDEX consolidation.memory_neighbors_pkey RENAME TO old_neighbors_pkey")
    op.create_table(
        _TABLE,
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("embedding_model", sa.Text(), nullable=False, comment="Model whose vectors were compared."),
        sa.Column(
            "memory_id", sa.Uuid(), nullable=False, comment="Raw memory; of two, the one that was compared later."
        ),
        sa.Column(
            "neighbor_ids",
            postgresql.ARRAY(sa.Uuid()),
            nullable=False,
            comment="Raw memories similar to it; each pair is in one row only.",
        ),
        sa.Column(
            "similarities",
            postgresql.ARRAY(sa.REAL()),
            nullable=False,
            comment="Cosine of each, at least the pattern threshold.",
        ),
        sa.Column(
            "verdicts",
            postgresql.ARRAY(sa.SmallInteger()),
            nullable=False,
            comment="On each: 0 on one topic at most, 1 a person decides, 2 may merge.",
        ),
        sa.CheckConstraint(
            "cardinality(similarities) = cardinality(neighbor_ids) "
            "AND cardinality(verdicts) = cardinality(neighbor_ids)",
            name=op.f("memory_neighbors_sizes_check"),
        ),
        sa.PrimaryKeyConstraint("project_id", "embedding_model", "memory_id", name=op.f("memory_neighbors_pkey")),
        schema=_SCHEMA,
        comment="The similarity graph: the pairs of raw memories at or above the pattern threshold that a group may "
        "have; of exact repeats one stands for all. The view memory_pairs has a row per pair.",
    )
    op.execute(_PACK)
    op.execute(_PAIRS)
    op.execute("COMMENT ON VIEW consolidation.memory_pairs IS 'The similarity graph, a row per pair: a < b.'")
    op.drop_table("old_neighbors", schema=_SCHEMA)


def downgrade() -> None:
    op.create_table(
        "old_neighbors",
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("embedding_model", sa.Text(), nullable=False, comment="Model whose vectors were compared."),
        sa.Column("a", sa.Uuid(), nullable=False, comment="Raw memory with the smaller id."),
        sa.Column("b", sa.Uuid(), nullable=False, comment="Raw memory with the larger id."),
        sa.Column("similarity", sa.REAL(), nullable=False, comment="Cosine, at least the pattern threshold."),
        sa.Column(
            "verdict",
            sa.SmallInteger(),
            nullable=False,
            comment="-1 of different types, not judged; 0 on one topic at most, 1 a person decides, 2 may merge.",
        ),
        schema=_SCHEMA,
        comment="The similarity graph: every pair of raw memories at or above the pattern threshold; of exact repeats "
        "one stands for all.",
    )
    op.execute(_UNPACK)
    op.execute("DROP VIEW consolidation.memory_pairs")
    op.drop_table(_TABLE, schema=_SCHEMA)
    op.rename_table("old_neighbors", _TABLE, schema=_SCHEMA)
    op.create_primary_key("memory_neighbors_pkey", _TABLE, ["project_id", "embedding_model", "a", "b"], schema=_SCHEMA)
    op.create_check_constraint(op.f("memory_neighbors_order_check"), _TABLE, "a < b", schema=_SCHEMA)
