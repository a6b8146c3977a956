"""Writers of the texts of patterns and principles: a language model, or the units' own sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date
from functools import cached_property, partial
from itertools import islice
from operator import attrgetter
from typing import Literal
from uuid import UUID

from consolidation_pipeline.core.chunks import split_chunks
from consolidation_pipeline.core.knowledge.confidence import heuristic_confidence, weigh_agreement
from consolidation_pipeline.core.knowledge.disputes import find_disputes, list_overruled, list_statements
from consolidation_pipeline.core.knowledge.pattern_layout import Sightings
from consolidation_pipeline.core.knowledge.pattern_units import ExtractedPattern, Unit, sort_units
from consolidation_pipeline.core.knowledge.quality_gates import Verdict
from consolidation_pipeline.core.knowledge.sentence_ranking import count_background
from consolidation_pipeline.core.text.boilerplate import strip_boilerplate
from consolidation_pipeline.core.text.key_terms import find_key_terms
from consolidation_pipeline.embed.local import is_near
from consolidation_pipeline.errors import BudgetExhaustedError, LLMError
from consolidation_pipeline.llm.gateway import Answer
from consolidation_pipeline.llm.prompt import Prompt
from consolidation_pipeline.llm.prompts.abstraction import AbstractionReply, find_problems
from consolidation_pipeline.service.knowledge import llm_gateway
from consolidation_pipeline.service.knowledge.replaced_sentences import read_day
from consolidation_pipeline.service.runs.code_version import describe_code
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.runs.worker_processes import compute_in_order
from consolidation_pipeline.store.knowledge.abstractions import Origin, UnitRow, load_origins
from consolidation_pipeline.store.knowledge.compared_sentences import load_compared_sentences

# Most and fewest extracted texts that are written in one transaction, and the number of these up to the most. While one
# part is written, processes extract the next.
EXTRACT_BATCH, _FEWEST_EXTRACTED, _PARTS = 1000, 50, 4
# Units in a prompt. With ``MAX_TEXT_CHARS`` each, these are about 12,000 tokens at most.
MAX_PROMPT_UNITS = 40


@dataclass(frozen=True)
class AbstractionKind:
    """Rules by which patterns or principles are made.

    ``unit_name``: plural name of their units. ``prompt``: builds a prompt from texts, their languages and days.
    ``judge``: gate on the model's confidence. ``extract``: ``extract_patterns`` or ``extract_principles``.
    ``needs_review``: an extracted text waits for a person.
    """

    name: Literal["pattern", "principle"]
    unit_name: str
    prompt: Callable[[Sequence[str], Sequence[str], Sequence[date | None]], Prompt]
    reply: type[AbstractionReply]
    judge: Callable[[float], Verdict]
    extract: Callable[..., Iterator[ExtractedPattern]]
    needs_review: bool


@dataclass(frozen=True)
class Group:
    """A group with its units, the representative first, then by similarity to it.

    ``cohesion``: mean cosine of the units. ``row_id``: row that its text is written to. ``relations``: those that
    replaced something in its memories.
    """

    cluster_key: str
    units: tuple[UnitRow, ...]
    cohesion: float | None
    row_id: UUID | None = None
    relations: frozenset[UUID] = frozenset()

    @cached_property
    def shown_units(self) -> tuple[UnitRow, ...]:
        """Units that a model is shown: the first ones that say something."""
        return tuple(unit for unit in self.units if unit.text.strip())[:MAX_PROMPT_UNITS]

    @cached_property
    def raw_ids(self) -> list[UUID]:
        """Distinct ids of the raw memories behind the units, ascending."""
        # Sorted as numbers, as comparing UUID objects is slow.
        return sorted({raw_id for unit in self.units for raw_id in unit.raw_ids}, key=attrgetter("int"))


@dataclass(frozen=True, kw_only=True)
class DraftText:
    """The text of a pattern or principle before it is stored.

    ``evidence``: (unit id, quote). ``confidence``: in [0, 1], not yet weighed by the evidence. ``llm_confidence``:
    the model's own, None for an extracted text. ``seen``: how often and when an extracted text was seen.
    ``is_pending``: the model is to be asked again. ``compared``: as of ``ExtractedPattern``.
    """

    content: str
    pattern_type: str | None
    summary: str
    best_practices: Sequence[str]
    gotchas: Sequence[str]
    key_terms: Sequence[str]
    evidence: Sequence[tuple[UUID, str]]
    confidence: float
    needs_review: bool
    llm_confidence: float | None = None
    title: str = ""
    seen: str = ""
    is_pending: bool = False
    compared: bytes = b""


@dataclass(frozen=True)
class GroupDraft:
    """The text of a group; None if it failed the gate, or with an ``error`` if the call failed.

    The gate: a model's confidence, or without a model that most units are on what the text tells.
    """

    group: Group
    text: DraftText | None
    error: str | None = None


def write_texts(
    run: ProjectRun, kind: AbstractionKind, context: Sequence[Group], wanted: Sequence[Group]
) -> Iterator[list[GroupDraft]]:
    """Yield the texts of the ``wanted`` groups in batches, from the project's model or, without one, extracted.

    Args:
        context: a sample of the groups, in which terms that are rare are told from others.
        wanted: the groups to write.

    Raises:
        BudgetExhaustedError, ModelUnavailableError: the model is not asked again; raised after the replies so far.
    """
    write = extract_texts if run.options.llm_model is None else ask_for_texts
    return write(run, kind, context, wanted)


def ask_for_texts(
    run: ProjectRun, kind: AbstractionKind, context: Sequence[Group], wanted: Sequence[Group]
) -> Iterator[list[GroupDraft]]:
    """Write the texts with the language model; see ``write_texts``."""
    gateway = llm_gateway.open_gateway(run)
    background = count_background([_list_texts(group) for group in context], boilerplate=run.boilerplate)
    for batch in split_chunks(wanted, size=llm_gateway.BATCH):
        terms = find_key_terms([_list_texts(group) for group in batch], background=background)
        prompts = [build_prompt(run, kind, group) for group in batch]
        answers = gateway.ask_many(prompts, kind.reply, check=partial(find_problems, is_near=is_near))
        yield [
            _read_answer(kind, group, prompt, answer, found)
            for group, prompt, answer, found in zip(batch, prompts, answers, terms, strict=True)
            if not isinstance(answer, llm_gateway.STOP_ERRORS)
        ]
        for answer in answers:
            if isinstance(answer, llm_gateway.STOP_ERRORS):
                raise answer


def _list_texts(group: Group) -> list[str]:
    return [unit.text for unit in group.units]


def build_prompt(run: ProjectRun, kind: AbstractionKind, group: Group) -> Prompt:
    """Return the prompt with the ``shown_units`` of a group, shortened and without boilerplate."""
    units, boilerplate = group.shown_units, run.boilerplate
    texts = [llm_gateway.truncate_text(strip_boilerplate(unit.text, boilerplate)) for unit in units]
    return kind.prompt(texts, [unit.language for unit in units], [read_day(unit) for unit in units])


def _read_answer(
    kind: AbstractionKind,
    group: Group,
    prompt: Prompt,
    answer: Answer[AbstractionReply] | LLMError | BudgetExhaustedError,
    terms: Sequence[str],
) -> GroupDraft:
    if not isinstance(answer, Answer):
        return GroupDraft(group, None, str(answer))
    reply = answer.value
    verdict = kind.judge(reply.confidence)
    if verdict is Verdict.DISCARD:
        return GroupDraft(group, None)
    text = DraftText(
        content=reply.statement.strip(),
        pattern_type=reply.pattern_type,
        summary=reply.summary.strip(),
        best_practices=reply.best_practices,
        gotchas=reply.gotchas,
        key_terms=terms,
        evidence=[(group.shown_units[item.unit - 1].id, item.quote) for item in reply.evidence],
        confidence=weigh_agreement(reply.confidence, len(prompt.sources), _count_overruled(prompt)),
        needs_review=verdict is Verdict.REVIEW,
        llm_confidence=reply.confidence,
    )
    return GroupDraft(group, text)


def _count_overruled(prompt: Prompt) -> int:
    """Return the number of units of a prompt that contradict others and are not the newest."""
    statements = list_statements(prompt.sources, prompt.days)
    return len(list_overruled(statements, find_disputes(statements)))


def extract_texts(
    run: ProjectRun, kind: AbstractionKind, context: Sequence[Group], wanted: Sequence[Group]
) -> Iterator[list[GroupDraft]]:
    """Write the texts with sentences of the units; see ``write_texts``."""
    with run.reading() as connection:
        origins = load_origins(connection, {raw_id for group in wanted for raw_id in group.raw_ids})
        row_ids = [group.row_id for group in wanted if group.row_id is not None]
        known = load_compared_sentences(connection, run.project.id, row_ids, describe_code()["digest"])
    sightings = [_count_sightings(kind, group, origins) for group in wanted]
    compute = partial(compute_in_order, memories=sum(len(group.units) for group in wanted))
    found = kind.extract(
        list(map(_to_units, wanted)),
        boilerplate=run.boilerplate,
        context=list(map(_to_units, context)),
        sightings=sightings,
        compared=[b"" if group.row_id is None else known.get(group.row_id, b"") for group in wanted],
        compute=compute,
    )
    size = min(EXTRACT_BATCH, max(_FEWEST_EXTRACTED, -(-len(wanted) // _PARTS)))
    for batch in split_chunks(wanted, size=size):
        yield [
            GroupDraft(group, _to_draft(kind, group, extracted) if extracted.is_shared else None)
            for group, extracted in zip(batch, islice(found, len(batch)), strict=True)
        ]


def mark_pending(batches: Iterable[list[GroupDraft]]) -> Iterator[list[GroupDraft]]:
    """Yield extracted texts marked so that the next run asks the model for them."""
    for batch in batches:
        yield [replace(draft, text=draft.text and replace(draft.text, is_pending=True)) for draft in batch]


def _count_sightings(kind: AbstractionKind, group: Group, origins: Mapping[UUID, Origin]) -> Sightings:
    """Return how often, in how many sessions and when the memories behind a group were learned.

    Most memories behind a principle say something of its patterns only, so its patterns are counted.
    """
    known = [origins[raw_id] for raw_id in group.raw_ids if raw_id in origins]
    sessions = {origin.session_id for origin in known}
    days = [origin.learned_at.astimezone(UTC).date() for origin in known]
    return Sightings(
        count=len(group.raw_ids),
        # Some without a session: the number of sessions is not known.
        sessions=None if None in sessions or not sessions else len(sessions),
        first=min(days, default=None),
        last=max(days, default=None),
        patterns=len(group.units) if kind.name == "principle" else None,
    )


def _to_units(group: Group) -> list[Unit]:
    """Return the units as extraction takes them, weighted by their numbers of raw memories."""
    return [
        Unit(
            id=str(row.id),
            text=row.text,
            memory_type=row.memory_type,
            success=row.success,
            weight=float(max(1, len(row.raw_ids))),
            pattern_type=row.pattern_type,
            title=row.title or "",
            day=read_day(row),
        )
        for row in group.units
    ]


def _to_draft(kind: AbstractionKind, group: Group, extracted: ExtractedPattern) -> DraftText:
    # Evidence numbers the units in this order, from 1.
    numbered = sort_units(_to_units(group))
    return DraftText(
        content=extracted.content,
        pattern_type=extracted.pattern_type,
        title=extracted.title,
        seen=extracted.seen,
        summary=extracted.summary,
        best_practices=extracted.best_practices,
        gotchas=extracted.gotchas,
        key_terms=extracted.key_terms,
        evidence=[(UUID(numbered[found.unit - 1].id), found.quote) for found in extracted.evidence],
        confidence=weigh_agreement(
            heuristic_confidence(group.cohesion, extracted.support), len(group.units), extracted.overruled
        ),
        needs_review=kind.needs_review,
        compared=extracted.compared,
    )
