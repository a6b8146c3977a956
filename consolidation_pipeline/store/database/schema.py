"""Tables of the schema ``consolidation``, with a comment on each column. Migrations create them."""

from __future__ import annotations

from typing import Any

from pgvector.sqlalchemy import VECTOR
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    Date,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, REAL, REGCONFIG, TSVECTOR

from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.core.memories.relation_types import RELATION_STATUSES, RELATION_TYPES

SCHEMA = "consolidation"

metadata = MetaData(
    schema=SCHEMA,
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
    },
)

KINDS = ("merged", "pattern", "summary", "principle", "procedural")
PATTERN_TYPES = ("success", "failure", "decision", "workflow", "gotcha")
METHODS = ("llm", "heuristic", "hybrid")
TIERS = ("merge", "suggest", "pattern")
JOB_STATUSES = ("pending", "running", "completed", "failed", "cancelled")
LIVE_JOB_STATUSES = ("pending", "running")
ENTRY_STATUSES = ("active", "review", "retired")
SUGGESTION_STATUSES = ("pending", "validated", "rejected", "kept", "superseded", "expired")
TRIGGER_TYPES = ("scheduled", "manual", "threshold")
# Tables of raw and of consolidated memories.
MEMORY_TABLES = ("task_memories", "consolidated_memories")
OPERATIONS = (
    "merge",
    "summarize",
    "pattern",
    "principle",
    "promote",
    "archive",
    "restore",
    "associate",
    "edit",
    "review",
    "rollback",
    "retention",
    "erase",
)

_NOW = text("now()")
_EMPTY_OBJECT = text("'{}'::jsonb")
_EMPTY_TEXTS = text("'{}'::text[]")
_EMPTY_UUIDS = text("'{}'::uuid[]")


def _column(name: str, kind: Any, comment: str, *args: Any, **kwargs: Any) -> Column[Any]:
    return Column(name, kind, *args, comment=comment, **{"nullable": False, **kwargs})


def _optional(name: str, kind: Any, comment: str, *args: Any, **kwargs: Any) -> Column[Any]:
    return Column(name, kind, *args, comment=comment, **kwargs)


def _id(comment: str) -> Column[Any]:
    return _column("id", Uuid, comment, primary_key=True, server_default=text("gen_random_uuid()"))


def _project() -> Column[Any]:
    return _column("project_id", Uuid, "Owner.", ForeignKey(f"{SCHEMA}.projects.id", ondelete="CASCADE"))


def _time(name: str, comment: str) -> Column[Any]:
    return _column(name, DateTime(timezone=True), comment, server_default=_NOW)


def _optional_time(name: str, comment: str) -> Column[Any]:
    return _optional(name, DateTime(timezone=True), comment)


def _one_of(column: str, values: tuple[str, ...]) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=column)


def _unit_interval(column: str) -> CheckConstraint:
    return CheckConstraint(f"{column} BETWEEN 0 AND 1", name=column)


def _version() -> Column[Any]:
    return _column(
        "version",
        Integer,
        "Row version: higher with every ledgered change; a rollback restores it.",
        server_default=text("1"),
    )


def _embedding_columns() -> tuple[Column[Any], ...]:
    return (
        _column("content_hash", Text, "SHA-256 of the text that is embedded; nothing is embedded twice."),
        _column("normalized_hash", Text, "SHA-256 of the normalised text; equal for exact repeats."),
        _optional("embedding", VECTOR(), "L2-normalised vector; no fixed dimension, so several models coexist."),
        _optional("embedding_model", Text, "Model the vector comes from; vectors are compared within one model only."),
        _optional("embedding_dim", Integer, "Length of the vector."),
    )


def _text_search(*columns: str) -> Column[Any]:
    document = " || ' ' || ".join(f"coalesce({column}, '')" for column in columns)
    # A tsvector holds at most 1 MB; the first 200,000 characters stay below that in every script.
    expression = f"to_tsvector(language, {SCHEMA}.split_scripts(left({document}, 200000)))"
    return _optional(
        "content_tsv", TSVECTOR(), "Full text in the row's language.", Computed(expression, persisted=True)
    )


def describe_columns(table: str) -> list[tuple[str, str, str]]:
    """Return name, Postgres type and comment of each column of a table."""
    columns = metadata.tables[f"{SCHEMA}.{table}"].columns
    return [(c.name, c.type.compile(postgresql.dialect()).lower(), c.comment or "") for c in columns]  # type: ignore[no-untyped-call]


_LANGUAGE = "Text search configuration of the row's language."

projects = Table(
    "projects",
    metadata,
    _id("Project id."),
    _column("slug", Text, "Partition key; what people type.", unique=True),
    _column("consolidation_enabled", Boolean, "False = no run touches the project.", server_default=text("true")),
    _column("config", JSONB, "Options that differ from the defaults.", server_default=_EMPTY_OBJECT),
    _time("created_at", "When the project was created."),
    _time("updated_at", "When the configuration last changed."),
    CheckConstraint("slug ~ '^[a-z0-9][a-z0-9._-]{0,62}$'", name="slug"),
    comment="Owners of memories; each is a Dagster partition.",
)

