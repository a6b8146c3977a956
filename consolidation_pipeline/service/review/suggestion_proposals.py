"""Suggestions made: one text for each group that a person decides on, in the words of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from consolidation_pipeline.core.jobs.spending import Bill
from consolidation_pipeline.errors import BudgetExhaustedError, LLMError, ModelUnavailableError
from consolidation_pipeline.llm.gateway import Answer
from consolidation_pipeline.llm.prompts.suggestion import (
    SuggestionReply,
    find_inventions,
    suggestion_prompt,
    trim_reply,
)
from consolidation_pipeline.service.knowledge import llm_gateway
from consolidation_pipeline.service.knowledge.merge_rewrites import MAX_REWRITE_CHARS
from consolidation_pipeline.service.review.suggestion_groups import (
    ProposableGroup,
    SuggestGroup,
    load_suggest_groups,
    load_term_groups,
    select_proposable,
)
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.jobs.event_outbox import append_event
from consolidation_pipeline.store.review import suggestions as store
from consolidation_pipeline.store.similarity.clusters import count_groups

PURPOSE = "suggestion"


@dataclass(frozen=True)
class ProposalResult:
    """What a phase did. ``groups``: that a person is to decide on, ``by_words`` those of them without vectors.

    Of the groups, ``asked_before`` have been proposed as they are, or share a memory with one that waits; ``skipped``
    have too much text for one question, or a member that was merged or archived meanwhile; ``unasked`` were left
    without a text, for there is no model, or a plan is carried out. ``superseded``: suggestions whose originals have
    changed; ``waiting``: those that wait for a person now. ``failures``: cluster key and error; ``stopped``: why it
    ended before its time.
    """

    groups: int = 0
    by_words: int = 0
    created: int = 0
    asked_before: int = 0
    skipped: int = 0
    unasked: int = 0
    superseded: int = 0
    waiting: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    stopped: str | None = None


@dataclass(frozen=True)
class SortedGroups:
    """Groups by what becomes of them: to be asked about, proposed before, not fit to be asked about."""

    due: list[ProposableGroup] = field(default_factory=list)
    asked_before: int = 0
    skipped: int = 0


def propose_merges(run: ProjectRun) -> ProposalResult:
    """A suggestion for each group that a person is to decide on and was not asked about: one call of a model each.

    Without a model there are no suggestions, and the groups are counted: their texts are read only where some of them
    may have been asked about. A group without a usable reply is left to the
    next run.

    Raises:
        ConflictError: another process proposed something for the same memories meanwhile.
    """
    asks = run.options.llm_model is not None and run.plan is None
    with run.transaction() as connection:
        superseded = store.supersede_stale(connection, run.author)
        if asks or any(store.load_proposed(connection, run.project.id)):
            groups = load_suggest_groups(connection, run)
            total, found = len(groups), sort_groups(connection, run, groups)
        else:
            groups = load_term_groups(connection, run)
            total, found = len(groups) + count_groups(connection, run.project.id, "suggest"), SortedGroups()
    created, failures, stopped = _propose(run, found.due) if asks and found.due else (0, (), None)
    run.unfinished = run.unfinished or stopped is not None or bool(failures)
    with run.engine.connect() as connection:
        counts = store.count_suggestions(connection, run.project.id)
    return ProposalResult(
        groups=total,
        by_words=sum(group.by_words for group in groups),
        created=created,
        asked_before=found.asked_before,
        skipped=found.skipped,
        unasked=0 if asks else total - found.asked_before - found.skipped,
        superseded=superseded,
        waiting=counts.get("pending", 0),
        failures=failures,
        stopped=stopped,
    )


def sort_groups(connection: Connection, run: ProjectRun, groups: Sequence[SuggestGroup]) -> SortedGroups:
    """What becomes of each group; of those to be asked about no two share a memory, the more similar one stays."""
    asked, held = store.load_proposed(connection, run.project.id)
    rows = store.load_originals(connection, [id_ for group in groups for id_ in group.members])
    opened = select_proposable(groups, rows)
    due, before, skipped = [], 0, len(groups) - len(opened)
    for one in opened:
        if one.fingerprint in asked or not held.isdisjoint(one.group.members):
            before += 1
        elif one.chars > MAX_REWRITE_CHARS:
            skipped += 1
        else:
            due.append(one)
            held.update(one.group.members)
    return SortedGroups(due, before, skipped)


def price_suggestions(connection: Connection, run: ProjectRun, groups: Sequence[SuggestGroup]) -> list[Bill]:
    """The most that each call would be billed that suggestions for these groups take."""
    if run.options.llm_model is None:
        return []
    prompts = [suggestion_prompt(one.asked) for one in sort_groups(connection, run, groups).due]
    return llm_gateway.price_prompts(connection, run, prompts, SuggestionReply)


def _propose(run: ProjectRun, due: Sequence[ProposableGroup]) -> tuple[int, tuple[tuple[str, str], ...], str | None]:
    """How many suggestions were made, which groups failed, and why it ended before all were asked about."""
    created, failures = 0, list[tuple[str, str]]()
    for batch in _ask(run, due):
        stop = next((said for _, said in batch if isinstance(said, BudgetExhaustedError | ModelUnavailableError)), None)
        worded = [_word(one, said) for one, said in batch if isinstance(said, Answer)]
        _write(run, worded)
        created += len(worded)
        if stop is not None:
            return created, tuple(failures), run.record_stop(PURPOSE, stop)
        failures += [(one.group.cluster_key, str(said)) for one, said in batch if isinstance(said, LLMError)]
    return created, tuple(failures), None


_Said = Answer[SuggestionReply] | LLMError | BudgetExhaustedError


def _ask(run: ProjectRun, due: Sequence[ProposableGroup]) -> Iterator[list[tuple[ProposableGroup, _Said]]]:
    """What the model says of each group, in batches."""
    gateway = llm_gateway.open_gateway(run)
    for start in range(0, len(due), llm_gateway.BATCH):
        batch = due[start : start + llm_gateway.BATCH]
        prompts = [suggestion_prompt(one.asked) for one in batch]
        yield list(zip(batch, gateway.ask_many(prompts, SuggestionReply, check=find_inventions), strict=True))


def _word(one: ProposableGroup, answer: Answer[SuggestionReply]) -> store.NewSuggestion:
    wording = trim_reply(answer.value, one.asked)
    return store.NewSuggestion(
        cluster_key=one.group.cluster_key,
        originals=one.originals,
        fingerprint=one.fingerprint,
        content=wording.content,
        lessons_learned=wording.lessons_learned,
        keywords=wording.keywords,
        similarity=one.group.similarity,
        rationale=one.group.rationale,
    )


def _write(run: ProjectRun, suggestions: Sequence[store.NewSuggestion]) -> None:
    """The suggestions and their events, in one transaction."""
    if not suggestions:
        return
    with run.transaction() as connection:
        ids = store.append_suggestions(connection, run.author, suggestions, now=run.now)
        for id_ in ids:
            payload = {"suggestion_id": str(id_), "job_id": str(run.job_id)}
            append_event(connection, run.project.id, "suggestion.created", payload)
