"""Supersession judge: the project's language model is asked which older memories a newer one makes outdated."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np

from consolidation_pipeline.core.chunks import split_by_scope, split_chunks
from consolidation_pipeline.core.jobs.spending import Bill
from consolidation_pipeline.core.knowledge.claim_table import KnownClaims, join_tables
from consolidation_pipeline.core.knowledge.supersession import Supersession
from consolidation_pipeline.core.knowledge.supersession_candidates import CandidateMemories, list_candidates
from consolidation_pipeline.core.knowledge.supersession_search import DatedMemory, FoundSupersession, drop_indirect
from consolidation_pipeline.core.vectors import find_positions
from consolidation_pipeline.errors import LLMError
from consolidation_pipeline.llm.gateway import Answer
from consolidation_pipeline.llm.prompt import Prompt
from consolidation_pipeline.llm.prompts import supersession as prompts
from consolidation_pipeline.llm.prompts.supersession import Case, SupersessionReply
from consolidation_pipeline.options import ConsolidationOptions, check_judge
from consolidation_pipeline.service.knowledge.llm_gateway import BATCH, STOP_ERRORS, open_gateway, price_prompts
from consolidation_pipeline.service.runs.code_version import describe_code
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.similarity.graph_nodes import load_grouping_vectors
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import Vectors, to_ids
from consolidation_pipeline.store.knowledge.supersession_answers import (
    SupersessionAnswer,
    list_unjudged,
    load_answered,
    load_outdated,
    mark_judged,
    store_answers,
)
from consolidation_pipeline.store.knowledge.supersessions import load_dated_memories, load_known_claims
from consolidation_pipeline.store.memories.memories import load_texts
from consolidation_pipeline.store.similarity.similarity_graph import Nodes, load_nodes

# Purpose of the calls, for messages and events.
PURPOSE = "supersession"
# Newer memories that a run asks about, those learned last first: a few minutes of a language model.
MAX_MEMORIES = 400
# Older memories that are judged with a newer one. Measured: docs/quality.md.
MAX_OLDER = 5
# Cases and characters of one prompt.
_PROMPT_CASES, _PROMPT_CHARS = 8, 24_000
# Longest text that the model judges: a cut text would hide what it says.
_MAX_TEXT_CHARS = 4_000


@dataclass
class JudgedSupersessions:
    """Result of asking the supersession judge.

    ``asked``: pairs of memories with a new answer. ``waiting``: newer memories that are left to the next run.
    ``failed``: messages of requests without a usable reply. ``stopped``: why the judge was not asked on.
    """

    asked: int = 0
    waiting: int = 0
    failed: list[str] = field(default_factory=list)
    stopped: str | None = None

    @property
    def metrics(self) -> dict[str, Any]:
        """Numbers of the phase."""
        return {
            "judge_answers": self.asked,
            "judge_waiting": self.waiting,
            **({"judge_failures": self.failed} if self.failed else {}),
            **({"judge_stopped": self.stopped} if self.stopped else {}),
        }


@dataclass(frozen=True)
class _Question:
    """A newer memory, the older ones to judge it with, and their texts."""

    newer: DatedMemory
    older: Sequence[DatedMemory]
    case: Case


@dataclass(frozen=True)
class _Questions:
    """Questions ``asked`` about the memories ``asking``, of which some have none. ``waiting``: others after them."""

    asking: Sequence[UUID] = ()
    asked: Sequence[_Question] = ()
    waiting: int = 0


def name_judge(options: ConsolidationOptions) -> str | None:
    """Return the name of the project's supersession judge; None if it has none.

    Raises:
        InvalidOptionError: The judge is the language model, and the project has none.
    """
    if options.supersession_judge == "none":
        return None
    check_judge("supersession_judge", options)
    return f"llm {options.llm_model}, prompt {prompts.VERSION}"


def judge_supersessions(run: ProjectRun, known: Mapping[str, bytes]) -> JudgedSupersessions | None:
    """Ask the project's judge about memories that it was not asked about yet, and store its answers.

    None without a judge. Answers are stored batch by batch, so a run that is
    cut off goes on from there.

    Args:
        known: Claims of the scopes that this run has compared, see ``find_supersessions``.
    """
    judge = name_judge(run.options)
    if judge is None:
        return None
    with run.reading() as connection:
        questions = _list_questions(connection, run, judge, known)
    judged = JudgedSupersessions()
    open_ = _ask(run, judge, questions.asked, judged) if questions.asked else []
    # A memory is asked about as an older one too, if it came late.
    open_ids = {one.id for question in open_ for one in (question.newer, *question.older)}
    if done := [id_ for id_ in questions.asking if id_ not in open_ids]:
        with run.transaction() as connection:
            mark_judged(connection, run.project.id, judge, done)
    judged.waiting = questions.waiting + len(open_)
    run.unfinished = run.unfinished or judged.waiting > 0
    return judged


def _ask(run: ProjectRun, judge: str, questions: Sequence[_Question], judged: JudgedSupersessions) -> list[_Question]:
    """Ask the judge, store its answers batch by batch, and count them in ``judged``; return what has no answer."""
    gateway = open_gateway(run)
    part_of = {_make_prompt(part): part for part in _split_prompts(questions)}
    open_ = dict(part_of)

    def check(prompt: Prompt, reply: SupersessionReply) -> list[str]:
        return prompts.find_problems([one.case for one in part_of[prompt]], reply)

    for batch in split_chunks([*part_of], size=BATCH):
        outcomes = gateway.ask_many(batch, SupersessionReply, check=check)
        replies = {one: out.value for one, out in zip(batch, outcomes, strict=True) if isinstance(out, Answer)}
        answers = [answer for prompt, reply in replies.items() for answer in _read_answers(open_.pop(prompt), reply)]
        with run.transaction() as connection:
            store_answers(connection, run.project.id, judge, answers)
        judged.asked += len(answers)
        judged.failed += [str(one) for one in outcomes if isinstance(one, LLMError)]
        if (stop := next((one for one in outcomes if isinstance(one, STOP_ERRORS)), None)) is not None:
            judged.stopped = run.record_stop(PURPOSE, stop)
            break
    return [question for part in open_.values() for question in part]


def price_supersessions(run: ProjectRun, nodes: Nodes, vectors: Vectors) -> list[Bill]:
    """Return the highest possible bill of each request that a run would send now.

    Args:
        nodes: All nodes of the project.
        vectors: Their centred grouping vectors (n, d).
    """
    judge = name_judge(run.options)
    if judge is None:
        return []
    with run.reading() as connection:
        questions = _list_questions(connection, run, judge, {}, vectors_of=(nodes, vectors))
    return price_prompts(run, [_make_prompt(part) for part in _split_prompts(questions.asked)], SupersessionReply)


def load_judged(run: ProjectRun, connection: Connection) -> Iterator[FoundSupersession]:
    """Yield the supersessions that follow from all answers that were given so far; a person decides on each.

    Of several versions, each supersedes the one before.
    """
    links = {
        (one.newer_id, one.older_id): Supersession("candidate", "language model", one.was, one.now)
        for one in load_outdated(connection, run.project.id, scope=run.options.scope)
    }
    for newer, older in drop_indirect(links):
        yield FoundSupersession(newer, older, links[newer, older])


def _read_answers(questions: Sequence[_Question], reply: SupersessionReply) -> Iterator[SupersessionAnswer]:
    found = prompts.read_outdated([one.case for one in questions], reply)
    for question, outdated in zip(questions, found, strict=True):
        for at, older in enumerate(question.older):
            was, now = outdated.get(at, (None, None))
            newer = question.newer
            yield SupersessionAnswer(newer.id, older.id, newer.content_hash, older.content_hash, was, now)


def _make_prompt(questions: Sequence[_Question]) -> Prompt:
    return prompts.supersession_prompt([one.case for one in questions])


def _split_prompts(questions: Sequence[_Question]) -> Iterator[list[_Question]]:
    """Yield the questions of each prompt, which are of one scope.

    Else a memory of one user that gives orders could change the answer about those of another.
    """
    ordered = sorted(questions, key=lambda one: one.newer.scope)
    sizes = [len(one.case.newer) + sum(map(len, one.case.older)) for one in ordered]
    parts = split_by_scope([one.newer.scope for one in ordered], sizes, most=_PROMPT_CASES, max_size=_PROMPT_CHARS)
    for part in parts:
        yield [ordered[at] for at in part]


def _list_questions(
    connection: Connection,
    run: ProjectRun,
    judge: str,
    known: Mapping[str, bytes],
    *,
    vectors_of: tuple[Nodes, Vectors] | None = None,
) -> _Questions:
    """Return what ``judge`` is to be asked.

    ``known``: claims of scopes, instead of the stored ones. ``vectors_of``: all nodes and their vectors; None = they
    are loaded.
    """
    project, option = run.project.id, run.options.scope
    unjudged = list_unjudged(connection, project, judge, scope=option)
    chosen = unjudged[:MAX_MEMORIES]
    if not chosen:
        return _Questions()
    scopes = {scope for _, scope in chosen}
    dated, vectors = _load_memories(connection, run, scopes, vectors_of)
    waiting, row_of = {id_ for id_, _ in unjudged}, {one.id: row for row, one in enumerate(dated)}
    memories = CandidateMemories(
        vectors,
        _number([one.normalized_hash for one in dated]),
        np.array([one.text_hash for one in dated], np.uint64),
        _number([one.scope for one in dated]),
        _number([one.learned_at for one in dated]),
        np.array([one.id not in waiting for one in dated], dtype=bool),
    )
    asking = np.array([row_of[id_] for id_, _ in chosen if id_ in row_of], dtype=np.int64)
    stored = load_known_claims(connection, project, scopes - known.keys(), code=describe_code()["digest"])
    tables = [KnownClaims.from_bytes({**stored, **known}.get(scope, b"")).table for scope in scopes]
    found = list_candidates(memories, asking, join_tables(tables), most=MAX_OLDER)
    answered = load_answered(connection, project, judge, [dated[row].id for row in found])
    older_of = {
        dated[newer]: [dated[row] for row in older if (dated[newer].id, dated[row].id) not in answered]
        for newer, older in found.items()
    }
    asked = [*_build_questions(connection, older_of)]
    return _Questions([id_ for id_, _ in chosen], asked, len(unjudged) - len(chosen))


def _load_memories(
    connection: Connection, run: ProjectRun, scopes: Collection[str], vectors_of: tuple[Nodes, Vectors] | None
) -> tuple[list[DatedMemory], Vectors]:
    """Return the dated memories of scopes that have a vector, by id, and their centred grouping vectors (n, d)."""
    project, option = run.project.id, run.options.scope
    dated = load_dated_memories(connection, project, scopes, scope=option)
    nodes = vectors_of[0] if vectors_of else load_nodes(connection, project, run.embedder.name, scope=option)
    rows = find_positions(nodes.ids, to_ids([one.id for one in dated]))
    dated, rows = [one for one, row in zip(dated, rows.tolist(), strict=True) if row >= 0], rows[rows >= 0]
    if vectors_of:
        return dated, vectors_of[1][rows]
    has_vector, vectors = load_grouping_vectors(connection, run, nodes.select(rows))
    return [one for one, has in zip(dated, has_vector.tolist(), strict=True) if has], vectors


def _build_questions(
    connection: Connection, older_of: Mapping[DatedMemory, Sequence[DatedMemory]]
) -> Iterator[_Question]:
    """Yield a question for each newer memory; texts that are too long are left out."""
    ids = {one.id for newer, older in older_of.items() for one in (newer, *older)}
    texts = {id_: text for id_, text in load_texts(connection, [*ids]).items() if len(text) <= _MAX_TEXT_CHARS}
    for newer, older in older_of.items():
        listed = [one for one in older if one.id in texts]
        if newer.id in texts and listed:
            days = tuple(one.learned_at.date() for one in (newer, *listed))
            yield _Question(newer, listed, Case(texts[newer.id], tuple(texts[one.id] for one in listed), days))


def _number(values: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the rank of each value (n,), equal for equal ones."""
    rank = {value: at for at, value in enumerate(sorted(set(values)))}
    return np.array([rank[value] for value in values], dtype=np.int64)
