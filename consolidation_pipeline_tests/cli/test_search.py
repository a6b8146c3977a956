"""`search`: a list for people, one object for programs."""

from __future__ import annotations

import pytest

from consolidation_pipeline_tests.cli.conftest import RECENT, Cli

pytestmark = pytest.mark.usefixtures("consolidated")


def test_search_lists_best_result_first(cli: Cli) -> None:
    answer = cli("search", "notes", "migrations before the workers start", "--sources", "--explain")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0].startswith("1. ")
    assert "(merged, learning, " in lines[0]
    assert lines[1].startswith("   Run the database migrations before the workers start")
    assert lines[2].startswith("   why: number 1 of ")
    assert lines[3].startswith("   - raw ")
    assert " found in " in lines[-1]


def test_search_json_is_one_object(cli: Cli) -> None:
    found = cli("search", "notes", "search client times out", "--json", "--limit", "2", "--level", "0").json
    assert (found["project"], len(found["results"])) == ("notes", 2)
    assert found["total_found"] >= 2
    first = found["results"][0]
    assert first["content"].startswith("The search client times out")
    assert (first["level"], first["kind"], first["keyword_rank"], first["sources"]) == (0, "raw", 1, None)
    assert first["relevance_score"] >= found["results"][1]["relevance_score"]
    assert found["search_time_ms"] > 0


def test_search_options_filter_results(cli: Cli) -> None:
    assert "no matching memories" in cli("search", "notes", "migrations", "--type", "decision").out
    assert "no matching memories" in cli("search", "notes", "migrations", "--tag", "no-such").out
    assert "no matching memories" in cli("search", "notes", "migrations", "--since", "2999-01-01").out
    shown = cli("search", "notes", "colour tokens", "--since", RECENT, "--until", RECENT, "--kind", "raw")
    assert "Colour tokens" in shown.out


def test_invalid_search_is_usage_error(cli: Cli) -> None:
    for arguments, message in (
        (("nowhere", "x"), "there is no project"),
        (("notes", "x", "--level", "7"), "7 is not a level"),
        (("notes", "x", "--type", "rock"), "'rock' is not a memory_type"),
        (("notes", "x", "--since", "soon"), "--since is 'soon'"),
        (("notes", "x", "--fusion", "sum"), "sum"),
        (("notes", "x" * 10_001), "10,000 are allowed"),
    ):
        answer = cli("search", *arguments)
        assert (answer.code, message in answer.err) == (2, True), answer