task_memories = Table(
    "task_memories",
    metadata,
    _id("Memory id, derived from project, source and external id."),
    _project(),
    _column("source", Text, "Where it was imported from."),
    _column("external_id", Text, "Id at the source; import is idempotent on it."),
    _optional("task_id", Text, "Task after which it was written."),
    _optional("user_id", Text, "Person the agent worked for."),
    _optional("agent_id", Text, "Agent that wrote it."),
    _optional("session_id", Text, "Session it was written in."),
    _optional(
        "writer",
        Text,
        "Agent that wrote it: key:ID of its key, or local; null = an import or an operator, whose fields are trusted.",
    ),
    _column("memory_type", Text, "One of the ten legal types."),
    _optional("goal", Text, "What the task was meant to reach."),
    _column("execution_summary", Text, "What the agent noted: the memory's main text."),
    _optional("result", Text, "What came out."),
    _optional("feedback", Text, "What people said about it."),
    _optional("lessons_learned", Text, "What to do differently."),
    _column("tags", ARRAY(Text), "Labels.", server_default=_EMPTY_TEXTS),
    _optional("tool_usage", JSONB, "Tools the agent used."),
    _optional("error_patterns", JSONB, "Errors it met."),
    _column("metadata", JSONB, "Whatever else the source gave.", server_default=_EMPTY_OBJECT),
    _optional("success", Boolean, "Whether the task succeeded; null = not said."),
    _column("importance", Double, "Input of decay, set by people and agents.", server_default=text("0.5")),
    _column("pinned", Boolean, "Pinned memories are never archived.", server_default=text("false")),
    _column("reused_count", Integer, "How often it was returned to an agent.", server_default=text("0")),
    _optional_time("last_accessed_at", "When it was last returned to an agent."),
    *_embedding_columns(),
    _optional(
        "consolidated_into_id",
        Uuid,
        "Merged memory that stands in its place.",
        ForeignKey(f"{SCHEMA}.consolidated_memories.id", deferrable=True, initially="DEFERRED"),
    ),
    _optional_time("archived_at", "When it was archived; null = not archived."),
    _optional("archive_reason", Text, "Why it was archived: staleness, forgotten or a person's words."),
    _time("learned_at", "When the agent learned it; age counts from here, or from the import."),
    _time("created_at", "When it was stored."),
    _column("language", REGCONFIG, _LANGUAGE, server_default=text("'english'::regconfig")),
    _version(),
    _optional(
        "is_consolidated",
        Boolean,
        "True = a merged memory stands in its place.",
        Computed("consolidated_into_id IS NOT NULL", persisted=True),
    ),
    _optional("is_archived", Boolean, "True = archived.", Computed("archived_at IS NOT NULL", persisted=True)),
    _text_search("goal", "execution_summary", "result", "lessons_learned", "feedback"),
    UniqueConstraint("project_id", "source", "external_id"),
    _one_of("memory_type", MEMORY_TYPES),
    CheckConstraint("num_nonnulls(embedding, embedding_model, embedding_dim) IN (0, 3)", name="embedding"),
    CheckConstraint("importance >= 0 AND importance < 'Infinity'", name="importance"),
    CheckConstraint("reused_count >= 0", name="reused_count"),
    CheckConstraint("execution_summary ~ '\\S'", name="execution_summary"),
    Index("task_memories_active_idx", "project_id", postgresql_where=text("NOT is_consolidated AND NOT is_archived")),
    Index(
        "task_memories_archived_idx",
        "project_id",
        postgresql_where=text("archived_at IS NOT NULL OR archive_reason IS NOT NULL"),
    ),
    Index("task_memories_embedded_content_idx", "content_hash", postgresql_using="hash"),
    Index("task_memories_consolidated_into_id_idx", "consolidated_into_id"),
    Index("task_memories_language_idx", "project_id", "language"),
    comment="Raw memories that agents wrote; no run changes their content, and edits are in the ledger.",
)

consolidated_memories = Table(
    "consolidated_memories",
    metadata,
    _id("Derived from project, kind, sorted source ids and algorithm version."),
    _project(),
    _column("kind", Text, "merged, pattern, summary, principle or procedural."),
    _column("abstraction_level", Integer, "1 merged, 2 pattern or summary, 3 principle or profile."),
    _column("content", Text, "The knowledge itself."),
    _column("memory_type", Text, "Type of the group it stands for."),
    _optional("pattern_type", Text, "success, failure, decision, workflow or gotcha; patterns and principles only."),
    _column("confidence_score", Double, "How sure we are, evidence weighed in.", server_default=text("0.5")),
    _optional("llm_confidence", Double, "What the model itself said."),
    _column(
        "needs_review", Boolean, "True = a person should look before it is promoted.", server_default=text("false")
    ),
    _column("details", JSONB, "summary, best_practices, gotchas, dropped, ...", server_default=_EMPTY_OBJECT),
    _column("tags", ARRAY(Text), "Union of the sources' labels.", server_default=_EMPTY_TEXTS),
    _column("consolidation_method", Text, "llm, heuristic or hybrid.", server_default=text("'heuristic'")),
    _column("source_memory_ids", ARRAY(Uuid), "Raw memories it was made from (leaves).", server_default=_EMPTY_UUIDS),
    _column("source_count", Integer, "Number of raw memories it was made from.", server_default=text("0")),
    _column("reuse_count", Integer, "How often it was returned, its sources' uses included.", server_default=text("0")),
    _optional_time("last_accessed_at", "When it was last returned to an agent."),
    _column("importance", Double, "Highest importance of its sources.", server_default=text("0.5")),
    _optional("success", Boolean, "True when any source succeeded."),
    _column("pinned", Boolean, "Pinned memories are never archived.", server_default=text("false")),
    _optional("cluster_key", Text, "Group it was made from."),
    _optional("user_id", Text, "Person a procedural profile or summary is about."),
    _optional("scope_key", Text, "Scope of all of its raw memories; null = made of any, in a project without walls."),
    *_embedding_columns(),
    _optional(
        "superseded_by_id",
        Uuid,
        "Newer row that stands in its place.",
        ForeignKey(f"{SCHEMA}.consolidated_memories.id", deferrable=True, initially="DEFERRED"),
    ),
    _optional_time("retired_at", "When it stopped being active; null = active."),
    _optional(
        "archive_reason",
        Text,
        "Why it was archived: staleness, forgotten or a person's words; null = active or superseded.",
    ),
    _time("learned_at", "Earliest learned_at of its sources; age counts from here, or from the import."),
    _time("created_at", "When it was first made."),
    _time("updated_at", "When its content last changed."),
    _column("language", REGCONFIG, _LANGUAGE, server_default=text("'english'::regconfig")),
    _version(),
    _text_search("content"),
    _one_of("kind", KINDS),
    _one_of("memory_type", MEMORY_TYPES),
    _one_of("pattern_type", PATTERN_TYPES),
    _one_of("consolidation_method", METHODS),
    _unit_interval("confidence_score"),
    _unit_interval("llm_confidence"),
    CheckConstraint("num_nonnulls(embedding, embedding_model, embedding_dim) IN (0, 3)", name="embedding"),
    CheckConstraint("archive_reason IS NULL OR retired_at IS NOT NULL", name="archive_reason"),
    CheckConstraint(
        "abstraction_level = CASE kind WHEN 'merged' THEN 1 WHEN 'pattern' THEN 2 WHEN 'summary' THEN 2 ELSE 3 END",
        name="abstraction_level",
    ),
    Index("consolidated_memories_active_idx", "project_id", "kind", postgresql_where=text("retired_at IS NULL")),
    Index(
        "consolidated_memories_archived_idx",
        "project_id",
        postgresql_where=text("(retired_at IS NOT NULL AND superseded_by_id IS NULL) OR archive_reason IS NOT NULL"),
    ),
    Index("consolidated_memories_embedded_content_idx", "content_hash", postgresql_using="hash"),
    Index("consolidated_memories_superseded_by_id_idx", "superseded_by_id"),
    Index("consolidated_memories_language_idx", "project_id", "language"),
    Index(
        "consolidated_memories_procedural_key",
        "project_id",
        text("coalesce(user_id, '')"),
        text("coalesce(scope_key, '')"),
        unique=True,
        postgresql_where=text("kind = 'procedural' AND retired_at IS NULL"),
    ),
    comment="Derived knowledge: merged memories, patterns, summaries, principles and profiles.",
)

