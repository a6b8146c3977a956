"""`context`: a list for agents, one object for programs."""

from __future__ import annotations

import re

import pytest

from consolidation_pipeline_tests.cli.conftest import Cli

pytestmark = pytest.mark.usefixtures("consolidated")


def test_context_has_chapters_of_memories(cli: Cli) -> None:
    answer = cli("context", "notes", "start the workers after the database migrations")
    assert answer.code == 0
    assert re.match(r"## Known\n- \[[0-9a-f]{12}, 3 times\] Run the database", answer.out)
    assert answer.out.count("before the workers start, or the first jobs fail on missing columns") == 1
    assert answer.err.endswith(" of 2000 tokens\n")


def test_context_json_is_one_object(cli: Cli) -> None:
    context = cli("context", "notes", "why does the search client time out", "--tokens", "300", "--json").json
    assert (context["project"], context["token_budget"], context["playbook_entries"]) == ("notes", 300, [])
    assert {hit["level"] for hit in context["memories"]} == {0}
    assert context["abstraction_distribution"]["0"] == len(context["memories"]) == 2
    assert context["tokens"] <= 300
    assert [len(one["sides"]) for one in context["contradictions"]] == [2]
    assert {side["id"] for side in context["contradictions"][0]["sides"]} == {hit["id"] for hit in context["memories"]}


def test_context_budget_of_zero_is_usage_error(cli: Cli) -> None:
    answer = cli("context", "notes", "anything", "--tokens", "0")
    assert (answer.code, "token_budget is 0; it must be 1 or more" in answer.err) == (2, True)


def test_context_of_a_task_that_is_no_utf8_is_refused(cli: Cli) -> None:
    answer = cli("context", "notes", "caf\udcff")
    assert (answer.code, "task is 'caf\\udcff': expected valid Unicode" in answer.err) == (2, True)
