"""Reason of an empty playbook: entries that wait for a person, or the gates that its candidates did not pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from consolidation_pipeline.core.knowledge.playbook import REQUIRED_EVIDENCE
from consolidation_pipeline.core.knowledge.quality_gates import Gate
from consolidation_pipeline.options import parse_options
from consolidation_pipeline.service.playbook.judgement import PromotionRules, find_candidate_gate, lowest_confidence
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.knowledge.playbook import Candidate, load_candidates
from consolidation_pipeline.store.projects import Project

_GATES = {
    Gate.EVIDENCE: f"fewer than {REQUIRED_EVIDENCE} memories behind it",
    Gate.CONFIDENCE: "too little confidence",
    Gate.ADVICE: "no advice in it",
    Gate.CONTRADICTION: "sentences that contradict each other",
}
# The further down, the nearer a candidate came.
_ORDER = (Gate.EVIDENCE, Gate.CONFIDENCE, Gate.ADVICE, Gate.CONTRADICTION)


def explain_empty(connection: Connection, project: Project, waiting: int) -> str:
    """Return why a project has no active entry. ``waiting``: number of its entries that wait for a person."""
    options = parse_options(project.config)
    if waiting:
        noun = "1 entry waits" if waiting == 1 else f"{waiting} entries wait"
        return f"{noun} for approval: consolidation review list {project.slug} --kind playbook"
    if not options.promote:
        return "the option promote is off, so no run proposes entries"
    candidates = load_candidates(connection, project.id, None, scope=options.scope)
    if not candidates:
        return "there are no patterns or principles yet, of which entries are made: runs find them in like memories"
    return _explain_gates(candidates, PromotionRules.of(options))


def _explain_gates(candidates: Sequence[Candidate], rules: PromotionRules) -> str:
    judged = [(candidate, find_candidate_gate(candidate, rules)) for candidate in candidates]
    failed = [(candidate, gate) for candidate, gate in judged if gate is not None]
    passed = len(judged) - len(failed)
    noun = "1 candidate" if len(candidates) == 1 else f"{len(candidates)} candidates"
    if not failed:
        return f"all of {noun} passed the gates: the next run proposes them, unless their entries were dismissed"
    counts = Counter(gate for _, gate in failed)
    parts = [f"{counts[gate]} with {_GATES[gate]}" for gate in _ORDER if counts[gate]]
    if passed:
        parts.append(f"{passed} passed, and their entries were dismissed or come with the next run")
    best, gate = max(
        failed,
        key=lambda one: (_ORDER.index(one[1]), one[0].confidence or 0.0, len(one[0].raw_ids), one[0].id),
    )
    has = "none" if best.confidence is None else f"{best.confidence:.2f}"
    return (
        f"none of {noun} reached the gate: {', '.join(parts)}. The best has {_GATES[gate]}: {best.kind} {best.id}, "
        f"confidence {has} ({lowest_confidence(best, rules):.2f} is required), {len(best.raw_ids)} memories "
        f"({REQUIRED_EVIDENCE} are required)"
    )
