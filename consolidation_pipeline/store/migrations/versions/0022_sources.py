"""Connected stores: their rows, and what was written into them.

Revision: 0022
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sources",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False, comment="Source id."),
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("name", sa.Text(), nullable=False, comment="What people type; it is the source of its memories too."),
        sa.Column(
            "config",
            postgresql.JSONB(astext_type=sa.Text()),
            nullable=False,
            comment="Kind, table and fields of the store, and the variable that holds its URL.",
        ),
        sa.Column(
            "mode",
            sa.Text(),
            nullable=False,
            comment="mirror = only read; review = write what a person approves; write = write by itself.",
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When the store was connected.",
        ),
        sa.Column("synced_at", sa.DateTime(timezone=True), nullable=True, comment="When the last sync ended."),
        sa.Column(
            "last_sync",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
            comment="Numbers of the last sync.",
        ),
        sa.CheckConstraint("mode IN ('mirror', 'review', 'write')", name=op.f("sources_mode_check")),
        sa.ForeignKeyConstraint(
            ["project_id"], ["consolidation.projects.id"], name=op.f("sources_project_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("sources_pkey")),
        sa.UniqueConstraint("name", name=op.f("sources_name_key")),
        schema="consolidation",
        comment="Connected stores, where agents keep their memories.",
    )

    op.create_table(
        "source_rows",
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("source_id", sa.Uuid(), nullable=False, comment="Store."),
        sa.Column(
            "key", sa.Text(), nullable=False, comment="Key of the row in the store; of several columns, a JSON array."
        ),
        sa.Column(
            "memory_id",
            sa.Uuid(),
            nullable=False,
            comment="Raw memory that mirrors it, or merged memory that it was written for.",
        ),
        sa.Column(
            "stamp", sa.Text(), nullable=False, comment="SHA-256 of text, scope and metadata, as they were read last."
        ),
        sa.Column(
            "state",
            sa.Text(),
            nullable=False,
            comment="mirrored; hidden = by our write; successor = our new row; gone = deleted by its program; refused = not legal; erased = never copied again.",
        ),
        sa.Column("reason", sa.Text(), nullable=True, comment="Why it was refused."),
        sa.Column(
            "changed_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When its program changed it last, as far as the store tells; else when that was seen.",
        ),
        sa.CheckConstraint(
            "state IN ('mirrored', 'hidden', 'successor', 'gone', 'refused', 'erased')",
            name=op.f("source_rows_state_check"),
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["consolidation.projects.id"], name=op.f("source_rows_project_id_fkey"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["source_id"], ["consolidation.sources.id"], name=op.f("source_rows_source_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("source_id", "key", name=op.f("source_rows_pkey")),
        schema="consolidation",
        comment="Rows of connected stores and the memories that mirror them.",
    )
    op.create_index("source_rows_memory_id_idx", "source_rows", ["memory_id"], unique=False, schema="consolidation")

    op.create_table(
        "source_writes",
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("id", sa.Uuid(), nullable=False, comment="Id of the write, also in the store's sidecar."),
        sa.Column("source_id", sa.Uuid(), nullable=False, comment="Store."),
        sa.Column("memory_id", sa.Uuid(), nullable=False, comment="Merged memory that was written."),
        sa.Column("version", sa.Integer(), nullable=False, comment="Its version then."),
        sa.Column(
            "status",
            sa.Text(),
            nullable=False,
            comment="intended, written, refused, undone; gone = its program removed or changed it.",
        ),
        sa.Column(
            "plan",
            postgresql.JSONB(astext_type=sa.Text()),
            nullable=False,
            comment="Kept or new row, hidden rows with their stamps, text.",
        ),
        sa.Column("reason", sa.Text(), nullable=True, comment="Why it was refused."),
        sa.Column(
            "intended_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was decided.",
        ),
        sa.Column(
            "ended_at", sa.DateTime(timezone=True), nullable=True, comment="When it was written, refused or undone."
        ),
        sa.CheckConstraint(
            "status IN ('intended', 'written', 'refused', 'undone', 'gone')", name=op.f("source_writes_status_check")
        ),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("source_writes_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["source_id"], ["consolidation.sources.id"], name=op.f("source_writes_source_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("source_writes_pkey")),
        schema="consolidation",
        comment="Merged memories written into connected stores.",
    )
    op.create_index("source_writes_memory_id_idx", "source_writes", ["memory_id"], unique=False, schema="consolidation")
    op.create_index(
        "source_writes_source_id_status_idx",
        "source_writes",
        ["source_id", "status"],
        unique=False,
        schema="consolidation",
    )


def downgrade() -> None:
    op.drop_table("source_writes", schema="consolidation")
    op.drop_table("source_rows", schema="consolidation")
    op.drop_table("sources", schema="consolidation")
