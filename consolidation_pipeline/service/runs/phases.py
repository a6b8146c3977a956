"""Phases of jobs, in order, and the scope of a job: the phases and options that it runs."""

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
    "supersessions",
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

# Phases of each job, by the job's name.
JOB_PHASES: Mapping[str, tuple[str, ...]] = {
    "consolidate": PHASES,
    "decay": ("decay_scores",),
    "associate": ("associations",),
    "forget": ("decay_scores", "archived_memories"),
    "summarize": ("embedding_matrix", "semantic_summaries", "procedural_profile"),
    "reembed": ("embedding_matrix", "threshold_calibration", "similarity_graph", "clusters"),
}
# Phases that may call a paid language model, and phases that may call a paid embedding model.
LLM_PHASES = {"patterns", "principles", "consolidation_suggestions", "semantic_summaries", "procedural_profile"}
EMBEDDING_PHASES = {"embedding_matrix", "threshold_calibration", "merged_memories", "playbook_entries"} | (
    LLM_PHASES - {"consolidation_suggestions"}
)
# Phases that ask the project's pair judge.
JUDGE_PHASES = {"threshold_calibration", "similarity_graph"}
# In an order that agrees with every job.
ALL_PHASES = ("associations", *PHASES)


def select_phases(job: str, phases: Iterable[str] | None) -> tuple[str, ...]:
    """Return the phases of a job to run, in order. ``phases``: names in any order; None = all.

    Raises:
        InvalidScopeError: There is no such job or phase, or ``phases`` is empty.
    """
    if job not in JOB_PHASES:
        raise InvalidScopeError(f"job {job} does not exist; the jobs are {', '.join(JOB_PHASES)}")
    known = JOB_PHASES[job]
    selected = known if phases is None else tuple(phases)
    unknown = [name for name in selected if name not in known]
    if unknown or not selected:
        wrong = ", ".join(unknown) or "none"
        raise InvalidScopeError(f"phase {wrong} does not exist in job {job}; its phases are {', '.join(known)}")
    return tuple(name for name in known if name in selected)


def build_scope(job: str, phases: Sequence[str], options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the scope of a job: its name, its phases unless it runs all, and its own ``options`` if it has any."""
    part = {} if tuple(phases) == JOB_PHASES[job] else {"phases": list(phases)}
    return {"job": job, **part, **({"options": dict(options)} if options else {})}


def read_scope(scope: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Return the job and the phases of a scope."""
    job = scope.get("job", "consolidate")
    return job, tuple(scope.get("phases", JOB_PHASES.get(job, ())))
