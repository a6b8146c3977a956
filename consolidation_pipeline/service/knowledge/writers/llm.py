"""Patterns and principles in the words of a model: one call per group, checked, gated and within the budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from consolidation_pipeline.core.jobs.spending import Bill
from consolidation_pipeline.core.knowledge.quality_gates import Verdict
from consolidation_pipeline.core.text.boilerplate import strip_boilerplate
from consolidation_pipeline.core.text.key_terms import key_terms
from consolidation_pipeline.errors import BudgetExhaustedError, LLMError, ModelUnavailableError
from consolidation_pipeline.llm.gateway import Answer, Gateway
from consolidation_pipeline.llm.prompt import Prompt
from consolidation_pipeline.llm.prompts.abstraction import AbstractionReply, find_problems
from consolidation_pipeline.service.knowledge.derive import DraftText, Group, Outcome, PlannedAbstraction
from consolidation_pipeline.service.runs.model_access import open_ledger
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.jobs.llm_calls import load_replies
from consolidation_pipeline.store.knowledge.abstractions import UnitRow

# Groups asked about at once, and written together: a run that is killed asks for no more than these from the cache.
BATCH = 16
# The most similar units of a group, and the beginning of each: about 12,000 tokens at most, whatever the group's size.
MOST_UNITS = 40
MOST_CHARS = 1200

Ask = Callable[[Sequence[str], Sequence[str]], Prompt]


@dataclass(frozen=True)
class Question:
    """What a kind of abstraction asks: its prompt, the form of its reply, and what becomes of a confidence."""

    prompt: Ask
    reply: type[AbstractionReply]
    judge: Callable[[float], Verdict]


def ask_outcomes(
    run: ProjectRun,
    groups: Sequence[Group],
    plans: Sequence[PlannedAbstraction],
    question: Question,
) -> Iterator[list[Outcome]]:
    """What the model says about each planned group, in batches; a group without a usable reply has its error.

    Raises:
        BudgetExhaustedError, ModelUnavailableError: no more can be asked; after the answers so far were given out.
    """
    gateway = open_gateway(run)
    texts, context = [[unit.text for unit in group.units] for group in groups], [one.is_context for one in groups]
    found = key_terms(texts, context=context)
    terms = {group.cluster_key: one for group, one in zip(groups, found, strict=True)}
    for start in range(0, len(plans), BATCH):
        batch = plans[start : start + BATCH]
        prompts = [build_prompt(run, plan.group, question) for plan in batch]
        answers = gateway.ask_many(prompts, question.reply, check=find_problems)
        told = list(zip(batch, answers, strict=True))
        yield [
            _outcome(plan, answer, question, terms[plan.group.cluster_key])
            for plan, answer in told
            if not isinstance(answer, BudgetExhaustedError | ModelUnavailableError)
        ]
        for answer in answers:
            if isinstance(answer, BudgetExhaustedError | ModelUnavailableError):
                raise answer


def open_gateway(run: ProjectRun) -> Gateway:
    """The project's model, for one phase of the run, within the project's budgets."""
    ledger = open_ledger(run.engine, run.project, run.options, run.job_id)
    return Gateway(run.options.llm_model or "", ledger)


def _shown(group: Group) -> tuple[UnitRow, ...]:
    return group.units[:MOST_UNITS]


def price_prompts(
    connection: Connection, run: ProjectRun, prompts: Sequence[Prompt], reply: type[BaseModel]
) -> list[Bill]:
    """The most that each call would be billed that these prompts take; what was answered before takes none."""
    priced = open_gateway(run).price(prompts, reply) if prompts else {}
    answered = load_replies(connection, run.project.id, run.job_id, list(priced))
    return [bill for key, bill in priced.items() if key not in answered]


def build_prompt(run: ProjectRun, group: Group, question: Question) -> Prompt:
    """What is asked about a group: its most similar units, without boilerplate, the beginning of each."""
    units = _shown(group)
    boilerplate = run.boilerplate
    texts = [beginning(strip_boilerplate(unit.text, boilerplate)) for unit in units]
    return question.prompt(texts, [unit.language for unit in units])


def beginning(text: str) -> str:
    """At most ``MOST_CHARS`` of a text, cut at a blank where it has one."""
    if len(text) <= MOST_CHARS:
        return text
    return text[:MOST_CHARS].rsplit(maxsplit=1)[0]


def _outcome(
    plan: PlannedAbstraction,
    answer: Answer[AbstractionReply] | LLMError | BudgetExhaustedError,
    question: Question,
    terms: Sequence[str],
) -> Outcome:
    if not isinstance(answer, Answer):
        return Outcome(plan, None, str(answer))
    verdict = question.judge(answer.value.confidence)
    said = None if verdict is Verdict.DISCARD else _said(plan.group, answer.value, verdict, terms)
    return Outcome(plan, said)


def _said(group: Group, reply: AbstractionReply, verdict: Verdict, terms: Sequence[str]) -> DraftText:
    units = _shown(group)
    return DraftText(
        content=reply.statement.strip(),
        pattern_type=reply.pattern_type,
        summary=reply.summary.strip(),
        best_practices=reply.best_practices,
        gotchas=reply.gotchas,
        key_terms=terms,
        evidence=[(units[item.unit - 1].id, item.quote) for item in reply.evidence],
        confidence=reply.confidence,
        needs_review=verdict is Verdict.REVIEW,
        llm_confidence=reply.confidence,
    )