memory_files = Table(
    "memory_files",
    metadata,
    _project(),
    _column("owner_id", Uuid, "Raw or consolidated memory."),
    _column("path", Text, "File the memory is about."),
    PrimaryKeyConstraint("owner_id", "path"),
    Index("memory_files_project_id_path_idx", "project_id", "path"),
    comment="File links of raw and derived memories.",
)

similarity_calibrations = Table(
    "similarity_calibrations",
    metadata,
    _project(),
    _column("embedding_model", Text, "Model the snapshot is for."),
    _column("version", Integer, "Counts up; units remember under which one their neighbours were computed."),
    _optional("center", VECTOR(), "Mean vector taken off before grouping; null = plain vectors."),
    _column("boilerplate", ARRAY(Text), "Sentences left out before grouping.", server_default=_EMPTY_TEXTS),
    _column("thresholds", JSONB, "t_merge, t_suggest, t_pattern and t_principle in force."),
    _column("memories", Integer, "Active memories when the snapshot was taken; renewed after growth by half."),
    _column("options", JSONB, "Options it was taken under; renewed when they change.", server_default=_EMPTY_OBJECT),
    _column("report", JSONB, "What it was derived from: spread, curve, estimates.", server_default=_EMPTY_OBJECT),
    _time("created_at", "When the snapshot was taken."),
    PrimaryKeyConstraint("project_id", "embedding_model", "version"),
    comment="Versioned centre and thresholds per project and model; between renewals the graph grows incrementally.",
)

grouping_embeddings = Table(
    "grouping_embeddings",
    metadata,
    _project(),
    _column("memory_id", Uuid, "Raw or merged memory whose text holds boilerplate."),
    _column("embedding_model", Text, "Model the vector comes from."),
    _column("text_hash", Text, "SHA-256 of the text without boilerplate; nothing is embedded twice."),
    _column("embedding", VECTOR(), "L2-normalised vector of that text; it takes the plain one's place in grouping."),
    PrimaryKeyConstraint("project_id", "embedding_model", "memory_id"),
    comment="Vectors for grouping of memories that hold boilerplate; search uses the plain ones.",
)

staged_embeddings = Table(
    "staged_embeddings",
    metadata,
    _project(),
    _column("memory_id", Uuid, "Raw or consolidated memory, or playbook entry."),
    _column("entity_type", Text, "Table of that row."),
    _column("content_hash", Text, "SHA-256 of the text that was embedded; the vector counts while the row has it."),
    _column("embedding_model", Text, "Model the vector comes from."),
    _column("embedding_dim", Integer, "Length of the vector."),
    _column("embedding", VECTOR(), "L2-normalised vector."),
    PrimaryKeyConstraint("project_id", "embedding_model", "memory_id"),
    Index("staged_embeddings_content_idx", "content_hash", postgresql_using="hash"),
    comment="Vectors of both models while a project changes its embedding model; search reads them too.",
)

memory_neighbors = Table(
    "memory_neighbors",
    metadata,
    # No foreign key and no second index: they would take as long as all the rest of writing millions of pairs.
    _column("project_id", Uuid, "Owner."),
    _column("embedding_model", Text, "Model whose vectors were compared."),
    _column("memory_id", Uuid, "Raw memory; of two, the one that was compared later."),
    _column("neighbor_ids", ARRAY(Uuid), "Raw memories similar to it; each pair is in one row only."),
    _column("similarities", ARRAY(REAL), "Cosine of each, at least the pattern threshold."),
    _column("verdicts", ARRAY(SmallInteger), "On each: 0 on one topic at most, 1 a person decides, 2 may merge."),
    PrimaryKeyConstraint("project_id", "embedding_model", "memory_id"),
    CheckConstraint(
        "cardinality(similarities) = cardinality(neighbor_ids) AND cardinality(verdicts) = cardinality(neighbor_ids)",
        name="sizes",
    ),
    comment="The similarity graph: the pairs of raw memories at or above the pattern threshold that a group may have; "
    "of exact repeats one stands for all. The view memory_pairs has a row per pair.",
)

