"""Asset `embedding_matrix`: vectors of all memories."""

import dagster as dg

from consolidation_pipeline.defs.asset_checks import Check, project_checks
from consolidation_pipeline.defs.asset_metadata import describe_table
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.resources import ProjectRuns
from consolidation_pipeline.defs.task_memories import task_memories
from consolidation_pipeline.service.similarity.embedding import embed_memories
from consolidation_pipeline.store.admin.invariants import find_mixed_models, find_unembedded, find_unnormalized_vectors


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
    """Compute one vector per memory with the project's embedding model. No text is embedded twice."""
    run = project_runs.open(context.partition_key)
    with run.phase("embedding_matrix") as phase:
        result = embed_memories(run)
        phase.metrics = {
            "memories_in": result.memories,
            "memories_embedded": result.computed,
            "embeddings_reused": result.reused,
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
        find_unnormalized_vectors,
        "Every vector has length 1, so that the dot product of two is their cosine.",
    ),
    Check(
        "one_embedding_model",
        find_mixed_models,
        "All vectors of the project come from one model.",
        blocking=False,
    ),
)
