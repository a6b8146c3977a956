"""Images of the ledger are compressed: they hold vectors as bytes, no longer as text, which compression made slow.

Revision: 0033
"""

from alembic import op

revision = "0033"
down_revision = "0031"
branch_labels = None
depends_on = None

_IMAGES = ("previous_state", "new_state")
_BYTES = """
    SELECT seq, decode({image} ->> 'embedding', 'base64') FROM consolidation.consolidation_changes
    WHERE left({image} ->> 'embedding', 1) <> '['
"""
_WRITE_TEXT = """
    UPDATE consolidation.consolidation_changes c
    SET {image} = {image} || jsonb_build_object('embedding', v.embedding::text) FROM old_vectors v WHERE v.seq = c.seq
"""


def upgrade() -> None:
    for image in _IMAGES:
        op.execute(f"ALTER TABLE consolidation.consolidation_changes ALTER COLUMN {image} SET STORAGE EXTENDED")


def downgrade() -> None:
    for image in _IMAGES:
        op.execute(f"ALTER TABLE consolidation.consolidation_changes ALTER COLUMN {image} SET STORAGE EXTERNAL")
    # Older code reads vectors as text. Binary COPY writes their bytes as it writes the vectors themselves.
    op.execute("ALTER TABLE consolidation.consolidation_changes DISABLE TRIGGER append_only")
    cursor = op.get_bind().connection.cursor()
    for image in _IMAGES:
        op.execute("CREATE TEMP TABLE old_vectors (seq bigint, embedding vector)")
        with cursor.copy(f"COPY ({_BYTES.format(image=image)}) TO STDOUT (FORMAT binary)") as copy:
            blocks = list(copy)
        with cursor.copy("COPY old_vectors FROM STDIN (FORMAT binary)") as copy:
            for block in blocks:
                copy.write(block)
        op.execute(_WRITE_TEXT.format(image=image))
        op.execute("DROP TABLE old_vectors")
    op.execute("ALTER TABLE consolidation.consolidation_changes ENABLE TRIGGER append_only")