compared_memories = Table(
    "compared_memories",
    metadata,
    # Beside the memories, as a row of these is twenty times as wide and would be written anew. No foreign key: checking
    # it would write to the row of the memory too.
    _column("project_id", Uuid, "Owner."),
    _column("memory_id", Uuid, "Raw memory."),
    _column("graph_version", Integer, "Calibration under which its neighbours were computed."),
    _optional("text_keys", LargeBinary, "Hashes of the values and words of its text, by which pairs are screened."),
    _optional("judged_by", Text, "Judge that was asked which older memories it supersedes; null = none."),
    PrimaryKeyConstraint("project_id", "memory_id"),
    comment="Raw memories whose neighbours are complete; any other one is compared by the next run.",
)

relevance_scores = Table(
    "relevance_scores",
    metadata,
    _column("project_id", Uuid, "Owner."),
    _column("memory_id", Uuid, "Raw or consolidated memory."),
    _column("relevance_score", Double, "Output of decay; never its input."),
    _column("relevance_at", DateTime(timezone=True), "Instant for which relevance_score was computed."),
    PrimaryKeyConstraint("project_id", "memory_id"),
    comment="Relevance of memories, computed again every day.",
)

pair_judgements = Table(
    "pair_judgements",
    metadata,
    _project(),
    _column("judge", Text, "Model, and version of its prompt or hash of its files."),
    _column("question_hash", Text, "SHA-256 of the two texts in the order asked."),
    _column("answer", Text, "same, different or unsure."),
    _time("created_at", "When it was given."),
    _one_of("answer", ("same", "different", "unsure")),
    PrimaryKeyConstraint("project_id", "judge", "question_hash"),
    comment="Answers of pair judges, kept so that nothing is asked twice.",
)

supersession_answers = Table(
    "supersession_answers",
    metadata,
    _project(),
    _column("newer_id", Uuid, "Raw memory."),
    _column("older_id", Uuid, "Raw memory of its scope that was learned before it."),
    _column("judge", Text, "Model, and version of its prompt."),
    _column("newer_hash", Text, "Content hash of the newer memory as it was judged."),
    _column("older_hash", Text, "Content hash of the older memory as it was judged."),
    _optional("was", Text, "Sentence of the older memory that no longer holds; null = none."),
    _optional("now", Text, "Sentence of the newer memory that shows it."),
    _time("created_at", "When it was given."),
    CheckConstraint("(was IS NULL) = (now IS NULL)", name="both"),
    PrimaryKeyConstraint("project_id", "newer_id", "older_id"),
    comment="Answers of supersession judges, kept so that nothing is asked twice.",
)

compared_scopes = Table(
    "compared_scopes",
    metadata,
    _project(),
    _column("scope", Text, "Hash of the scope key."),
    _column("memories", Text, "Hash of the dated memories that were compared, and of the version of the program."),
    _column("relations", Text, "Hash of the relations supersedes between them."),
    _optional("code", Text, "Version of the program that compared them."),
    _optional(
        "known_claims",
        LargeBinary,
        "Hashes of the sentences and words of the memories, and which sentences revise which.",
    ),
    PrimaryKeyConstraint("project_id", "scope"),
    comment="Scopes whose memories supersessions has compared; it skips those that have not changed since.",
)

grouped_scopes = Table(
    "grouped_scopes",
    metadata,
    _project(),
    _column("scope", Uuid, "Hash of the scope key."),
    _column("nodes", Text, "Hash of the memories that were grouped, of the options and of the version of the program."),
    PrimaryKeyConstraint("project_id", "scope"),
    comment="Scopes whose groups are complete; clusters skips those that have not changed since.",
)

recall_answers = Table(
    "recall_answers",
    metadata,
    _project(),
    _column("asked_by", Text, "Hash of the version of the program, of the options and of the model."),
    _optional("settled", Text, "Hash of all that the answers follow from; null = the next run asks again."),
    _column("answers", LargeBinary, "Hashes of the refused groups and of the memories that they were compared with."),
    PrimaryKeyConstraint("project_id"),
    comment="Answers of the recall gate; clusters asks again only what new or changed memories may change.",
)

memory_clusters = Table(
    "memory_clusters",
    metadata,
    _project(),
    _column("tier", Text, "merge, suggest or pattern."),
    _column("cluster_key", Text, "Hash of the sorted member ids and the algorithm version."),
    _column("member_id", Uuid, "Raw or merged memory."),
    _column("member_kind", Text, "raw or merged."),
    _optional("similarity_to_representative", REAL, "Cosine with the representative; 1 for the representative."),
    _column("is_representative", Boolean, "True for the one member that stands for the group."),
    _column(
        "details",
        JSONB,
        "Of the representative: cohesion, and the pairs that a person is asked about.",
        server_default=_EMPTY_OBJECT,
    ),
    _optional("job_id", Uuid, "Run that formed the group."),
    PrimaryKeyConstraint("project_id", "tier", "cluster_key", "member_id"),
    _one_of("tier", TIERS),
    CheckConstraint("member_kind IN ('raw', 'merged')", name="member_kind"),
    comment="The groups of the newest run.",
)

discarded_groups = Table(
    "discarded_groups",
    metadata,
    _project(),
    _column("kind", Text, "pattern or principle."),
    _column("cluster_key", Text, "Of the group."),
    _column("units", Text, "Hash of the units that were read, of the model and of the version of the program."),
    PrimaryKeyConstraint("project_id", "kind", "cluster_key"),
    comment="Groups that gave no pattern or principle; they are not read again until one of their units changes.",
)

