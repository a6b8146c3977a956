"""A plan as an agent reads it: all counts, the first of each sort."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consolidation_pipeline.mcp.output_schemas import (
    BlockedMerge,
    PlanAnswer,
    PlannedArchive,
    PlannedKnowledge,
    PlannedMerge,
)

if TYPE_CHECKING:
    from consolidation_pipeline.service.plan.plan_document import MergeGroup, Plan, Question

# Enough to see what a memory is about; the whole plan may hold every text of the project.
_TEXT = 1000


def summarize_plan(plan: Plan, limit: int) -> PlanAnswer:
    """The plan with at most ``limit`` items of each sort and their texts cut."""
    costs = plan.costs
    surest = sorted(plan.knowledge, key=lambda item: -(item.confidence or 0.0))
    return PlanAnswer(
        project=plan.project,
        as_of=plan.as_of,
        memories=plan.memories,
        totals=plan.count_totals(),
        merges=[_summarize_merge(merge) for merge in plan.merges[:limit]],
        left_to_a_person=[_summarize_question(question) for question in plan.questions[:limit]],
        knowledge=[PlannedKnowledge.model_validate(item) for item in surest[:limit]],
        archives=[PlannedArchive.model_validate(item) for item in plan.archives[:limit]],
        archives_held_back=plan.held_back,
        cost_usd=costs.cost_usd,
        tokens=costs.embedding_tokens + costs.completion_tokens,
        model_calls=costs.completion_calls,
    )


def _summarize_merge(merge: MergeGroup) -> PlannedMerge:
    return PlannedMerge(
        action=merge.action,
        reason=merge.reason,
        lowest_similarity=merge.lowest_similarity,
        sources={source.id: _cut(source.text) for source in merge.sources},
        text=_cut(merge.text),
    )


def _summarize_question(question: Question) -> BlockedMerge:
    return BlockedMerge(
        texts={id_: _cut(text) for id_, text in question.texts.items()},
        reasons=[f"{'; '.join(veto['conflicts'])} (similarity {veto['similarity']:.2f})" for veto in question.vetoes],
    )


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[:_TEXT]} ... ({len(text):,} characters)"
