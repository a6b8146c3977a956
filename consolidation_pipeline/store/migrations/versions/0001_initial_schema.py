"""The whole schema: memories, knowledge, ledger, jobs, spending, events.

Revision: 0001
"""

import sqlalchemy as sa
from alembic import op
from pgvector.sqlalchemy import VECTOR
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = (
    "task_memories",
    "similarity_calibrations",
    "playbook_entries",
    "memory_relations",
    "memory_neighbors",
    "memory_lineage",
    "memory_files",
    "memory_clusters",
    "consolidation_suggestions",
    "consolidation_jobs",
    "consolidated_memories",
    "api_keys",
    "projects",
    "llm_calls",
    "consolidation_events",
    "consolidation_changes",
)

# Retention is the one thing that may remove rows, and only rows older than 90 days.
LEDGER_IS_APPEND_ONLY = """
CREATE FUNCTION consolidation.refuse_ledger_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF current_setting('consolidation.retention', true) = 'on' AND OLD.changed_at < now() - interval '90 days' THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION 'consolidation_changes is append-only: % is refused', TG_OP USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON consolidation.consolidation_changes
    FOR EACH ROW EXECUTE FUNCTION consolidation.refuse_ledger_change();
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON consolidation.consolidation_changes
    FOR EACH STATEMENT EXECUTE FUNCTION consolidation.refuse_ledger_change();
"""

PLAYBOOK_CHANGES = """
CREATE VIEW consolidation.playbook_changes AS
SELECT seq, id, job_id, project_id, group_id, entity_id AS entry_id,
    CASE
        WHEN operation IN ('promote', 'rollback') THEN operation
        WHEN previous_state IS NULL THEN 'add'
        WHEN new_state IS NULL OR new_state ->> 'status' = 'retired' THEN 'delete'
        ELSE 'update'
    END AS change,
    previous_state, new_state, reason, confidence, changed_by, changed_at
FROM consolidation.consolidation_changes WHERE entity_type = 'playbook_entries';
COMMENT ON VIEW consolidation.playbook_changes IS 'What happened to playbook entries: add, update, delete, promote, rollback.';
"""