compared_sentences = Table(
    "compared_sentences",
    metadata,
    _project(),
    _column("memory_id", Uuid, "Pattern or principle."),
    _column("asked_by", Text, "Hash of the version of the program."),
    _column("pairs", LargeBinary, "Hashes of the pairs, and if both say the same."),
    PrimaryKeyConstraint("project_id", "memory_id"),
    comment="Pairs of sentences that were compared for the text of a pattern; its next text does not read them again.",
)

memory_lineage = Table(
    "memory_lineage",
    metadata,
    _project(),
    _column("child_id", Uuid, "Derived row."),
    _column("parent_id", Uuid, "What it was made from."),
    _column("parent_kind", Text, "raw or the kind of the consolidated memory."),
    _optional("similarity", REAL, "Cosine between child and parent."),
    _optional("job_id", Uuid, "Run that drew the edge."),
    PrimaryKeyConstraint("child_id", "parent_id"),
    _one_of("parent_kind", ("raw", *KINDS)),
    Index("memory_lineage_parent_id_idx", "parent_id"),
    comment="Edges from derived rows to what they were made from.",
)

memory_relations = Table(
    "memory_relations",
    metadata,
    _id("Relation id."),
    _project(),
    _column("a_id", Uuid, "One memory; the explaining or newer one where the relation has a direction."),
    _column("b_id", Uuid, "The other memory."),
    _column("relation_type", Text, "contradicts, explains, shares_theme, parallel_context or supersedes."),
    _column("confidence", Double, "Of the rule that fired."),
    _optional("similarity", REAL, "Cosine of the two."),
    _optional("reason", Text, "Rule in words."),
    _column("status", Text, "candidate, confirmed or rejected; only confirmed ones have an effect."),
    _time("created_at", "When it was found."),
    _version(),
    _one_of("relation_type", RELATION_TYPES),
    _one_of("status", RELATION_STATUSES),
    _unit_interval("confidence"),
    CheckConstraint("a_id <> b_id", name="distinct"),
    Index(
        "memory_relations_unordered_key",
        text("least(a_id, b_id)"),
        text("greatest(a_id, b_id)"),
        "relation_type",
        unique=True,
        postgresql_where=text("relation_type <> 'explains'"),
    ),
    Index(
        "memory_relations_explains_key",
        "a_id",
        "b_id",
        unique=True,
        postgresql_where=text("relation_type = 'explains'"),
    ),
    Index("memory_relations_b_id_idx", "b_id"),
    Index("memory_relations_project_id_idx", "project_id"),
    Index("memory_relations_supersedes_idx", "project_id", postgresql_where=text("relation_type = 'supersedes'")),
    comment="Typed, scored links between two memories.",
)

playbook_entries = Table(
    "playbook_entries",
    metadata,
    _id("Entry id."),
    _project(),
    _column("content", Text, "The instruction."),
    _column("category", Text, "Chapter it belongs to.", server_default=text("'general'")),
    _column("tags", ARRAY(Text), "Labels.", server_default=_EMPTY_TEXTS),
    _column("priority", Integer, "0 to 100; highest first.", server_default=text("50")),
    _optional("confidence", Double, "Confidence of what it was promoted from."),
    _column("supporting_memory_ids", ARRAY(Uuid), "Evidence.", server_default=_EMPTY_UUIDS),
    _optional("source_id", Uuid, "Pattern or principle it was promoted from."),
    _column("status", Text, "active, review or retired.", server_default=text("'active'")),
    _column("content_hash", Text, "SHA-256 of the text that is embedded."),
    _optional("embedding", VECTOR(), "L2-normalised vector."),
    _optional("embedding_model", Text, "Model the vector comes from."),
    _optional("embedding_dim", Integer, "Length of the vector."),
    _time("created_at", "When it was promoted."),
    _time("updated_at", "When it last changed."),
    _version(),
    _one_of("status", ENTRY_STATUSES),
    CheckConstraint("priority BETWEEN 0 AND 100", name="priority"),
    _unit_interval("confidence"),
    Index("playbook_entries_project_id_idx", "project_id", "status", "priority"),
    Index("playbook_entries_embedded_content_idx", "content_hash", postgresql_using="hash"),
    Index("playbook_entries_source_id_idx", "source_id"),
    Index("playbook_entries_supporting_memory_ids_idx", "supporting_memory_ids", postgresql_using="gin"),
    comment="Instructions for agents.",
)

consolidation_suggestions = Table(
    "consolidation_suggestions",
    metadata,
    _id("Suggestion id."),
    _project(),
    _column("group_id", Text, "Cluster key of the group it proposes to merge."),
    _column(
        "status", Text, "pending, validated, rejected, kept, superseded or expired.", server_default=text("'pending'")
    ),
    _column("suggested_content", Text, "Proposed text."),
    _optional("suggested_lessons_learned", Text, "Proposed lessons."),
    _column("suggested_keywords", ARRAY(Text), "Proposed labels.", server_default=_EMPTY_TEXTS),
    _column("original_memory_ids", ARRAY(Uuid), "What would be merged."),
    _column("original_versions", ARRAY(Integer), "Row versions the proposal saw, in the same order."),
    _optional("similarity", REAL, "Lowest cosine in the group."),
    _optional("rationale", Text, "Why it is proposed and what conflicts."),
    _column("fingerprint", Text, "Hash of the originals and what they say: one question is asked once."),
    _optional("reviewed_by", Text, "Who decided."),
    _optional_time("reviewed_at", "When."),
    _optional("review_note", Text, "What they said."),
    _optional("result_memory_id", Uuid, "Merged memory made on approval."),
    _optional("worth", REAL, "How much a decision is worth; the highest is asked first."),
    _optional("difference_kinds", ARRAY(Text), "Kinds of differences between the originals, the most frequent first."),
    _optional("method", Text, "How the text was made: llm, heuristic, or hybrid = the model's text was refused."),
    _time("created_at", "When it was proposed."),
    _version(),
    _one_of("status", SUGGESTION_STATUSES),
    _one_of("method", METHODS),
    CheckConstraint("cardinality(original_memory_ids) = cardinality(original_versions)", name="versions"),
    Index("consolidation_suggestions_project_id_idx", "project_id", "status"),
    Index(
        "consolidation_suggestions_fingerprint_key",
        "fingerprint",
        unique=True,
        postgresql_where=text("status <> 'superseded'"),
    ),
    comment="Proposed merges that wait for a person.",
)

