"""Asset `playbook_entries`: instructions that agents read before they start work."""

from dataclasses import asdict
from operator import itemgetter
from typing import Any

from consolidation_pipeline.defs.asset_checks import check_memory_tests, project_checks
from consolidation_pipeline.defs.asset_metadata import build_table
from consolidation_pipeline.defs.phase_asset import phase_asset
from consolidation_pipeline.defs.principles import principles
from consolidation_pipeline.service.knowledge.supersessions import load_current_replacements
from consolidation_pipeline.service.playbook.entries import read_playbook, update_playbook
from consolidation_pipeline.service.runs.project_run import PhaseResult, ProjectRun
from consolidation_pipeline.store.checks.knowledge import (
    EVERY_ENTRY_HAS_EVIDENCE,
    EVIDENCE_IS_OF_THE_PROJECT,
    ONE_ENTRY_PER_SOURCE,
    PRIORITY_FOLLOWS_EVIDENCE,
)

# The UI shows so many entries, without their texts, which Dagster would keep after an erasure. `consolidation playbook`
# shows all.
_MAX_SHOWN = 50
_COLUMNS = {"id": "string", "category": "string", "priority": "int", "evidence": "int"}


@phase_asset("knowledge", table="playbook_entries", deps=[principles])
def playbook_entries(run: ProjectRun, phase: PhaseResult) -> dict[str, Any]:
    """Promote the most confident patterns and principles to instructions for agents. Others wait for a person."""
    result = update_playbook(run, load_current_replacements(run))
    phase.metrics = asdict(result)
    phase.counters = result.counters
    # Without an active one it would tell why, which takes the candidates again.
    found = read_playbook(run.engine, run.project.slug, limit=_MAX_SHOWN)["entries"] if result.entries_active else []
    return (
        {"playbook": build_table(_COLUMNS, [(str(id_), *rest) for id_, *rest in map(itemgetter(*_COLUMNS), found)])}
        if found
        else {}
    )


playbook_entries_checks = project_checks(
    playbook_entries,
    check_memory_tests(),
    EVERY_ENTRY_HAS_EVIDENCE,
    EVIDENCE_IS_OF_THE_PROJECT,
    PRIORITY_FOLLOWS_EVIDENCE,
    ONE_ENTRY_PER_SOURCE,
)
