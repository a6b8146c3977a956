"""The queue of suggestions: its limit, its order, and what each decision does to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import pytest

from consolidation_pipeline.core.knowledge.difference_kinds import list_kinds
from consolidation_pipeline.errors import ConflictError, UsageError
from consolidation_pipeline.service.review import suggestion_queue
from consolidation_pipeline.service.review.suggestion_bulk import (
    MatchCount,
    Rule,
    count_matching,
    decide_each,
    decide_matching,
)
from consolidation_pipeline.service.review.suggestion_decisions import (
    approve_suggestion,
    keep_variants,
    reject_suggestion,
    withdraw_suggestion,
)
from consolidation_pipeline.service.review.suggestion_proposals import ProposalResult
from consolidation_pipeline.service.review.suggestions import (
    QueueState,
    Suggestion,
    describe_queue,
    get_suggestion,
    list_suggestions,
)
from consolidation_pipeline.service.similarity.calibration import calibrate_project
from consolidation_pipeline_tests.service.corpus import LESSONS, NEAR_MISSES, note
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, call_concurrently
from consolidation_pipeline_tests.service.review.test_suggestion_proposals import PHASES, propose

PAIRS = 5


def pair_rows(pairs: Sequence[int] = range(PAIRS), **fields: Any) -> list[dict[str, Any]]:
    """Return rows of pairs of memories that differ in a number; each pair is a group."""
    return [
        {**note(f"{at}-{side}", f"After {at + 3}{side} minutes. {LESSONS[at]}"), **fields}
        for at in pairs
        for side in (0, 5)
    ]


class Queue:
    """Project with memories to decide on, by default five pairs, and room for two suggestions; decisions on them."""

    def __init__(self, pipeline: Pipeline, rows: Sequence[dict[str, Any]] | None = None, **options: Any) -> None:
        self.pipeline, self.engine = pipeline, pipeline.engine
        self.options = {"summarize": False, "archive": False, "review_limit": 2, **options}
        pipeline.configure_new(**self.options)
        pipeline.add(pair_rows() if rows is None else rows)

    def run(self, **options: Any) -> ProposalResult:
        self.pipeline.configure(**{**self.options, **options})
        return propose(self.pipeline, PHASES)

    def list(self, status: str = "pending") -> list[Suggestion]:
        return list_suggestions(self.engine, SLUG, status=status).suggestions

    def decide(self, decision: Callable[..., Any], at: int = 0, **how: Any) -> Any:
        return decision(self.engine, self.list()[at].id, decided_by="anna", settings=self.pipeline.settings, **how)

    def decide_matching(self, decision: str, **rule: Any) -> Any:
        settings = self.pipeline.settings
        return decide_matching(self.engine, Rule(SLUG, **rule), decision, settings=settings, decided_by="anna")

    @property
    def state(self) -> QueueState:
        return describe_queue(self.engine, SLUG, settings=self.pipeline.settings)


@pytest.fixture
def queue(shared: Pipeline) -> Queue:
    shared.clear()
    return Queue(shared)


def test_queue_holds_review_limit_and_counts_rest(queue: Queue) -> None:
    planned = queue.pipeline.plan()
    assert planned.review is not None
    assert planned.review.model_dump() == {"asked_before": 0, "proposed": 2, "beyond_limit": 3}
    done = queue.run()
    assert (done.groups, done.created, done.waiting, done.beyond_limit) == (5, 2, 2, 3)
    assert (queue.state.pending, queue.state.beyond_limit, queue.state.limits) == (2, {SLUG: 3}, {SLUG: 2})
    again = queue.run()
    assert (again.created, again.outranked, again.proposed_before, again.beyond_limit) == (0, 0, 2, 3)
    after = queue.pipeline.plan().review
    assert after is not None
    assert after.model_dump() == {"asked_before": 2, "proposed": 0, "beyond_limit": 3}
    worth = [one.worth for one in queue.list()]
    assert worth == sorted(worth, key=lambda value: -(value or 0))


@pytest.mark.parametrize("decision", [approve_suggestion, reject_suggestion, keep_variants, withdraw_suggestion])
def test_each_decision_refills_queue_at_once(queue: Queue, decision: Callable[..., Any]) -> None:
    queue.run()
    for beyond in (2, 1, 0):
        decided = queue.decide(decision)
        assert decided.suggestion_id not in {one.id for one in queue.list()}
        assert (queue.state.pending, queue.state.groups_beyond) == (2, beyond)
    queue.decide(decision)
    assert (queue.state.pending, queue.state.groups_beyond) == (1, 0)
    assert all(one.left_out == () for one in queue.list())


def test_concurrent_decisions_propose_each_group_once(queue: Queue) -> None:
    queue.run()
    how = {"decided_by": "anna", "settings": queue.pipeline.settings}
    ids = [one.id for one in queue.list()]
    call_concurrently(*(lambda id_=id_: reject_suggestion(queue.engine, id_, **how) for id_ in ids))
    assert (queue.state.pending, queue.state.groups_beyond) == (2, 1)


def test_used_memories_are_asked_about_first(queue: Queue) -> None:
    queue.pipeline.write("UPDATE {s}.task_memories SET reused_count = 50 WHERE external_id = '3-5'")
    queue.run()
    assert LESSONS[3][:40] in queue.list()[0].content


def test_queue_ignores_order_of_import(shared: Pipeline) -> None:
    found = []
    for rows in (pair_rows(), pair_rows()[::-1]):
        shared.clear()
        shared.configure_new(summarize=False, archive=False, review_limit=2)
        for row in rows:
            shared.add([row])
        propose(shared, PHASES)
        listed = list_suggestions(shared.engine, SLUG).suggestions
        found.append([(one.content, one.worth, one.difference_kinds) for one in listed])
    assert found[0] == found[1]


def test_lower_limit_keeps_those_worth_most(queue: Queue) -> None:
    queue.run()
    best = queue.list()[0].id
    done = queue.run(review_limit=1)
    assert (done.outranked, done.waiting, done.beyond_limit) == (1, 1, 4)
    assert [one.id for one in queue.list()] == [best]
    assert (queue.run(review_limit=0).waiting, queue.state.groups_beyond) == (0, 5)
    assert queue.run(review_limit=5).waiting == 5


def test_variants_are_never_merged_or_asked_about(queue: Queue) -> None:
    queue.run(review_limit=50)
    kept = queue.decide(keep_variants)
    ids = {original.id for original in get_suggestion(queue.engine, kept.suggestion_id).originals}
    texts = [original.content for original in get_suggestion(queue.engine, kept.suggestion_id).originals]
    queue.pipeline.add([note("third", texts[0].replace("After", "Note: after").replace(" minutes", "7 minutes"))])
    queue.run(review_limit=50)
    assert all(len(ids & {original.id for original in one.originals}) < 2 for one in queue.list())
    query = "SELECT count(*) FROM {s}.task_memories WHERE NOT is_consolidated AND NOT is_archived AND id = ANY(:ids)"
    assert queue.pipeline.value(query, ids=list(ids)) == 2
    for at, one in reversed(list(enumerate(queue.list()))):
        if ids & {original.id for original in one.originals}:
            queue.decide(reject_suggestion, at)
    queue.pipeline.roll_back(kept.group_id)
    assert get_suggestion(queue.engine, kept.suggestion_id).status == "pending"


TRIPLE = (
    "The uploader retries 5 times and then gives up, logging AccessDenied, when the bucket policy denies an upload.",
    "When the bucket policy denies an upload, the uploader logs AccessDenied and retries 5 times before it gives up.",
    "When the bucket policy denies an upload, the uploader logs AccessDenied and retries 3 times before it gives up.",
)


@pytest.fixture
def triple(shared: Pipeline) -> Queue:
    """Project with a suggestion to merge three memories, of which two may say the same."""
    shared.clear()
    queue = Queue(shared, [note(str(at), text) for at, text in enumerate(TRIPLE)])
    assert queue.run().created == 1
    assert list_texts(queue) == [set(TRIPLE)]
    return queue


def list_texts(queue: Queue) -> list[set[str]]:
    return [{original.content for original in one.originals} for one in queue.list()]


def test_parts_of_rejected_group_are_asked_about(triple: Queue) -> None:
    queue, rejection = triple, triple.decide(reject_suggestion)
    asked = []
    while queue.run().waiting:
        asked += list_texts(queue)
        queue.decide(reject_suggestion)
    assert asked[0] == set(TRIPLE[:2])
    assert sorted(map(sorted, asked)) == sorted(map(sorted, combinations(TRIPLE, 2)))
    assert queue.run() == ProposalResult(groups=1, proposed_before=1)
    queue.pipeline.roll_back(rejection.group_id)
    assert list_texts(queue) == [set(TRIPLE)]


def test_variants_are_not_asked_about_in_parts(triple: Queue) -> None:
    triple.decide(keep_variants)
    assert (triple.run().groups, triple.list()) == (0, [])


def test_plan_shows_parts_of_rejected_group(triple: Queue) -> None:
    triple.decide(reject_suggestion)
    plan = triple.pipeline.plan()
    assert [{*question.texts.values()} for question in plan.questions] == [set(TRIPLE[:2])]


def test_decisions_teach_calibration_at_once(queue: Queue) -> None:
    queue.run()
    queue.decide(approve_suggestion)
    queue.decide(keep_variants)
    report = calibrate_project(queue.engine, SLUG, settings=queue.pipeline.settings, apply=False).proposed.report
    assert report["decided"]["pairs"] == 2


def test_rejected_kinds_are_asked_about_last(queue: Queue) -> None:
    queue.pipeline.add([note(f"polarity-{side}", text) for side, text in enumerate(NEAR_MISSES[2])])
    queue.run(review_limit=1)
    for _ in range(3):
        (shown,) = queue.list()
        if shown.difference_kinds == ("polarity",):
            break
        queue.decide(reject_suggestion)
    assert queue.list()[0].difference_kinds == ("polarity",)


def test_only_groups_that_may_come_first_are_compared(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Sequence[str]] = []

    def watch(texts: Sequence[str], similarity: Any) -> tuple[str, ...]:
        compared.append(texts)
        return list_kinds(texts, similarity)

    monkeypatch.setattr(suggestion_queue, "_FEWEST_COMPARED", 1)
    monkeypatch.setattr(suggestion_queue, "list_kinds", watch)
    queue.run()
    assert len(compared) == 2
    # No kind is worth more than the one that was approved: the best group that is left stays the best.
    queue.decide(approve_suggestion)
    assert len(compared) == 3
    # What was rejected is worth less, so any other kind could come first.
    for _ in range(2):
        queue.decide(reject_suggestion)
    assert len(compared) == 5


def test_rule_decides_kind_beyond_limit(queue: Queue) -> None:
    queue.pipeline.add([note(f"polarity-{side}", text) for side, text in enumerate(NEAR_MISSES[2])])
    queue.run(review_limit=1)
    assert queue.decide_matching("keep", differ_only_in="value: after #").remaining == 0
    assert len(queue.list("kept")) == PAIRS
    assert [one.difference_kinds for one in queue.list()] == [("polarity",)]
    assert queue.decide_matching("reject", differ_only_in="value").decided == []


def test_rule_proposes_only_what_it_decides(shared: Pipeline) -> None:
    shared.clear()
    shared.configure_new(summarize=False, archive=False, review_limit=0)
    shared.add([*pair_rows(range(3)), *pair_rows(range(3, 5), memory_type="change")])
    propose(shared, PHASES)
    rule = Rule(SLUG, type="change", differ_only_in="value")
    settings = shared.settings
    assert count_matching(shared.engine, rule, settings=settings) == MatchCount(0, 2)
    with pytest.raises(ConflictError, match="2 suggestions match now, not 1: nothing was decided"):
        decide_matching(shared.engine, rule, "keep", expected=1, settings=settings, decided_by="anna")
    assert count_matching(shared.engine, rule, settings=settings) == MatchCount(2, 0)
    done = decide_matching(shared.engine, rule, "keep", expected=2, settings=settings, decided_by="anna")
    state = describe_queue(shared.engine, SLUG, settings=settings)
    assert (len(done.decided), state.pending, state.groups_beyond) == (2, 0, 3)
    nearest = Rule(SLUG, min_similarity=1.0, differ_only_in="value")
    assert count_matching(shared.engine, nearest, settings=settings).total == 0


def test_rule_approves_contradictions_of_its_kind_alone(queue: Queue) -> None:
    queue.run()
    ids = [one.id for one in queue.list()]
    done = queue.decide_matching("approve", min_similarity=0.5)
    assert (done.decided, [id_ for id_, _ in done.refused]) == ([], ids)
    assert all("contradict each other: approve it by its id" in why for _, why in done.refused)
    assert queue.state.pending == 2
    assert len(queue.decide_matching("approve", differ_only_in="value").decided) == PAIRS


def test_rule_decides_at_most_a_number(queue: Queue) -> None:
    queue.run()
    done = decide_matching(
        queue.engine,
        Rule(SLUG, differ_only_in="value"),
        "reject",
        most=2,
        settings=queue.pipeline.settings,
        decided_by="anna",
    )
    assert (len(done.decided), done.remaining) == (2, 3)


@pytest.mark.parametrize(
    ("decision", "rule", "message"),
    [
        ("reject", {}, "needs a condition"),
        ("reject", {"differ_only_in": "colour"}, "difference 'colour' does not exist"),
        ("reject", {"differ_only_in": "addition"}, "difference 'addition' does not exist"),
        ("merge", {"limit": 1}, "'merge' is no decision"),
    ],
)
def test_rule_without_meaning_is_refused(queue: Queue, decision: str, rule: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        queue.decide_matching(decision, **rule)


def test_edit_that_loses_a_fact_is_refused(queue: Queue) -> None:
    queue.run()
    text = queue.list()[0].content
    lossy = text.replace("5 minutes", "0 minutes")
    with pytest.raises(UsageError, match=r"leaves out what the originals say: \d5 minutes"):
        queue.decide(approve_suggestion, content=lossy)
    assert queue.state.pending == 2
    done = queue.decide(approve_suggestion, content=lossy, accept_loss=True)
    memory = queue.pipeline.rows("SELECT * FROM {s}.consolidated_memories WHERE id = :id", id=done.memory_id)[0]
    assert (memory.content, memory.consolidation_method) == (lossy, "hybrid")
    assert "5 minutes" in memory.details["dropped"][0]


def test_approved_lossless_text_is_marked_heuristic(queue: Queue) -> None:
    queue.run()
    done = queue.decide(approve_suggestion)
    memory = queue.pipeline.rows("SELECT * FROM {s}.consolidated_memories WHERE id = :id", id=done.memory_id)[0]
    assert (memory.consolidation_method, memory.source_count) == ("heuristic", 2)
    assert "dropped" not in memory.details


def test_decided_ids_refill_their_project(queue: Queue) -> None:
    queue.run()
    ids = [one.id for one in queue.list()]
    done = decide_each(queue.engine, ids, "reject", settings=queue.pipeline.settings, decided_by="anna")
    assert [one.suggestion_id for one in done.decided] == ids
    assert (queue.state.pending, queue.state.groups_beyond) == (2, 1)