# A trigger keeps it (migration 0005), so that whatever makes a suggestion pending, a rollback too, meets the key.
suggestion_originals = Table(
    "suggestion_originals",
    metadata,
    _column("memory_id", Uuid, "Memory that a pending suggestion would merge."),
    _project(),
    _column(
        "suggestion_id",
        Uuid,
        "The suggestion.",
        ForeignKey(f"{SCHEMA}.consolidation_suggestions.id", ondelete="CASCADE"),
    ),
    PrimaryKeyConstraint("memory_id", deferrable=True, initially="DEFERRED"),
    Index("suggestion_originals_suggestion_id_idx", "suggestion_id"),
    Index("suggestion_originals_project_id_idx", "project_id"),
    comment="What pending suggestions would merge: a memory is in one of them at most.",
)

labelled_pairs = Table(
    "labelled_pairs",
    metadata,
    _project(),
    _column(
        "a",
        Uuid,
        "Raw memory with the smaller id.",
        ForeignKey(f"{SCHEMA}.task_memories.id", ondelete="CASCADE"),
    ),
    _column(
        "b",
        Uuid,
        "Raw memory with the larger id.",
        ForeignKey(f"{SCHEMA}.task_memories.id", ondelete="CASCADE"),
    ),
    _optional("same", Boolean, "True = they may become one; null = the person skipped the pair."),
    _column("labelled_by", Text, "Who."),
    _time("labelled_at", "When."),
    PrimaryKeyConstraint("a", "b"),
    CheckConstraint("a < b", name="order"),
    Index("labelled_pairs_b_idx", "b"),
    Index("labelled_pairs_project_id_idx", "project_id"),
    comment="Pairs of memories that a person labelled; calibration measures its errors on them.",
)

MEMORY_TEST_KINDS = ("must_find", "must_not_merge", "must_merge", "must_remember", "must_not_say", "playbook_has")
MEMORY_TEST_SOURCES = ("yaml", "cli", "http", "page")

memory_tests = Table(
    "memory_tests",
    metadata,
    _id("Test id."),
    _project(),
    _column("name", Text, "What people call it; unique in a project."),
    _column("kind", Text, "must_find, must_not_merge, must_merge, must_remember, must_not_say or playbook_has."),
    _column("body", JSONB, "Texts or ids of the test."),
    _column("source", Text, "yaml, cli, http or page: where it came from."),
    _column("enabled", Boolean, "False = it is kept, but not run.", server_default=text("true")),
    _time("created_at", "When it was added or changed."),
    _optional_time("checked_at", "When it was run last."),
    _optional("failure", Text, "Why it failed then; null = it passed. Quotes no memory."),
    UniqueConstraint("project_id", "name"),
    _one_of("kind", MEMORY_TEST_KINDS),
    _one_of("source", MEMORY_TEST_SOURCES),
    comment="What people expect of a project's memories; a run commits nothing that makes one of them fail.",
)

memory_votes = Table(
    "memory_votes",
    metadata,
    _column("memory_id", Uuid, "Memory or playbook entry."),
    _column(
        "voter", Text, "Who used it: an agent's key, whatever session it claims, or the session of a trusted caller."
    ),
    _column("day", Date, "Day, UTC; a voter has one vote a day on a memory."),
    _project(),
    _column("verdict", SmallInteger, "1 = it helped, -1 = it did not."),
    _column("own_share", REAL, "Share of its sources that the voter wrote; these count less."),
    _optional(
        "group_id",
        Uuid,
        "Changes of the feedback in the ledger, which can be undone; null = the memory was reported as used.",
    ),
    _column("query_hash", Text, "Query for which it helped; empty = not said.", server_default=text("''")),
    PrimaryKeyConstraint("memory_id", "voter", "day", "query_hash"),
    CheckConstraint("verdict IN (-1, 1)", name="verdict"),
    _unit_interval("own_share"),
    Index("memory_votes_project_id_day_idx", "project_id", "day"),
    comment="What readers found useful: search and the playbook rank by it.",
)

pending_uses = Table(
    "pending_uses",
    metadata,
    _project(),
    _column("memory_id", Uuid, "Raw or consolidated memory."),
    _column("seq", BigInteger, "Order of the counts.", Identity(always=True)),
    _column("uses", Integer, "How often it was returned to an agent."),
    _time("used_at", "When it was returned."),
    PrimaryKeyConstraint("project_id", "memory_id", "seq"),
    CheckConstraint("uses > 0", name="uses"),
    comment="Uses that searches counted, until a run adds them to the memories.",
)

vote_queries = Table(
    "vote_queries",
    metadata,
    _project(),
    _column("query_hash", Text, "SHA-256 of the query; its text is not stored."),
    _column("embedding_model", Text, "Model the vector comes from."),
    _column("embedding", VECTOR(), "L2-normalised vector of the query."),
    _column("day", Date, "Day of the last vote with it, UTC."),
    PrimaryKeyConstraint("project_id", "query_hash", "embedding_model"),
    comment="Queries for which memories helped.",
)

SOURCE_MODES = ("mirror", "review", "write")
SOURCE_ROW_STATES = ("mirrored", "hidden", "successor", "gone", "refused", "erased")
SOURCE_WRITE_STATUSES = ("intended", "written", "refused", "undone", "gone")

