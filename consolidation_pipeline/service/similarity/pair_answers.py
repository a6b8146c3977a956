"""Answers of the pair judge of a project: asked in both orders, stored by content, never asked twice."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from hashlib import sha256

from consolidation_pipeline.core.chunks import split_chunks
from consolidation_pipeline.core.jobs.spending import Bill
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.similarity.graph_nodes import ProjectContext
from consolidation_pipeline.service.similarity.pair_judges import Pair, PairJudge
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.similarity import pair_judgements

# Purpose of the calls, for messages and events.
PURPOSE = "pair_judge"
# Pairs whose answers are stored together. A killed run repeats at most these, and gets the replies from the cache.
CHUNK = 320


@dataclass
class PairAnswers:
    """Answers of ``judge``, stored and new ones.

    Judges tend to prefer a text by its place. So a pair is the same only if the judge says so in both orders. The first
    order depends on the content; the second one is asked only after a "same".

    ``asked``: number of new answers. ``failed``: messages of requests without a usable reply. ``stopped``: why the
    judge is not asked again.
    """

    context: ProjectContext
    judge: PairJudge
    asked: int = 0
    failed: list[str] = field(default_factory=list)
    stopped: Exception | None = None
    _answers: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        with self.context.engine.connect() as connection:
            self._answers = pair_judgements.load_answers(connection, self.context.project.id, self.judge.name)

    def decide(self, pair: Pair) -> str | None:
        """Return the decision on a pair: same, different or unsure; None = the judge was not asked yet."""
        first, second = (self._answers.get(key) for key in _order_questions(pair))
        if first != "same":
            return first
        return "unsure" if second in ("different", "unsure") else second

    def ask(self, scope_of: Mapping[Pair, str]) -> None:
        """Ask the judge about the pairs that are not decided yet, and store its answers chunk by chunk.

        Args:
            scope_of: The scope of each pair. Pairs of two scopes are never in one request.
        """
        for chunk in self._split_open(scope_of):
            for _ in range(2):
                self._ask_next(chunk)
                if self.stopped is not None:
                    return

    def price(self, scope_of: Mapping[Pair, str]) -> list[Bill]:
        """Return the highest possible bill of each request about the pairs that are not decided.

        That is if each pair is asked in both orders, or in the second one if the first has its answer.
        """
        bills = list[Bill]()
        for chunk in self._split_open(scope_of):
            questions, scopes = self._list_open(chunk)
            bills += self.judge.price([*questions.values()], scopes)
            turned = {(b, a): scope for (a, b), scope in zip(questions.values(), scopes, strict=True)}
            later = {pair: scope for pair, scope in turned.items() if hash_question(pair) not in self._answers}
            bills += self.judge.price([*later], [*later.values()])
        return bills

    def _split_open(self, scope_of: Mapping[Pair, str]) -> Iterator[dict[Pair, str]]:
        """Yield the pairs that are not decided, with their scopes, in chunks whose answers are stored together."""
        undecided = [(pair, scope) for pair, scope in scope_of.items() if self.decide(pair) is None]
        return map(dict, split_chunks(undecided, size=CHUNK))

    def _list_open(self, scope_of: Mapping[Pair, str]) -> tuple[dict[str, Pair], list[str]]:
        """Return the next question of each pair that is not decided, in the order asked, by its hash; and its scope."""
        questions, scopes = dict[str, Pair](), dict[str, str]()
        for pair, scope in scope_of.items():
            if self.decide(pair) is None:
                ordered = _order_questions(pair)
                key = next(key for key in ordered if key not in self._answers)
                questions[key], scopes[key] = ordered[key], scope
        return questions, [*scopes.values()]

    def _ask_next(self, scope_of: Mapping[Pair, str]) -> None:
        questions, scopes = self._list_open(scope_of)
        if not questions:
            return
        replies = self.judge.ask([*questions.values()], scopes)
        found = zip(questions, replies.answers, strict=True)
        answers = {key: answer for key, answer in found if answer is not None}
        with self._begin() as connection:
            pair_judgements.append_answers(connection, self.context.project.id, self.judge.name, answers)
        self._answers |= answers
        self.asked += len(answers)
        self.failed += replies.failed
        self.stopped = replies.stopped

    def _begin(self) -> AbstractContextManager[Connection]:
        return self.context.transaction() if isinstance(self.context, ProjectRun) else self.context.engine.begin()


def _order_questions(pair: Pair) -> dict[str, Pair]:
    """Return the pair in both orders by the hash of the question, the smaller hash first."""
    return dict(sorted((hash_question(both), both) for both in (pair, (pair[1], pair[0]))))


def hash_question(pair: Pair) -> str:
    """Return the hash under which the answer about two texts in this order is stored."""
    return sha256(json.dumps(pair).encode()).hexdigest()
