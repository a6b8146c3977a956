"""Pairs of suggest groups without their differences, which are explained when a group is proposed or shown.

Revision: 0048
"""

from alembic import op

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None

# A pair with differences needs no other reason: the next run writes the one that holds.
_REASON = """
    CASE WHEN pair -> 'differences' ->> 0 LIKE 'no difference: %' THEN pair -> 'differences' ->> 0
        ELSE 'no difference: a similarity below t_merge' END
"""


def upgrade() -> None:
    _rewrite(f"pair - 'differences' || jsonb_build_object('if_same', {_REASON})")


def downgrade() -> None:
    _rewrite("pair - 'if_same' || jsonb_build_object('differences', jsonb_build_array(pair -> 'if_same'))")


def _rewrite(pair: str) -> None:
    """Replace each pair of the suggest groups by an expression on ``pair``."""
    op.execute(f"""
        UPDATE consolidation.memory_clusters SET details = jsonb_set(details - 'calibration', '{{asked_pairs}}', (
            SELECT coalesce(jsonb_agg({pair} ORDER BY at), '[]')
            FROM jsonb_array_elements(details -> 'asked_pairs') WITH ORDINALITY AS listed (pair, at)))
        WHERE tier = 'suggest' AND details ? 'asked_pairs'
    """)