sources = Table(
    "sources",
    metadata,
    _id("Source id."),
    _project(),
    _column("name", Text, "What people type; it is the source of its memories too.", unique=True),
    _column("config", JSONB, "Kind, table and fields of the store, and the variable that holds its URL."),
    _column("mode", Text, "mirror = only read; review = write what a person approves; write = write by itself."),
    _time("created_at", "When the store was connected."),
    _optional_time("synced_at", "When the last sync ended."),
    _column("last_sync", JSONB, "Numbers of the last sync.", server_default=_EMPTY_OBJECT),
    _one_of("mode", SOURCE_MODES),
    comment="Connected stores, where agents keep their memories.",
)

source_rows = Table(
    "source_rows",
    metadata,
    _project(),
    _column("source_id", Uuid, "Store.", ForeignKey(f"{SCHEMA}.sources.id", ondelete="CASCADE")),
    _column("key", Text, "Key of the row in the store; of several columns, a JSON array."),
    _column("memory_id", Uuid, "Raw memory that mirrors it, or merged memory that it was written for."),
    _column("stamp", Text, "SHA-256 of text, scope and metadata, as they were read last."),
    _column(
        "state",
        Text,
        "mirrored; hidden = by our write; successor = our new row; gone = deleted by its program; refused = not legal; "
        "erased = never copied again.",
    ),
    _optional("reason", Text, "Why it was refused."),
    _time("changed_at", "When its program changed it last, as far as the store tells; else when that was seen."),
    PrimaryKeyConstraint("source_id", "key"),
    Index("source_rows_memory_id_idx", "memory_id"),
    _one_of("state", SOURCE_ROW_STATES),
    comment="Rows of connected stores and the memories that mirror them.",
)

source_writes = Table(
    "source_writes",
    metadata,
    _project(),
    _column("id", Uuid, "Id of the write, also in the store's sidecar.", primary_key=True),
    _column("source_id", Uuid, "Store.", ForeignKey(f"{SCHEMA}.sources.id", ondelete="CASCADE")),
    _column("memory_id", Uuid, "Merged memory that was written."),
    _column("version", Integer, "Its version then."),
    _column("status", Text, "intended, written, refused, undone; gone = its program removed or changed it."),
    _column("plan", JSONB, "Kept or new row, hidden rows with their stamps, text."),
    _optional("reason", Text, "Why it was refused."),
    _time("intended_at", "When it was decided."),
    _optional_time("ended_at", "When it was written, refused or undone."),
    Index("source_writes_source_id_status_idx", "source_id", "status"),
    Index("source_writes_memory_id_idx", "memory_id"),
    _one_of("status", SOURCE_WRITE_STATUSES),
    comment="Merged memories written into connected stores.",
)

erased_source_rows = Table(
    "erased_source_rows",
    metadata,
    _project(),
    _column("row_hash", Text, "SHA-256 of project, table and key of a row whose memory was erased."),
    _time("erased_at", "When it was erased."),
    PrimaryKeyConstraint("project_id", "row_hash"),
    comment="Rows of connected stores that no sync copies again, also after the store is connected anew.",
)

consolidation_jobs = Table(
    "consolidation_jobs",
    metadata,
    _id("Job id."),
    _project(),
    _column("status", Text, "pending, running, completed, failed or cancelled.", server_default=text("'pending'")),
    _column("trigger_type", Text, "scheduled, manual or threshold."),
    _column("options", JSONB, "Effective configuration, a snapshot.", server_default=_EMPTY_OBJECT),
    _column("scope", JSONB, "What the run is limited to.", server_default=_EMPTY_OBJECT),
    _column("phases_completed", ARRAY(Text), "Phases done, in order.", server_default=_EMPTY_TEXTS),
    _column("phases_failed", ARRAY(Text), "Phases that failed.", server_default=_EMPTY_TEXTS),
    _column("progress", Double, "Share of the planned phases that is done, 0 to 1.", server_default=text("0")),
    _column("metrics", JSONB, "Numbers of the run, per phase and in all.", server_default=_EMPTY_OBJECT),
    _column("memories_merged", Integer, "Source memories absorbed.", server_default=text("0")),
    _column("clusters_merged", Integer, "Groups merged.", server_default=text("0")),
    _column("memories_archived", Integer, "Memories archived.", server_default=text("0")),
    _column("memories_promoted", Integer, "Entries promoted to the playbook.", server_default=text("0")),
    _column("summaries_created", Integer, "Summaries made.", server_default=text("0")),
    _optional("dagster_run_id", Text, "Run that executes the job."),
    _column(
        "retry_count",
        Integer,
        "Failures of this job in a row, its own included; a success starts anew.",
        server_default=text("0"),
    ),
    _column("max_retries", Integer, "Failures in a row after which sensors leave it alone.", server_default=text("3")),
    _optional("error_message", Text, "Why it failed."),
    _column("triggered_by", Text, "Person, sensor or schedule.", server_default=text("'system'")),
    _time("created_at", "When it was asked for."),
    _optional_time("started_at", "When it began to run."),
    _optional_time("completed_at", "When it ended, whatever way."),
    _optional("duration_seconds", Double, "From start to end."),
    _one_of("status", JOB_STATUSES),
    _one_of("trigger_type", TRIGGER_TYPES),
    CheckConstraint("progress BETWEEN 0 AND 1", name="progress"),
    Index("consolidation_jobs_running_key", "project_id", unique=True, postgresql_where=text("status = 'running'")),
    Index(
        "consolidation_jobs_live_idx",
        "project_id",
        "created_at",
        postgresql_where=text("status IN ('pending', 'running')"),
    ),
    Index("consolidation_jobs_project_id_created_at_idx", "project_id", "created_at"),
    Index("consolidation_jobs_dagster_run_id_idx", "dagster_run_id"),
    Index(
        "consolidation_jobs_failed_idx",
        "project_id",
        "created_at",
        postgresql_where=text("status = 'failed' AND retry_count > 0"),
    ),
    Index("consolidation_jobs_status_idx", "status"),
    comment="One row per run and project.",
)

