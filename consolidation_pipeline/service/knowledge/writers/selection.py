"""The two kinds of abstraction, and who words them: their own units' sentences, or a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from consolidation_pipeline.core.knowledge.extractive_patterns import extract_patterns, extract_principles
from consolidation_pipeline.core.knowledge.quality_gates import judge_pattern, judge_principle
from consolidation_pipeline.llm.prompts.pattern import PatternReply, pattern_prompt
from consolidation_pipeline.llm.prompts.principle import PrincipleReply, principle_prompt
from consolidation_pipeline.service.knowledge.derive import Author, Group, Outcome, PlannedAbstraction
from consolidation_pipeline.service.knowledge.writers.extractive import Extractor, extract_outcomes
from consolidation_pipeline.service.knowledge.writers.llm import Question, ask_outcomes
from consolidation_pipeline.service.runs.project_run import ProjectRun


@dataclass(frozen=True)
class Kind:
    """A kind of abstraction: what a model is asked, and how it is extracted without one.

    ``needs_review``: what is extracted waits for a person.
    """

    name: Literal["pattern", "principle"]
    question: Question
    extract: Extractor
    needs_review: bool


PATTERN = Kind("pattern", Question(pattern_prompt, PatternReply, judge_pattern), extract_patterns, needs_review=False)
PRINCIPLE = Kind(
    "principle", Question(principle_prompt, PrincipleReply, judge_principle), extract_principles, needs_review=True
)


def author_of(run: ProjectRun, kind: Kind) -> Author:
    """Who words the groups of a run: the project's model, or without one their most central sentences."""

    def author(groups: Sequence[Group], plans: Sequence[PlannedAbstraction]) -> Iterator[Sequence[Outcome]]:
        if run.options.llm_model is not None:
            return ask_outcomes(run, groups, plans, kind.question)
        return extract_outcomes(
            groups, plans, kind.extract, boilerplate=run.boilerplate, needs_review=kind.needs_review
        )

    return author
