"""Patterns (level 2): what three or more distinct units have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from consolidation_pipeline.core.extraction import extract_patterns
from consolidation_pipeline.core.gates import judge_pattern
from consolidation_pipeline.llm.prompts.pattern import PatternReply, pattern_prompt
from consolidation_pipeline.service.abstracting import Formed, Group, Outcome, PlannedAbstraction, form_abstractions
from consolidation_pipeline.service.asking import Question, ask_outcomes
from consolidation_pipeline.service.extracting import extract_outcomes
from consolidation_pipeline.service.runs import ProjectRun
from consolidation_pipeline.store.abstractions import load_units
from consolidation_pipeline.store.graph import Member, load_clusters


def form_patterns(run: ProjectRun) -> Formed:
    """A pattern of every pattern group that none covers yet; a grown group updates its pattern.

    Nothing is made while ``summarize`` is off, and by a run that carries out a plan, which names no patterns.

    Raises:
        ConflictError: a pattern changed meanwhile; what was written before stays.
    """
    if not run.options.summarize or run.plan is not None:
        return Formed()
    groups, changed = load_pattern_groups(run)

    def author(plans: Sequence[PlannedAbstraction]) -> Iterator[Sequence[Outcome]]:
        boilerplate = run.calibration.boilerplate if run.calibration else ()
        if run.options.llm_model is None:
            return extract_outcomes(groups, plans, extract_patterns, boilerplate=boilerplate, needs_review=False)
        question = Question(pattern_prompt, PatternReply, judge_pattern)
        return ask_outcomes(run, groups, plans, question, boilerplate=boilerplate)

    return replace(form_abstractions(run, "pattern", groups, author), changed=changed)


def load_pattern_groups(run: ProjectRun) -> tuple[list[Group], int]:
    """The pattern groups as they were formed, and how many are left out because a unit is not active any more."""
    with run.engine.connect() as connection:
        clusters = load_clusters(connection, run.project.id, "pattern")
        units = load_units(connection, [m.member_id for members in clusters.values() for m in members])
    whole = {key: members for key, members in clusters.items() if all(m.member_id in units for m in members)}
    groups = [
        Group(key, tuple(units[m.member_id] for m in _nearest_first(members)), _cohesion(members))
        for key, members in whole.items()
    ]
    return groups, len(clusters) - len(whole)


def _nearest_first(members: Sequence[Member]) -> list[Member]:
    return sorted(members, key=lambda m: (not m.is_representative, -(m.similarity or 0.0), m.member_id))


def _cohesion(members: Sequence[Member]) -> float | None:
    return next((m.details.get("cohesion_mean") for m in members if m.is_representative), None)
