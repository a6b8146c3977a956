"""The phases of jobs, in their order, and the scope of a job: what is to run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from consolidation_pipeline.errors import InvalidScopeError

PHASES = (
    "embedding_matrix",
    "threshold_calibration",
    "similarity_graph",
    "clusters",
    "merged_memories",
    "patterns",
    "principles",
    "playbook_entries",
    "consolidation_suggestions",
    "semantic_summaries",
    "procedural_profile",
    "decay_scores",
    "archived_memories",
    "consolidation_report",
)

# What a job of each name runs, as the ``job`` of a pending job's scope asks for it.
JOB_PHASES: Mapping[str, tuple[str, ...]] = {
    "consolidate": PHASES,
    "decay": ("decay_scores",),
    "associate": ("associations",),
    "forget": ("decay_scores", "archived_memories"),
    "summarize": ("embedding_matrix", "semantic_summaries", "procedural_profile"),
    "reembed": ("embedding_matrix", "threshold_calibration", "similarity_graph", "clusters"),
}
# Phases that word something by a language model, and those that embed, where the project has a model for it.
LLM_PHASES = {"patterns", "principles", "consolidation_suggestions", "semantic_summaries", "procedural_profile"}
EMBEDDING_PHASES = {"embedding_matrix", "threshold_calibration", "merged_memories", "playbook_entries"} | (
    LLM_PHASES - {"consolidation_suggestions"}
)
# In an order that agrees with every job's.
ALL_PHASES = ("associations", *PHASES)


def select_phases(job: str, phases: Iterable[str] | None) -> tuple[str, ...]:
    """The phases of a job that are to run, in their order; None = all. Raises InvalidScopeError."""
    if job not in JOB_PHASES:
        raise InvalidScopeError(f"job {job} does not exist; the jobs are {', '.join(JOB_PHASES)}")
    if phases is None:
        return JOB_PHASES[job]
    chosen = tuple(phases)
    known = JOB_PHASES[job]
    unknown = [name for name in chosen if name not in known]
    if unknown or not chosen:
        wrong = ", ".join(unknown) or "none"
        raise InvalidScopeError(f"phase {wrong} does not exist in job {job}; its phases are {', '.join(known)}")
    return tuple(name for name in known if name in chosen)


def build_scope(job: str, phases: Sequence[str], options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What a pending job of these phases, with ``options`` of its own, has as its scope."""
    some = {} if tuple(phases) == JOB_PHASES[job] else {"phases": list(phases)}
    return {"job": job, **some, **({"options": dict(options)} if options else {})}


def read_scope(scope: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The job and the phases that a scope asks for."""
    job = scope.get("job", "consolidate")
    return job, tuple(scope.get("phases", JOB_PHASES.get(job, ())))
