"""Vectors of all memories in the project's embedding model."""

import dagster as dg

from consolidation_pipeline.defs.asset_checks import Check, project_checks
from consolidation_pipeline.defs.asset_metadata import describe_table
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.resources import ProjectRuns
from consolidation_pipeline.defs.task_memories import task_memories
from consolidation_pipeline.service.similarity.embedding import embed_memories
from consolidation_pipeline.store.admin.invariants import find_denormalized, find_mixed_models, find_unembedded


@dg.asset(
    partitions_def=projects,
    deps=[task_memories],
    group_name="similarity",
    kinds={"python", "postgres"},
    owners=["team:memory"],
    code_version="1",
    metadata=describe_table("task_memories"),
)
def embedding_matrix(
    context: dg.AssetExecutionContext, project_runs: dg.ResourceParam[ProjectRuns]
) -> dg.MaterializeResult[None]:
    """One vector per memory in the project's embedding model; nothing is embedded twice."""
    run = project_runs.open(context.partition_key)
    with run.phase("embedding_matrix") as phase:
        done = embed_memories(run)
        phase.metrics = {
            "memories_in": done.memories,
            "memories_embedded": done.computed,
            "embeddings_reused": done.reused,
        }
    return dg.MaterializeResult(metadata={**phase.metrics, "embedding_model": run.embedder.name})


embedding_matrix_checks = project_checks(
    embedding_matrix,
    Check(
        "every_memory_is_embedded",
        find_unembedded,
        "Every memory that is not archived has a vector.",
    ),
    Check(
        "vectors_are_normalized",
        find_denormalized,
        "Every vector has length 1, so that a dot product is a cosine.",
    ),
    Check(
        "one_embedding_model",
        find_mixed_models,
        "All vectors of the project come from one model.",
        blocking=False,
    ),
)
