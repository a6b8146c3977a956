"""Supersession judge: what it is asked, what its answers lead to, and what happens when it fails."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from consolidation_pipeline.errors import InvalidOptionError
from consolidation_pipeline.llm import retries
from consolidation_pipeline.options import parse_options
from consolidation_pipeline.service.admin.erase import erase_memories
from consolidation_pipeline.service.knowledge import supersession_judge
from consolidation_pipeline.service.knowledge.supersession_judge import JudgedSupersessions, name_judge
from consolidation_pipeline.service.lifecycle.relations import decide_relations
from consolidation_pipeline.service.runs.phases import PHASES
from consolidation_pipeline_tests.openai_server import (
    Behaviour,
    OpenAIServer,
    Request,
    reply_with_broken_json,
    reply_with_error,
    reply_with_json,
)
from consolidation_pipeline_tests.service.corpus import note
from consolidation_pipeline_tests.service.model_replies import shown_memories
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, note_id

MODEL = "openai/gpt-4o-mini"
OPTIONS: dict[str, Any] = {
    "llm_model": MODEL, "supersession_judge": "llm", "summarize": False, "archive": False,
}  # fmt: skip
JUDGING = PHASES[: PHASES.index("supersessions") + 1]
SCRAPED = "The exporter of the billing service is scraped on port 9105."
TARGET = "Scrape target for the billing exporter is host:9440. Anything else gets connection refused."
NOTES = {
    "old": (1, f"{SCRAPED} Its metrics are kept for a month."),
    "lunch": (2, "The canteen closes at two on Fridays."),
    "new": (5, TARGET),
    "coffee": (6, "Coffee beans are ordered by the front desk."),
}
NOW = TARGET.partition(" Any")[0]
CASE = re.compile(r"Case (\d+): memory (\d+) of ([\d-]+) is the newer one; older are (.*)\.\n")


def dated(name: str, day: int, text: str, **fields: Any) -> dict[str, Any]:
    """Return a note that was learned on a day of March."""
    return note(name, text, created_at=f"2026-03-{day:02d}T12:00:00Z", **fields)


def add_notes(pipeline: Pipeline, *names: str) -> None:
    """Add some of the notes; all if none is named."""
    pipeline.add([dated(name, *NOTES[name]) for name in names or NOTES])


@pytest.fixture
def project(pipeline: Pipeline, provider: OpenAIServer) -> Pipeline:
    """Project with all notes, and an oracle as its judge."""
    provider.behaviour = oracle()
    add_notes(pipeline)
    pipeline.configure(**OPTIONS)
    return pipeline


def shown_cases(request: Request) -> Iterator[tuple[int, int, list[int]]]:
    """Yield number, newer and older memories of each case in a prompt."""
    for number, newer, _, older in CASE.findall(request.body["messages"][1]["content"]):
        yield int(number), int(newer), [int(one) for one in re.findall(r"memory (\d+)", older)]


def oracle(*, was: str = SCRAPED, now: str = NOW, older: str = NOTES["old"][1], newer: str = TARGET) -> Behaviour:
    """Return a behaviour that knows of one outdated sentence."""

    def reply(request: Request) -> dict[str, Any]:
        memories, answers = shown_memories(request), []
        for number, own, listed in shown_cases(request):
            found = [one for one in listed if memories[own] == newer and memories[one] == older]
            outdated = [{"memory": one, "was": was, "now": now, "thing": "the scraped port"} for one in found]
            answers.append({"case": number, "claims": memories[own][:60], "outdated": outdated})
        return {"answers": answers}

    return reply_with_json(reply)


def judge(pipeline: Pipeline) -> JudgedSupersessions:
    """Run the phases up to supersessions, and return what the judge was asked."""
    judged = pipeline.run_phases(JUDGING, planned=JUDGING)["supersessions"].judged
    assert isinstance(judged, JudgedSupersessions)
    return judged


def asked_pairs(provider: OpenAIServer) -> list[tuple[str, str]]:
    """Return the newer and the older text of all pairs that were asked about, in the order asked."""
    return [
        (memories[newer], memories[one])
        for request, memories in ((request, shown_memories(request)) for request in provider.requests)
        for _, newer, older in shown_cases(request)
        for one in older
    ]


def relations(pipeline: Pipeline, names: Iterable[str] = NOTES) -> dict[tuple[str, str], tuple[str, str]]:
    """Return status and reason of the relations by the names of the newer and the older note."""
    name_of = {note_id(name): name for name in names}
    rows = pipeline.rows("SELECT * FROM {s}.memory_relations WHERE relation_type = 'supersedes'")
    return {(name_of[row.a_id], name_of[row.b_id]): (row.status, row.reason) for row in rows}


EXPECTED = {("new", "old"): ("candidate", f"language model: {SCRAPED} -> {NOW}")}


def test_judge_finds_what_has_no_words_of_change(project: Pipeline, provider: OpenAIServer) -> None:
    project.configure(**{**OPTIONS, "supersession_judge": "none"})
    assert project.run_phases(JUDGING)["supersessions"].judged is None
    assert (relations(project), provider.requests) == ({}, [])
    project.configure(**OPTIONS)
    judged = judge(project)
    assert (judged.asked, judged.waiting, judged.failed, judged.stopped) == (6, 0, [], None)
    assert relations(project) == EXPECTED


def test_judge_is_shown_days_and_earlier_memories(project: Pipeline, provider: OpenAIServer) -> None:
    judge(project)
    day_of = {text: day for day, text in NOTES.values()}
    asked = asked_pairs(provider)
    assert len(set(asked)) == len(asked) == 6
    assert all(day_of[newer] > day_of[older] for newer, older in asked)
    shown = provider.requests[0].body["messages"][1]["content"]
    assert "memory 1 of 2026-03-06 is the newer one; older are memory 2 of 2026-03-" in shown


def test_nothing_is_asked_twice(project: Pipeline, provider: OpenAIServer) -> None:
    judge(project)
    before = len(provider.requests)
    assert judge(project).asked == 0
    # As after a calibration, when all memories are compared again.
    project.write("DELETE FROM {s}.compared_memories")
    assert judge(project).asked == 0
    assert (len(provider.requests), relations(project)) == (before, EXPECTED)


def test_new_memory_alone_is_asked_about(project: Pipeline, provider: OpenAIServer) -> None:
    judge(project)
    provider.requests.clear()
    project.add([dated("tea", 9, "Tea is ordered by the front desk too.")])
    assert judge(project).asked > 0
    assert {newer for newer, _ in asked_pairs(provider)} == {"Tea is ordered by the front desk too."}


def test_order_of_arrival_changes_no_answer(pipeline: Pipeline, provider: OpenAIServer) -> None:
    provider.behaviour = oracle()
    add_notes(pipeline, "new", "coffee")
    pipeline.configure(**OPTIONS)
    judge(pipeline)
    assert relations(pipeline) == {}
    add_notes(pipeline, "old", "lunch")
    assert judge(pipeline).asked == 5
    assert relations(pipeline) == EXPECTED


def test_users_are_never_judged_together(pipeline: Pipeline, provider: OpenAIServer) -> None:
    provider.behaviour = oracle()
    users = {"old": "ada", "lunch": "ada", "new": "bob", "coffee": "bob"}
    pipeline.add([dated(name, *NOTES[name], user_id=user) for name, user in users.items()])
    pipeline.configure(**OPTIONS)
    assert judge(pipeline).asked == 2
    user_of = {NOTES[name][1]: user for name, user in users.items()}
    for request in provider.requests:
        assert len({user_of[text] for text in shown_memories(request).values()}) == 1
    assert relations(pipeline) == {}


def test_undated_memories_are_not_judged(pipeline: Pipeline, provider: OpenAIServer) -> None:
    provider.behaviour = oracle()
    pipeline.add([note(name, text, created_at=None) for name, (_, text) in NOTES.items()])
    pipeline.configure(**OPTIONS)
    assert (judge(pipeline).asked, provider.requests) == (0, [])


def test_rules_take_the_place_of_an_answer(pipeline: Pipeline, provider: OpenAIServer) -> None:
    was, now = "The gateway listens on port 8080.", "The gateway moved from port 8080 to port 9090."
    provider.behaviour = oracle(was=was, now=now, older=was, newer=now)
    pipeline.add([dated("first", 1, was), dated("second", 5, now)])
    pipeline.configure(**OPTIONS)
    judge(pipeline)
    [(status, reason)] = relations(pipeline, ["first", "second"]).values()
    assert (status, reason.partition(":")[0]) == ("confirmed", "change words")


def test_each_version_supersedes_the_one_before(pipeline: Pipeline, provider: OpenAIServer) -> None:
    texts = [f"The exporter is scraped on port {port}." for port in (9105, 9440, 9900)]

    def reply(request: Request) -> dict[str, Any]:
        memories, answers = shown_memories(request), []
        for number, own, older in shown_cases(request):
            now = memories[own]
            outdated = [{"memory": one, "was": memories[one], "now": now, "thing": "the port"} for one in older]
            answers.append({"case": number, "claims": now, "outdated": outdated})
        return {"answers": answers}

    provider.behaviour = reply_with_json(reply)
    pipeline.add([dated(f"v{at}", at, text, agent_id=f"agent {at}") for at, text in enumerate(texts, 1)])
    pipeline.configure(**OPTIONS)
    assert judge(pipeline).asked == 3
    assert relations(pipeline, ["v1", "v2", "v3"]).keys() == {("v2", "v1"), ("v3", "v2")}


def test_decision_of_a_person_stays(project: Pipeline) -> None:
    judge(project)
    [relation] = project.rows("SELECT id FROM {s}.memory_relations")
    decide_relations(project.engine, [relation.id], "confirmed", changed_by="anna")
    project.add([dated("tea", 9, "Tea is ordered by the front desk too.")])
    judge(project)
    assert relations(project)["new", "old"][0] == "confirmed"


def test_undone_job_gives_its_relations_again(project: Pipeline) -> None:
    judge(project)
    job = project.value("SELECT job_id FROM {s}.consolidation_changes WHERE entity_type = 'memory_relations'")
    project.roll_back(job)
    assert relations(project) == {}
    assert judge(project).asked == 0
    assert relations(project) == EXPECTED


def test_answer_about_a_changed_text_counts_no_more(project: Pipeline) -> None:
    judge(project)
    project.write(
        "UPDATE {s}.supersession_answers SET older_hash = 'of another text' WHERE older_id = :old", old=note_id("old")
    )
    project.add([dated("tea", 9, "Tea is ordered by the front desk too.")])
    judge(project)
    assert relations(project)["new", "old"][0] == "rejected"


def test_another_model_is_asked_anew(project: Pipeline, provider: OpenAIServer) -> None:
    judge(project)
    project.configure(**{**OPTIONS, "llm_model": "openai/gpt-4.1-mini"})
    provider.behaviour = oracle(newer="no such text")
    assert judge(project).asked == 6
    project.add([dated("tea", 9, "Tea is ordered by the front desk too.")])
    judge(project)
    assert relations(project)["new", "old"][0] == "rejected"


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"was": "The exporter was never scraped."}, id="invented quote"),
        pytest.param({"now": NOTES["old"][1]}, id="quote of two sentences"),
    ],
)
def test_reply_with_a_wrong_quote_is_refused(project: Pipeline, provider: OpenAIServer, wrong: dict[str, str]) -> None:
    provider.behaviour = oracle(**wrong)
    judged = judge(project)
    assert (judged.asked, len(judged.failed), relations(project)) == (0, 1, {})
    assert judged.waiting == 3
    provider.behaviour = oracle()
    project.add([dated("tea", 9, "Tea is ordered by the front desk too.")])
    assert judge(project).waiting == 0
    assert relations(project) == EXPECTED


@pytest.mark.parametrize("failing", [reply_with_broken_json, reply_with_error(500)], ids=["broken", "500"])
def test_failing_judge_leaves_memories_to_next_run(
    project: Pipeline, provider: OpenAIServer, monkeypatch: pytest.MonkeyPatch, failing: Behaviour
) -> None:
    monkeypatch.setattr(retries, "_compute_wait", lambda *_: 0.0)
    provider.behaviour = failing
    judged = judge(project)
    assert (judged.asked, judged.waiting, relations(project)) == (0, 3, {})
    provider.behaviour = oracle()
    project.add([dated("tea", 9, "Tea is ordered by the front desk too.")])
    assert judge(project).waiting == 0
    assert relations(project) == EXPECTED


def test_used_up_budget_leaves_memories_to_next_run(
    project: Pipeline, provider: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supersession_judge, "_PROMPT_CASES", 1)
    monkeypatch.setattr(supersession_judge, "BATCH", 1)
    monkeypatch.setattr(supersession_judge, "MAX_OLDER", 1)
    project.configure(**OPTIONS, budget_tokens_per_run=1_600)
    runs = [judge(project) for _ in range(3)]
    assert runs[0].stopped is not None
    assert (runs[0].waiting > 0, runs[-1].waiting) == (True, 0)
    assert relations(project) == EXPECTED
    asked = asked_pairs(provider)
    assert len(asked) == len(set(asked)) == 3


def test_run_asks_about_newest_memories_first(
    project: Pipeline, provider: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supersession_judge, "MAX_MEMORIES", 1)
    assert (judge(project).waiting, {newer for newer, _ in asked_pairs(provider)}) == (3, {NOTES["coffee"][1]})
    assert judge(project).waiting == 2
    assert relations(project) == EXPECTED


def test_long_texts_are_not_shown(pipeline: Pipeline, provider: OpenAIServer) -> None:
    provider.behaviour = oracle()
    pipeline.add([dated("old", 1, f"{SCRAPED} " * 80), dated("new", *NOTES["new"])])
    pipeline.configure(**OPTIONS)
    assert (judge(pipeline).waiting, provider.requests) == (0, [])


def test_erased_memory_takes_its_answers_along(project: Pipeline) -> None:
    judge(project)
    erase_memories(project.engine, [note_id("old")], changed_by="anna")
    count = "SELECT count(*) FROM {s}.supersession_answers WHERE :id IN (newer_id, older_id)"
    assert project.value(count, id=note_id("old")) == 0
    assert project.value(count, id=note_id("new")) > 0


def test_plan_prices_the_judge_and_asks_nothing(project: Pipeline, provider: OpenAIServer) -> None:
    project.configure(**{**OPTIONS, "supersession_judge": "none"})
    without = project.plan().costs.completion_calls
    project.configure(**OPTIONS)
    priced = project.plan().costs.completion_calls - without
    assert (priced, provider.requests) == (1, [])
    judge(project)
    assert len(provider.requests) == priced
    assert project.plan().costs.completion_calls == without


def test_language_model_judge_needs_a_model() -> None:
    with pytest.raises(InvalidOptionError, match="supersession_judge = llm needs llm_model"):
        name_judge(parse_options({"supersession_judge": "llm"}))