def upgrade() -> None:
    op.execute("CREATE EXTENSION IF NOT EXISTS vector")
    op.create_table(
        "consolidation_changes",
        sa.Column("seq", sa.BigInteger(), sa.Identity(always=True), nullable=False, comment="Order of the ledger."),
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False, comment="Change id."),
        sa.Column("job_id", sa.Uuid(), nullable=True, comment="Run that made the change; null = by hand."),
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner; a plain value, so the ledger outlives it."),
        sa.Column(
            "group_id",
            sa.Uuid(),
            nullable=False,
            comment="Changes that belong together; the smallest thing one would undo.",
        ),
        sa.Column("operation", sa.Text(), nullable=False, comment="What was done."),
        sa.Column("entity_type", sa.Text(), nullable=False, comment="Table of the row."),
        sa.Column("entity_id", sa.Uuid(), nullable=False, comment="The row."),
        sa.Column(
            "previous_state",
            postgresql.JSONB(astext_type=sa.Text()),
            nullable=True,
            comment="Before-image of what changed; null = did not exist.",
        ),
        sa.Column(
            "new_state",
            postgresql.JSONB(astext_type=sa.Text()),
            nullable=True,
            comment="After-image of what changed; null = does not exist.",
        ),
        sa.Column("version_before", sa.Integer(), nullable=True, comment="Row version before; null = did not exist."),
        sa.Column("version_after", sa.Integer(), nullable=True, comment="Row version after; null = does not exist."),
        sa.Column("reason", sa.Text(), nullable=True, comment="Why."),
        sa.Column("confidence", sa.Double(), nullable=True, comment="How sure the pipeline was."),
        sa.Column(
            "changed_by",
            sa.Text(),
            server_default=sa.text("'system'"),
            nullable=False,
            comment="Who: a person, a key or the pipeline.",
        ),
        sa.Column(
            "changed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False, comment="When."
        ),
        sa.Column("reverts_change_id", sa.Uuid(), nullable=True, comment="Change that this one undoes."),
        sa.CheckConstraint(
            "operation IN ('merge', 'summarize', 'pattern', 'principle', 'promote', 'archive', 'restore', 'associate', 'edit', 'review', 'rollback')",
            name=op.f("consolidation_changes_operation_check"),
        ),
        sa.CheckConstraint(
            "num_nonnulls(previous_state, new_state) > 0", name=op.f("consolidation_changes_images_check")
        ),
        sa.PrimaryKeyConstraint("seq", name=op.f("consolidation_changes_pkey")),
        sa.UniqueConstraint("id", name=op.f("consolidation_changes_id_key")),
        schema="consolidation",
        comment="The ledger: one row per entity changed, with the state before and after. Append-only.",
    )
    op.create_index(
        "consolidation_changes_entity_id_idx",
        "consolidation_changes",
        ["entity_id", "seq"],
        unique=False,
        schema="consolidation",
    )
    op.create_index(
        "consolidation_changes_group_id_idx",
        "consolidation_changes",
        ["group_id"],
        unique=False,
        schema="consolidation",
    )
    op.create_index(
        "consolidation_changes_job_id_idx", "consolidation_changes", ["job_id"], unique=False, schema="consolidation"
    )
    op.create_index(
        "consolidation_changes_project_id_changed_at_idx",
        "consolidation_changes",
        ["project_id", "changed_at"],
        unique=False,
        schema="consolidation",
    )
    op.create_index(
        "consolidation_changes_reverts_change_id_key",
        "consolidation_changes",
        ["reverts_change_id"],
        unique=True,
        schema="consolidation",
        postgresql_where=sa.text("reverts_change_id IS NOT NULL"),
    )
    op.create_table(
        "consolidation_events",
        sa.Column(
            "id",
            sa.Uuid(),
            server_default=sa.text("gen_random_uuid()"),
            nullable=False,
            comment="Event id; receivers use it to drop repeats.",
        ),
        sa.Column("project_id", sa.Uuid(), nullable=True, comment="Owner."),
        sa.Column("type", sa.Text(), nullable=False, comment="consolidation.started, completed, failed, ..."),
        sa.Column("payload", postgresql.JSONB(astext_type=sa.Text()), nullable=False, comment="What happened."),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was written, in the transaction it describes.",
        ),
        sa.Column(
            "delivered_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When the receiver took it; null = not yet.",
        ),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False, comment="Deliveries tried."),
        sa.Column("last_error", sa.Text(), nullable=True, comment="Why the last delivery failed."),
        sa.PrimaryKeyConstraint("id", name=op.f("consolidation_events_pkey")),
        schema="consolidation",
        comment="Transactional outbox.",
    )
    op.create_index(
        "consolidation_events_undelivered_idx",
        "consolidation_events",
        ["created_at"],
        unique=False,
        schema="consolidation",
        postgresql_where=sa.text("delivered_at IS NULL"),
    )
    op.create_table(
        "llm_calls",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False, comment="Call id."),
        sa.Column("project_id", sa.Uuid(), nullable=True, comment="Owner; a plain value, so spending outlives it."),
        sa.Column("job_id", sa.Uuid(), nullable=True, comment="Run that made the call."),
        sa.Column("purpose", sa.Text(), nullable=False, comment="What the call was for."),
        sa.Column("model", sa.Text(), nullable=False, comment="litellm model name."),
        sa.Column(
            "prompt_hash",
            sa.Text(),
            nullable=False,
            comment="SHA-256 of model, prompt version and prompt: the reply cache's key.",
        ),
        sa.Column("status", sa.Text(), nullable=False, comment="reserved, settled, failed or cached."),
        sa.Column(
            "attempt",
            sa.Integer(),
            server_default=sa.text("1"),
            nullable=False,
            comment="Counts up at reservation, so a crash loop cannot spend again.",
        ),
        sa.Column("prompt_tokens", sa.Integer(), server_default=sa.text("0"), nullable=False, comment="Tokens sent."),
        sa.Column(
            "completion_tokens", sa.Integer(), server_default=sa.text("0"), nullable=False, comment="Tokens received."
        ),
        sa.Column(
            "reserved_usd",
            sa.Numeric(precision=14, scale=8),
            server_default=sa.text("0"),
            nullable=False,
            comment="Cost reserved before the call, US dollars.",
        ),
        sa.Column(
            "cost_usd",
            sa.Numeric(precision=14, scale=8),
            nullable=True,
            comment="Cost settled after the call, US dollars.",
        ),
        sa.Column(
            "response", postgresql.JSONB(astext_type=sa.Text()), nullable=True, comment="Reply, kept for the cache."
        ),
        sa.Column("error_message", sa.Text(), nullable=True, comment="Why it failed."),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was reserved.",
        ),
        sa.Column("settled_at", sa.DateTime(timezone=True), nullable=True, comment="When it ended."),
        sa.CheckConstraint(
            "status IN ('reserved', 'settled', 'failed', 'cached')", name=op.f("llm_calls_status_check")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("llm_calls_pkey")),
        schema="consolidation",
        comment="Spend ledger and reply cache.",
    )
    op.create_index("llm_calls_created_at_idx", "llm_calls", ["created_at"], unique=False, schema="consolidation")
    op.create_index("llm_calls_job_id_idx", "llm_calls", ["job_id"], unique=False, schema="consolidation")
    op.create_index(
        "llm_calls_prompt_hash_idx", "llm_calls", ["prompt_hash", "status"], unique=False, schema="consolidation"
    )
    op.create_table(
        "projects",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False, comment="Project id."),
        sa.Column("slug", sa.Text(), nullable=False, comment="Partition key; what people type."),
        sa.Column(
            "consolidation_enabled",
            sa.Boolean(),
            server_default=sa.text("true"),
            nullable=False,
            comment="False = no run touches the project.",
        ),
        sa.Column(
            "config",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
            comment="Options that differ from the defaults.",
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When the project was created.",
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When the configuration last changed.",
        ),
        sa.CheckConstraint("slug ~ '^[a-z0-9][a-z0-9._-]{0,62}$'", name=op.f("projects_slug_check")),
        sa.PrimaryKeyConstraint("id", name=op.f("projects_pkey")),
        sa.UniqueConstraint("slug", name=op.f("projects_slug_key")),
        schema="consolidation",
        comment="Owners of memories; each is a Dagster partition.",
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False, comment="Key id."),
        sa.Column("project_id", sa.Uuid(), nullable=True, comment="Project the key is limited to; null = all."),
        sa.Column("name", sa.Text(), nullable=False, comment="What the key is for."),
        sa.Column("key_hash", sa.Text(), nullable=False, comment="SHA-256 of the key; the key itself is not stored."),
        sa.Column("role", sa.Text(), nullable=False, comment="admin, agent or reader."),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was made.",
        ),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True, comment="When it was last used."),
        sa.Column(
            "revoked_at", sa.DateTime(timezone=True), nullable=True, comment="When it was revoked; null = valid."
        ),
        sa.CheckConstraint("role IN ('admin', 'agent', 'reader')", name=op.f("api_keys_role_check")),
        sa.ForeignKeyConstraint(
            ["project_id"], ["consolidation.projects.id"], name=op.f("api_keys_project_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("api_keys_pkey")),
        sa.UniqueConstraint("key_hash", name=op.f("api_keys_key_hash_key")),
        schema="consolidation",
        comment="Who may call the API.",
    )
    op.create_table(
        "consolidated_memories",
        sa.Column(
            "id",
            sa.Uuid(),
            server_default=sa.text("gen_random_uuid()"),
            nullable=False,
            comment="Derived from project, kind, sorted source ids and algorithm version.",
        ),
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("kind", sa.Text(), nullable=False, comment="merged, pattern, summary, principle or procedural."),
        sa.Column(
            "abstraction_level",
            sa.Integer(),
            nullable=False,
            comment="1 merged, 2 pattern or summary, 3 principle or profile.",
        ),
        sa.Column("content", sa.Text(), nullable=False, comment="The knowledge itself."),
        sa.Column("memory_type", sa.Text(), nullable=False, comment="Type of the group it stands for."),
        sa.Column(
            "pattern_type",
            sa.Text(),
            nullable=True,
            comment="success, failure, decision, workflow or gotcha; patterns and principles only.",
        ),
        sa.Column(
            "confidence_score",
            sa.Double(),
            server_default=sa.text("0.5"),
            nullable=False,
            comment="How sure we are, evidence weighed in.",
        ),
        sa.Column("llm_confidence", sa.Double(), nullable=True, comment="What the model itself said."),
        sa.Column(
            "needs_review",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="True = a person should look before it is promoted.",
        ),
        sa.Column(
            "details",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
            comment="summary, best_practices, gotchas, dropped, ...",
        ),
        sa.Column(
            "tags",
            postgresql.ARRAY(sa.Text()),
            server_default=sa.text("'{}'::text[]"),
            nullable=False,
            comment="Union of the sources' labels.",
        ),
        sa.Column(
            "consolidation_method",
            sa.Text(),
            server_default=sa.text("'heuristic'"),
            nullable=False,
            comment="llm, heuristic or hybrid.",
        ),
        sa.Column(
            "source_memory_ids",
            postgresql.ARRAY(sa.Uuid()),
            server_default=sa.text("'{}'::uuid[]"),
            nullable=False,
            comment="Raw memories it was made from (leaves).",
        ),
        sa.Column(
            "source_count",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Number of raw memories it was made from.",
        ),
        sa.Column(
            "reuse_count",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="How often it was returned, its sources' uses included.",
        ),
        sa.Column(
            "last_accessed_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When it was last returned to an agent.",
        ),
        sa.Column(
            "importance",
            sa.Double(),
            server_default=sa.text("0.5"),
            nullable=False,
            comment="Highest importance of its sources.",
        ),
        sa.Column("success", sa.Boolean(), nullable=True, comment="True when any source succeeded."),
        sa.Column(
            "pinned",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="Pinned memories are never archived.",
        ),
        sa.Column("relevance_score", sa.Double(), nullable=True, comment="Output of decay; never its input."),
        sa.Column(
            "relevance_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="Instant for which relevance_score was computed.",
        ),
        sa.Column("cluster_key", sa.Text(), nullable=True, comment="Group it was made from."),
        sa.Column("user_id", sa.Text(), nullable=True, comment="Person a procedural profile or summary is about."),
        sa.Column(
            "content_hash",
            sa.Text(),
            nullable=False,
            comment="SHA-256 of the text that is embedded; nothing is embedded twice.",
        ),
        sa.Column(
            "normalized_hash",
            sa.Text(),
            nullable=False,
            comment="SHA-256 of the normalised text; equal for exact repeats.",
        ),
        sa.Column(
            "embedding",
            VECTOR(),
            nullable=True,
            comment="L2-normalised vector; no fixed dimension, so several models coexist.",
        ),
        sa.Column(
            "embedding_model",
            sa.Text(),
            nullable=True,
            comment="Model the vector comes from; vectors are compared within one model only.",
        ),
        sa.Column("embedding_dim", sa.Integer(), nullable=True, comment="Length of the vector."),
        sa.Column(
            "graph_version",
            sa.Integer(),
            nullable=True,
            comment="Calibration under which the neighbours were computed; null = not yet.",
        ),
        sa.Column("superseded_by_id", sa.Uuid(), nullable=True, comment="Newer row that stands in its place."),
        sa.Column(
            "retired_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When it stopped being active; null = active.",
        ),
        sa.Column(
            "learned_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="Earliest learned_at of its sources; age counts from here.",
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was first made.",
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When its content last changed.",
        ),
        sa.Column(
            "language",
            postgresql.REGCONFIG(),
            server_default=sa.text("'english'::regconfig"),
            nullable=False,
            comment="Text search configuration of the row's language.",
        ),
        sa.Column(
            "version",
            sa.Integer(),
            server_default=sa.text("1"),
            nullable=False,
            comment="Row version: higher with every ledgered change; a rollback restores it.",
        ),
        sa.Column(
            "content_tsv",
            postgresql.TSVECTOR(),
            sa.Computed("to_tsvector(language, left(coalesce(content, ''), 200000))", persisted=True),
            nullable=True,
            comment="Full text in the row's language.",
        ),
        sa.CheckConstraint(
            "abstraction_level = CASE kind WHEN 'merged' THEN 1 WHEN 'pattern' THEN 2 WHEN 'summary' THEN 2 ELSE 3 END",
            name=op.f("consolidated_memories_abstraction_level_check"),
        ),
        sa.CheckConstraint(
            "consolidation_method IN ('llm', 'heuristic', 'hybrid')",
            name=op.f("consolidated_memories_consolidation_method_check"),
        ),
        sa.CheckConstraint(
            "kind IN ('merged', 'pattern', 'summary', 'principle', 'procedural')",
            name=op.f("consolidated_memories_kind_check"),
        ),
        sa.CheckConstraint(
            "memory_type IN ('error_fix', 'discovery', 'decision', 'learning', 'warning', 'codebase_knowledge', 'bugfix', 'feature', 'refactor', 'change')",
            name=op.f("consolidated_memories_memory_type_check"),
        ),
        sa.CheckConstraint(
            "pattern_type IN ('success', 'failure', 'decision', 'workflow', 'gotcha')",
            name=op.f("consolidated_memories_pattern_type_check"),
        ),
        sa.CheckConstraint(
            "confidence_score BETWEEN 0 AND 1", name=op.f("consolidated_memories_confidence_score_check")
        ),
        sa.CheckConstraint("llm_confidence BETWEEN 0 AND 1", name=op.f("consolidated_memories_llm_confidence_check")),
        sa.CheckConstraint(
            "num_nonnulls(embedding, embedding_model, embedding_dim) IN (0, 3)",
            name=op.f("consolidated_memories_embedding_check"),
        ),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("consolidated_memories_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["superseded_by_id"],
            ["consolidation.consolidated_memories.id"],
            name=op.f("consolidated_memories_superseded_by_id_fkey"),
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("consolidated_memories_pkey")),
        schema="consolidation",
        comment="Derived knowledge: merged memories, patterns, summaries, principles and profiles.",
    )
    op.create_index(
        "consolidated_memories_active_idx",
        "consolidated_memories",
        ["project_id", "kind"],
        unique=False,
        schema="consolidation",
        postgresql_where=sa.text("retired_at IS NULL"),
    )
    op.create_index(
        "consolidated_memories_cluster_key_idx",
        "consolidated_memories",
        ["project_id", "cluster_key"],
        unique=False,
        schema="consolidation",
    )
    op.create_index(
        "consolidated_memories_content_tsv_idx",
        "consolidated_memories",
        ["content_tsv"],
        unique=False,
        schema="consolidation",
        postgresql_using="gin",
    )
    op.create_index(
        "consolidated_memories_embedded_content_idx",
        "consolidated_memories",
        ["embedding_model", "content_hash"],
        unique=False,
        schema="consolidation",
    )
    op.create_index(
        "consolidated_memories_procedural_key",
        "consolidated_memories",
        ["project_id", sa.literal_column("coalesce(user_id, '')")],
        unique=True,
        schema="consolidation",
        postgresql_where=sa.text("kind = 'procedural' AND retired_at IS NULL"),
    )
    op.create_index(
        "consolidated_memories_source_memory_ids_idx",
        "consolidated_memories",
        ["source_memory_ids"],
        unique=False,
        schema="consolidation",
        postgresql_using="gin",
    )
    op.create_index(
        "consolidated_memories_superseded_by_id_idx",
        "consolidated_memories",
        ["superseded_by_id"],
        unique=False,
        schema="consolidation",
    )
    op.create_table(
        "consolidation_jobs",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False, comment="Job id."),
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column(
            "status",
            sa.Text(),
            server_default=sa.text("'pending'"),
            nullable=False,
            comment="pending, running, completed, failed or cancelled.",
        ),
        sa.Column("trigger_type", sa.Text(), nullable=False, comment="scheduled, manual or threshold."),
        sa.Column(
            "options",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
            comment="Effective configuration, a snapshot.",
        ),
        sa.Column(
            "scope",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
            comment="What the run is limited to.",
        ),
        sa.Column(
            "phases_completed",
            postgresql.ARRAY(sa.Text()),
            server_default=sa.text("'{}'::text[]"),
            nullable=False,
            comment="Phases done, in order.",
        ),
        sa.Column(
            "phases_failed",
            postgresql.ARRAY(sa.Text()),
            server_default=sa.text("'{}'::text[]"),
            nullable=False,
            comment="Phases that failed.",
        ),
        sa.Column(
            "progress",
            sa.Double(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Share of the planned phases that is done, 0 to 1.",
        ),
        sa.Column(
            "metrics",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
            comment="Numbers of the run, per phase and in all.",
        ),
        sa.Column(
            "memories_merged",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Source memories absorbed.",
        ),
        sa.Column(
            "clusters_merged", sa.Integer(), server_default=sa.text("0"), nullable=False, comment="Groups merged."
        ),
        sa.Column(
            "memories_archived", sa.Integer(), server_default=sa.text("0"), nullable=False, comment="Memories archived."
        ),
        sa.Column(
            "memories_promoted",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Entries promoted to the playbook.",
        ),
        sa.Column(
            "summaries_created", sa.Integer(), server_default=sa.text("0"), nullable=False, comment="Summaries made."
        ),
        sa.Column("dagster_run_id", sa.Text(), nullable=True, comment="Run that executes the job."),
        sa.Column(
            "retry_count",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Attempts after the first.",
        ),
        sa.Column(
            "max_retries",
            sa.Integer(),
            server_default=sa.text("3"),
            nullable=False,
            comment="Attempts allowed after the first.",
        ),
        sa.Column("error_message", sa.Text(), nullable=True, comment="Why it failed."),
        sa.Column(
            "triggered_by",
            sa.Text(),
            server_default=sa.text("'system'"),
            nullable=False,
            comment="Person, sensor or schedule.",
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was asked for.",
        ),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True, comment="When it began to run."),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True, comment="When it ended, whatever way."),
        sa.Column("duration_seconds", sa.Double(), nullable=True, comment="From start to end."),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'completed', 'failed', 'cancelled')",
            name=op.f("consolidation_jobs_status_check"),
        ),
        sa.CheckConstraint(
            "trigger_type IN ('scheduled', 'manual', 'threshold')", name=op.f("consolidation_jobs_trigger_type_check")
        ),
        sa.CheckConstraint("progress BETWEEN 0 AND 1", name=op.f("consolidation_jobs_progress_check")),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("consolidation_jobs_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("consolidation_jobs_pkey")),
        schema="consolidation",
        comment="One row per run and project.",
    )
    op.create_index(
        "consolidation_jobs_dagster_run_id_idx",
        "consolidation_jobs",
        ["dagster_run_id"],
        unique=False,
        schema="consolidation",
    )
    op.create_index(
        "consolidation_jobs_live_key",
        "consolidation_jobs",
        ["project_id"],
        unique=True,
        schema="consolidation",
        postgresql_where=sa.text("status IN ('pending', 'running')"),
    )
    op.create_index(
        "consolidation_jobs_project_id_created_at_idx",
        "consolidation_jobs",
        ["project_id", "created_at"],
        unique=False,
        schema="consolidation",
    )
    op.create_table(
        "consolidation_suggestions",
        sa.Column(
            "id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False, comment="Suggestion id."
        ),
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("group_id", sa.Text(), nullable=False, comment="Cluster key of the group it proposes to merge."),
        sa.Column(
            "status",
            sa.Text(),
            server_default=sa.text("'pending'"),
            nullable=False,
            comment="pending, validated, rejected, superseded or expired.",
        ),
        sa.Column("suggested_content", sa.Text(), nullable=False, comment="Proposed text."),
        sa.Column("suggested_lessons_learned", sa.Text(), nullable=True, comment="Proposed lessons."),
        sa.Column(
            "suggested_keywords",
            postgresql.ARRAY(sa.Text()),
            server_default=sa.text("'{}'::text[]"),
            nullable=False,
            comment="Proposed labels.",
        ),
        sa.Column("original_memory_ids", postgresql.ARRAY(sa.Uuid()), nullable=False, comment="What would be merged."),
        sa.Column(
            "original_versions",
            postgresql.ARRAY(sa.Integer()),
            nullable=False,
            comment="Row versions the proposal saw, in the same order.",
        ),
        sa.Column("similarity", sa.REAL(), nullable=True, comment="Lowest cosine in the group."),
        sa.Column("rationale", sa.Text(), nullable=True, comment="Why it is proposed and what conflicts."),
        sa.Column("fingerprint", sa.Text(), nullable=False, comment="Hash of the originals and their versions."),
        sa.Column("reviewed_by", sa.Text(), nullable=True, comment="Who decided."),
        sa.Column("reviewed_at", sa.DateTime(timezone=True), nullable=True, comment="When."),
        sa.Column("review_note", sa.Text(), nullable=True, comment="What they said."),
        sa.Column("result_memory_id", sa.Uuid(), nullable=True, comment="Merged memory made on approval."),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was proposed.",
        ),
        sa.Column(
            "version",
            sa.Integer(),
            server_default=sa.text("1"),
            nullable=False,
            comment="Row version: higher with every ledgered change; a rollback restores it.",
        ),
        sa.CheckConstraint(
            "status IN ('pending', 'validated', 'rejected', 'superseded', 'expired')",
            name=op.f("consolidation_suggestions_status_check"),
        ),
        sa.CheckConstraint(
            "cardinality(original_memory_ids) = cardinality(original_versions)",
            name=op.f("consolidation_suggestions_versions_check"),
        ),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("consolidation_suggestions_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("consolidation_suggestions_pkey")),
        sa.UniqueConstraint("fingerprint", name=op.f("consolidation_suggestions_fingerprint_key")),
        schema="consolidation",
        comment="Proposed merges that wait for a person.",
    )
    op.create_index(
        "consolidation_suggestions_project_id_idx",
        "consolidation_suggestions",
        ["project_id", "status"],
        unique=False,
        schema="consolidation",
    )
    op.create_table(
        "memory_clusters",
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("tier", sa.Text(), nullable=False, comment="merge, suggest or pattern."),
        sa.Column(
            "cluster_key", sa.Text(), nullable=False, comment="Hash of the sorted member ids and the algorithm version."
        ),
        sa.Column("member_id", sa.Uuid(), nullable=False, comment="Raw or merged memory."),
        sa.Column("member_kind", sa.Text(), nullable=False, comment="raw or merged."),
        sa.Column(
            "similarity_to_representative",
            sa.REAL(),
            nullable=True,
            comment="Cosine with the representative; 1 for the representative.",
        ),
        sa.Column(
            "is_representative",
            sa.Boolean(),
            nullable=False,
            comment="True for the one member that stands for the group.",
        ),
        sa.Column(
            "details",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
            comment="Of the representative: cohesion, and why a pair was vetoed.",
        ),
        sa.Column("job_id", sa.Uuid(), nullable=True, comment="Run that formed the group."),
        sa.CheckConstraint("member_kind IN ('raw', 'merged')", name=op.f("memory_clusters_member_kind_check")),
        sa.CheckConstraint("tier IN ('merge', 'suggest', 'pattern')", name=op.f("memory_clusters_tier_check")),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("memory_clusters_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("project_id", "tier", "cluster_key", "member_id", name=op.f("memory_clusters_pkey")),
        schema="consolidation",
        comment="The groups of the newest run.",
    )
    op.create_table(
        "memory_files",
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("owner_id", sa.Uuid(), nullable=False, comment="Raw or consolidated memory."),
        sa.Column("path", sa.Text(), nullable=False, comment="File the memory is about."),
        sa.ForeignKeyConstraint(
            ["project_id"], ["consolidation.projects.id"], name=op.f("memory_files_project_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("owner_id", "path", name=op.f("memory_files_pkey")),
        schema="consolidation",
        comment="File links of raw and derived memories.",
    )
    op.create_index(
        "memory_files_project_id_path_idx", "memory_files", ["project_id", "path"], unique=False, schema="consolidation"
    )
    op.create_table(
        "memory_lineage",
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("child_id", sa.Uuid(), nullable=False, comment="Derived row."),
        sa.Column("parent_id", sa.Uuid(), nullable=False, comment="What it was made from."),
        sa.Column("parent_kind", sa.Text(), nullable=False, comment="raw or the kind of the consolidated memory."),
        sa.Column("similarity", sa.REAL(), nullable=True, comment="Cosine between child and parent."),
        sa.Column("job_id", sa.Uuid(), nullable=True, comment="Run that drew the edge."),
        sa.CheckConstraint(
            "parent_kind IN ('raw', 'merged', 'pattern', 'summary', 'principle', 'procedural')",
            name=op.f("memory_lineage_parent_kind_check"),
        ),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("memory_lineage_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("child_id", "parent_id", name=op.f("memory_lineage_pkey")),
        schema="consolidation",
        comment="Edges from derived rows to what they were made from.",
    )
    op.create_index(
        "memory_lineage_parent_id_idx", "memory_lineage", ["parent_id"], unique=False, schema="consolidation"
    )
    op.create_table(
        "memory_neighbors",
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("embedding_model", sa.Text(), nullable=False, comment="Model whose vectors were compared."),
        sa.Column("a", sa.Uuid(), nullable=False, comment="Unit with the smaller id."),
        sa.Column("b", sa.Uuid(), nullable=False, comment="Unit with the larger id."),
        sa.Column("similarity", sa.REAL(), nullable=False, comment="Cosine, at least the pattern threshold."),
        sa.CheckConstraint("a < b", name=op.f("memory_neighbors_order_check")),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("memory_neighbors_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("project_id", "embedding_model", "a", "b", name=op.f("memory_neighbors_pkey")),
        schema="consolidation",
        comment="The similarity graph: every pair of units at or above the pattern threshold.",
    )
    op.create_index(
        "memory_neighbors_b_idx",
        "memory_neighbors",
        ["project_id", "embedding_model", "b"],
        unique=False,
        schema="consolidation",
    )
    op.create_table(
        "memory_relations",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False, comment="Relation id."),
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column(
            "a_id",
            sa.Uuid(),
            nullable=False,
            comment="One memory; the explaining one where the relation has a direction.",
        ),
        sa.Column("b_id", sa.Uuid(), nullable=False, comment="The other memory."),
        sa.Column(
            "relation_type",
            sa.Text(),
            nullable=False,
            comment="contradicts, explains, shares_theme or parallel_context.",
        ),
        sa.Column("confidence", sa.Double(), nullable=False, comment="Of the rule that fired."),
        sa.Column("similarity", sa.REAL(), nullable=True, comment="Cosine of the two."),
        sa.Column("reason", sa.Text(), nullable=True, comment="Rule in words."),
        sa.Column(
            "status",
            sa.Text(),
            nullable=False,
            comment="candidate, confirmed or rejected; only confirmed ones count for decay.",
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was found.",
        ),
        sa.Column(
            "version",
            sa.Integer(),
            server_default=sa.text("1"),
            nullable=False,
            comment="Row version: higher with every ledgered change; a rollback restores it.",
        ),
        sa.CheckConstraint(
            "relation_type IN ('contradicts', 'explains', 'shares_theme', 'parallel_context')",
            name=op.f("memory_relations_relation_type_check"),
        ),
        sa.CheckConstraint(
            "status IN ('candidate', 'confirmed', 'rejected')", name=op.f("memory_relations_status_check")
        ),
        sa.CheckConstraint("a_id <> b_id", name=op.f("memory_relations_distinct_check")),
        sa.CheckConstraint("confidence BETWEEN 0 AND 1", name=op.f("memory_relations_confidence_check")),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("memory_relations_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("memory_relations_pkey")),
        schema="consolidation",
        comment="Typed, scored links between two memories.",
    )
    op.create_index("memory_relations_b_id_idx", "memory_relations", ["b_id"], unique=False, schema="consolidation")
    op.create_index(
        "memory_relations_explains_key",
        "memory_relations",
        ["a_id", "b_id"],
        unique=True,
        schema="consolidation",
        postgresql_where=sa.text("relation_type = 'explains'"),
    )
    op.create_index(
        "memory_relations_unordered_key",
        "memory_relations",
        [sa.literal_column("least(a_id, b_id)"), sa.literal_column("greatest(a_id, b_id)"), "relation_type"],
        unique=True,
        schema="consolidation",
        postgresql_where=sa.text("relation_type <> 'explains'"),
    )
    op.create_table(
        "playbook_entries",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False, comment="Entry id."),
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("content", sa.Text(), nullable=False, comment="The instruction."),
        sa.Column(
            "category", sa.Text(), server_default=sa.text("'general'"), nullable=False, comment="Chapter it belongs to."
        ),
        sa.Column(
            "tags",
            postgresql.ARRAY(sa.Text()),
            server_default=sa.text("'{}'::text[]"),
            nullable=False,
            comment="Labels.",
        ),
        sa.Column(
            "priority", sa.Integer(), server_default=sa.text("50"), nullable=False, comment="0 to 100; highest first."
        ),
        sa.Column("confidence", sa.Double(), nullable=True, comment="Confidence of what it was promoted from."),
        sa.Column(
            "supporting_memory_ids",
            postgresql.ARRAY(sa.Uuid()),
            server_default=sa.text("'{}'::uuid[]"),
            nullable=False,
            comment="Evidence.",
        ),
        sa.Column("source_id", sa.Uuid(), nullable=True, comment="Pattern or principle it was promoted from."),
        sa.Column(
            "status",
            sa.Text(),
            server_default=sa.text("'active'"),
            nullable=False,
            comment="active, review or retired.",
        ),
        sa.Column("content_hash", sa.Text(), nullable=False, comment="SHA-256 of the text that is embedded."),
        sa.Column("embedding", VECTOR(), nullable=True, comment="L2-normalised vector."),
        sa.Column("embedding_model", sa.Text(), nullable=True, comment="Model the vector comes from."),
        sa.Column("embedding_dim", sa.Integer(), nullable=True, comment="Length of the vector."),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was promoted.",
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it last changed.",
        ),
        sa.Column(
            "version",
            sa.Integer(),
            server_default=sa.text("1"),
            nullable=False,
            comment="Row version: higher with every ledgered change; a rollback restores it.",
        ),
        sa.CheckConstraint("status IN ('active', 'review', 'retired')", name=op.f("playbook_entries_status_check")),
        sa.CheckConstraint("confidence BETWEEN 0 AND 1", name=op.f("playbook_entries_confidence_check")),
        sa.CheckConstraint("priority BETWEEN 0 AND 100", name=op.f("playbook_entries_priority_check")),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("playbook_entries_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("playbook_entries_pkey")),
        schema="consolidation",
        comment="Instructions for agents.",
    )
    op.create_index(
        "playbook_entries_project_id_idx",
        "playbook_entries",
        ["project_id", "status", "priority"],
        unique=False,
        schema="consolidation",
    )
    op.create_table(
        "similarity_calibrations",
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("embedding_model", sa.Text(), nullable=False, comment="Model the snapshot is for."),
        sa.Column(
            "version",
            sa.Integer(),
            nullable=False,
            comment="Counts up; units remember under which one their neighbours were computed.",
        ),
        sa.Column(
            "center", VECTOR(), nullable=True, comment="Mean vector taken off before grouping; null = plain vectors."
        ),
        sa.Column(
            "boilerplate",
            postgresql.ARRAY(sa.Text()),
            server_default=sa.text("'{}'::text[]"),
            nullable=False,
            comment="Sentences left out before grouping.",
        ),
        sa.Column(
            "thresholds",
            postgresql.JSONB(astext_type=sa.Text()),
            nullable=False,
            comment="t_merge, t_suggest, t_pattern and t_principle in force.",
        ),
        sa.Column(
            "memories",
            sa.Integer(),
            nullable=False,
            comment="Active memories when the snapshot was taken; renewed after growth by half.",
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When the snapshot was taken.",
        ),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("similarity_calibrations_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("project_id", "embedding_model", "version", name=op.f("similarity_calibrations_pkey")),
        schema="consolidation",
        comment="Versioned centre and thresholds per project and model; between renewals the graph grows incrementally.",
    )
    op.create_table(
        "task_memories",
        sa.Column(
            "id",
            sa.Uuid(),
            server_default=sa.text("gen_random_uuid()"),
            nullable=False,
            comment="Memory id, derived from project, source and external id.",
        ),
        sa.Column("project_id", sa.Uuid(), nullable=False, comment="Owner."),
        sa.Column("source", sa.Text(), nullable=False, comment="Where it was imported from."),
        sa.Column("external_id", sa.Text(), nullable=False, comment="Id at the source; import is idempotent on it."),
        sa.Column("task_id", sa.Text(), nullable=True, comment="Task after which it was written."),
        sa.Column("user_id", sa.Text(), nullable=True, comment="Person the agent worked for."),
        sa.Column("agent_id", sa.Text(), nullable=True, comment="Agent that wrote it."),
        sa.Column("session_id", sa.Text(), nullable=True, comment="Session it was written in."),
        sa.Column("memory_type", sa.Text(), nullable=False, comment="One of the ten legal types."),
        sa.Column("goal", sa.Text(), nullable=True, comment="What the task was meant to reach."),
        sa.Column(
            "execution_summary", sa.Text(), nullable=False, comment="What the agent noted: the memory's main text."
        ),
        sa.Column("result", sa.Text(), nullable=True, comment="What came out."),
        sa.Column("feedback", sa.Text(), nullable=True, comment="What people said about it."),
        sa.Column("lessons_learned", sa.Text(), nullable=True, comment="What to do differently."),
        sa.Column(
            "tags",
            postgresql.ARRAY(sa.Text()),
            server_default=sa.text("'{}'::text[]"),
            nullable=False,
            comment="Labels.",
        ),
        sa.Column(
            "tool_usage", postgresql.JSONB(astext_type=sa.Text()), nullable=True, comment="Tools the agent used."
        ),
        sa.Column("error_patterns", postgresql.JSONB(astext_type=sa.Text()), nullable=True, comment="Errors it met."),
        sa.Column(
            "metadata",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
            comment="Whatever else the source gave.",
        ),
        sa.Column("success", sa.Boolean(), nullable=True, comment="Whether the task succeeded; null = not said."),
        sa.Column(
            "importance",
            sa.Double(),
            server_default=sa.text("0.5"),
            nullable=False,
            comment="Input of decay, set by people and agents.",
        ),
        sa.Column(
            "pinned",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="Pinned memories are never archived.",
        ),
        sa.Column("relevance_score", sa.Double(), nullable=True, comment="Output of decay; never its input."),
        sa.Column(
            "relevance_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="Instant for which relevance_score was computed.",
        ),
        sa.Column(
            "reused_count",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="How often it was returned to an agent.",
        ),
        sa.Column(
            "last_accessed_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When it was last returned to an agent.",
        ),
        sa.Column(
            "content_hash",
            sa.Text(),
            nullable=False,
            comment="SHA-256 of the text that is embedded; nothing is embedded twice.",
        ),
        sa.Column(
            "normalized_hash",
            sa.Text(),
            nullable=False,
            comment="SHA-256 of the normalised text; equal for exact repeats.",
        ),
        sa.Column(
            "embedding",
            VECTOR(),
            nullable=True,
            comment="L2-normalised vector; no fixed dimension, so several models coexist.",
        ),
        sa.Column(
            "embedding_model",
            sa.Text(),
            nullable=True,
            comment="Model the vector comes from; vectors are compared within one model only.",
        ),
        sa.Column("embedding_dim", sa.Integer(), nullable=True, comment="Length of the vector."),
        sa.Column(
            "graph_version",
            sa.Integer(),
            nullable=True,
            comment="Calibration under which the neighbours were computed; null = not yet.",
        ),
        sa.Column("consolidated_into_id", sa.Uuid(), nullable=True, comment="Merged memory that stands in its place."),
        sa.Column("summarized_into_id", sa.Uuid(), nullable=True, comment="Summary that covers it."),
        sa.Column(
            "archived_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When it was archived; null = not archived.",
        ),
        sa.Column(
            "archive_reason",
            sa.Text(),
            nullable=True,
            comment="Why it was archived: staleness, forgotten or a person's words.",
        ),
        sa.Column(
            "learned_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When the agent learned it; age counts from here.",
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was stored.",
        ),
        sa.Column(
            "language",
            postgresql.REGCONFIG(),
            server_default=sa.text("'english'::regconfig"),
            nullable=False,
            comment="Text search configuration of the row's language.",
        ),
        sa.Column(
            "version",
            sa.Integer(),
            server_default=sa.text("1"),
            nullable=False,
            comment="Row version: higher with every ledgered change; a rollback restores it.",
        ),
        sa.Column(
            "is_consolidated",
            sa.Boolean(),
            sa.Computed("consolidated_into_id IS NOT NULL", persisted=True),
            nullable=True,
            comment="True = a merged memory stands in its place.",
        ),
        sa.Column(
            "is_archived",
            sa.Boolean(),
            sa.Computed("archived_at IS NOT NULL", persisted=True),
            nullable=True,
            comment="True = archived.",
        ),
        sa.Column(
            "content_tsv",
            postgresql.TSVECTOR(),
            sa.Computed(
                "to_tsvector(language, left(coalesce(goal, '') || ' ' || coalesce(execution_summary, '') || ' ' || coalesce(result, '') || ' ' || coalesce(lessons_learned, '') || ' ' || coalesce(feedback, ''), 200000))",
                persisted=True,
            ),
            nullable=True,
            comment="Full text in the row's language.",
        ),
        sa.CheckConstraint("execution_summary ~ '\\S'", name=op.f("task_memories_execution_summary_check")),
        sa.CheckConstraint("importance >= 0 AND importance < 'Infinity'", name=op.f("task_memories_importance_check")),
        sa.CheckConstraint(
            "memory_type IN ('error_fix', 'discovery', 'decision', 'learning', 'warning', 'codebase_knowledge', 'bugfix', 'feature', 'refactor', 'change')",
            name=op.f("task_memories_memory_type_check"),
        ),
        sa.CheckConstraint(
            "num_nonnulls(embedding, embedding_model, embedding_dim) IN (0, 3)",
            name=op.f("task_memories_embedding_check"),
        ),
        sa.CheckConstraint("reused_count >= 0", name=op.f("task_memories_reused_count_check")),
        sa.ForeignKeyConstraint(
            ["consolidated_into_id"],
            ["consolidation.consolidated_memories.id"],
            name=op.f("task_memories_consolidated_into_id_fkey"),
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["consolidation.projects.id"],
            name=op.f("task_memories_project_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["summarized_into_id"],
            ["consolidation.consolidated_memories.id"],
            name=op.f("task_memories_summarized_into_id_fkey"),
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("task_memories_pkey")),
        sa.UniqueConstraint(
            "project_id", "source", "external_id", name=op.f("task_memories_project_id_source_external_id_key")
        ),
        schema="consolidation",
        comment="Raw memories that agents wrote; content is immutable.",
    )
    op.create_index(
        "task_memories_active_idx",
        "task_memories",
        ["project_id"],
        unique=False,
        schema="consolidation",
        postgresql_where=sa.text("NOT is_consolidated AND NOT is_archived"),
    )
    op.create_index(
        "task_memories_consolidated_into_id_idx",
        "task_memories",
        ["consolidated_into_id"],
        unique=False,
        schema="consolidation",
    )
    op.create_index(
        "task_memories_content_tsv_idx",
        "task_memories",
        ["content_tsv"],
        unique=False,
        schema="consolidation",
        postgresql_using="gin",
    )
    op.create_index(
        "task_memories_embedded_content_idx",
        "task_memories",
        ["embedding_model", "content_hash"],
        unique=False,
        schema="consolidation",
    )
    op.create_index(
        "task_memories_summarized_into_id_idx",
        "task_memories",
        ["summarized_into_id"],
        unique=False,
        schema="consolidation",
    )
    for table in ("task_memories", "consolidated_memories"):
        # Decay rewrites one unindexed column of every active row daily: room on the page keeps that off the indexes.
        op.execute(f"ALTER TABLE consolidation.{table} SET (fillfactor = 80)")
    op.execute(LEDGER_IS_APPEND_ONLY)
    op.execute(PLAYBOOK_CHANGES)


def downgrade() -> None:
    op.execute("DROP VIEW consolidation.playbook_changes")
    for table in TABLES:
        op.execute(f"DROP TABLE consolidation.{table} CASCADE")
    op.execute("DROP FUNCTION consolidation.refuse_ledger_change()")