consolidation_changes = Table(
    "consolidation_changes",
    metadata,
    _column("seq", BigInteger, "Order of the ledger.", Identity(always=True), primary_key=True),
    _column("id", Uuid, "Change id.", unique=True, server_default=text("gen_random_uuid()")),
    _optional("job_id", Uuid, "Run that made the change; null = by hand."),
    _column("project_id", Uuid, "Owner; a plain value, so the ledger outlives it."),
    _column("group_id", Uuid, "Changes that belong together; the smallest thing one would undo."),
    _column("operation", Text, "What was done."),
    _column("entity_type", Text, "Table of the row."),
    _column("entity_id", Uuid, "The row."),
    _optional("previous_state", JSONB, "Before-image of what changed; null = did not exist."),
    _optional("new_state", JSONB, "After-image of what changed; null = does not exist."),
    _optional("version_before", Integer, "Row version before; null = did not exist."),
    _optional("version_after", Integer, "Row version after; null = does not exist."),
    _optional("reason", Text, "Why."),
    _optional("confidence", Double, "How sure the pipeline was."),
    _column("changed_by", Text, "Who: a person, a key or the pipeline.", server_default=text("'system'")),
    _time("changed_at", "When."),
    _optional("reverts_change_id", Uuid, "Change that this one undoes."),
    _optional("reverts_scope", Text, "Of a rollback, what it was asked to undo: group or job."),
    _one_of("operation", OPERATIONS),
    _one_of("reverts_scope", ("group", "job")),
    CheckConstraint("num_nonnulls(previous_state, new_state) > 0", name="images"),
    Index("consolidation_changes_job_id_idx", "job_id"),
    Index("consolidation_changes_group_id_idx", "group_id"),
    Index("consolidation_changes_entity_id_idx", "entity_id", "seq"),
    Index("consolidation_changes_project_id_changed_at_idx", "project_id", "changed_at"),
    Index("consolidation_changes_project_id_seq_idx", "project_id", "seq"),
    Index(
        "consolidation_changes_restored_idx",
        "project_id",
        "changed_at",
        postgresql_where=text("operation = 'restore' OR reverts_scope = 'group'"),
    ),
    Index(
        "consolidation_changes_reverts_change_id_key",
        "reverts_change_id",
        unique=True,
        postgresql_where=text("reverts_change_id IS NOT NULL"),
    ),
    comment="The ledger: one row per entity changed, with the state before and after. Append-only.",
)

llm_calls = Table(
    "llm_calls",
    metadata,
    _id("Call id."),
    _optional("project_id", Uuid, "Owner; a plain value, so spending outlives it."),
    _optional("job_id", Uuid, "Run that made the call."),
    _column("purpose", Text, "What the call was for."),
    _column("model", Text, "litellm model name."),
    _column("prompt_hash", Text, "SHA-256 of model, prompt version and prompt: the reply cache's key."),
    _column("status", Text, "reserved, settled, failed or cached."),
    _column(
        "attempt", Integer, "Counts up at reservation, so a crash loop cannot spend again.", server_default=text("1")
    ),
    _column("prompt_tokens", Integer, "Tokens sent.", server_default=text("0")),
    _column("completion_tokens", Integer, "Tokens received.", server_default=text("0")),
    _column("reserved_usd", Numeric(14, 8), "Cost reserved before the call, US dollars.", server_default=text("0")),
    _optional("cost_usd", Numeric(14, 8), "Cost settled after the call, US dollars."),
    _optional("response", JSONB, "Reply, kept for the cache."),
    _optional("error_message", Text, "Why it failed."),
    _time("created_at", "When it was reserved."),
    _optional_time("settled_at", "When it ended."),
    _one_of("status", ("reserved", "settled", "failed", "cached")),
    Index("llm_calls_prompt_hash_idx", "prompt_hash", "status"),
    Index("llm_calls_job_id_idx", "job_id"),
    Index("llm_calls_created_at_idx", "created_at"),
    Index("llm_calls_project_id_created_at_idx", "project_id", "created_at"),
    comment="Spend ledger and reply cache.",
)

consolidation_events = Table(
    "consolidation_events",
    metadata,
    _id("Event id; receivers use it to drop repeats."),
    _optional("project_id", Uuid, "Owner."),
    _column("type", Text, "consolidation.started, completed, failed, ..."),
    _column("payload", JSONB, "What happened."),
    _time("created_at", "When it was written, in the transaction it describes."),
    _optional_time("delivered_at", "When the receiver took it; null = not yet."),
    _column("attempts", Integer, "Deliveries tried.", server_default=text("0")),
    _optional("last_error", Text, "Why the last delivery failed."),
    Index("consolidation_events_undelivered_idx", "created_at", postgresql_where=text("delivered_at IS NULL")),
    Index("consolidation_events_project_id_created_at_idx", "project_id", "created_at"),
    comment="Transactional outbox.",
)

api_keys = Table(
    "api_keys",
    metadata,
    _id("Key id."),
    _optional(
        "project_id",
        Uuid,
        "Project the key is limited to; null = all.",
        ForeignKey(f"{SCHEMA}.projects.id", ondelete="CASCADE"),
    ),
    _optional("scope_key", Text, "Scope of the project that the key is limited to; null = all."),
    _column("name", Text, "What the key is for."),
    _column("key_hash", Text, "SHA-256 of the key; the key itself is not stored.", unique=True),
    _column("role", Text, "admin, agent or reader."),
    _time("created_at", "When it was made."),
    _optional_time("last_used_at", "When it was last used."),
    _optional_time("revoked_at", "When it was revoked; null = valid."),
    _one_of("role", ("admin", "agent", "reader")),
    comment="Who may call the API.",
)
