"""Asset `embedding_matrix`: vectors of all memories."""

from typing import Any

from consolidation_pipeline.defs.asset_checks import Check, project_checks
from consolidation_pipeline.defs.phase_asset import phase_asset
from consolidation_pipeline.defs.task_memories import task_memories
from consolidation_pipeline.service.runs.project_run import PhaseResult, ProjectRun
from consolidation_pipeline.service.similarity.embedding import embed_memories
from consolidation_pipeline.store.admin.invariants import find_mixed_models, find_unembedded, find_unnormalized_vectors


@phase_asset("similarity", table="task_memories", deps=[task_memories])
def embedding_matrix(run: ProjectRun, phase: PhaseResult) -> dict[str, Any]:
    """Compute one vector per memory with the project's embedding model. No text is embedded twice."""
    result = embed_memories(run)
    phase.metrics = {
        "memories_in": result.memories,
        "memories_embedded": result.computed,
        "embeddings_reused": result.reused,
    }
    return {"embedding_model": run.embedder.name}


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
        by_ledger=True,
    ),
    Check(
        "one_embedding_model",
        find_mixed_models,
        "All vectors of the project come from one model.",
        blocking=False,
    ),
)
