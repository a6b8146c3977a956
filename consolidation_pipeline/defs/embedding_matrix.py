"""Asset `embedding_matrix`: vectors of all memories."""

from typing import Any

from consolidation_pipeline.defs.asset_checks import project_checks
from consolidation_pipeline.defs.phase_asset import phase_asset
from consolidation_pipeline.defs.task_memories import task_memories
from consolidation_pipeline.service.runs.project_run import PhaseResult, ProjectRun
from consolidation_pipeline.service.similarity.embedding import embed_memories
from consolidation_pipeline.store.checks.memories import (
    EVERY_MEMORY_IS_EMBEDDED,
    ONE_EMBEDDING_MODEL,
    VECTORS_ARE_NORMALIZED,
)


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
    EVERY_MEMORY_IS_EMBEDDED,
    VECTORS_ARE_NORMALIZED,
    ONE_EMBEDDING_MODEL,
)
