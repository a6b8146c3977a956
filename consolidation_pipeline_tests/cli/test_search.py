"""`search`: a list for people, one object for programs."""

from __future__ import annotations

import json
from pathlib import Path

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


def test_min_match_leaves_out_lower_results(cli: Cli) -> None:
    query = ("search", "notes", "when do the migrations run, when does the search client time out?", "--json")
    everything = cli(*query).json["results"]
    best = max(hit["match"] for hit in everything)
    some = cli(*query, "--min-match", str(best)).json["results"]
    assert 0 < len(some) < len(everything)
    assert {hit["id"] for hit in some} == {hit["id"] for hit in everything if hit["match"] == best}
    assert f"match {best:.2f}" in cli(*query[:3]).out


def test_invalid_search_is_usage_error(cli: Cli) -> None:
    for arguments, message in (
        (("nowhere", "x"), "there is no project"),
        (("notes", "x", "--level", "7"), "7 is not a level"),
        (("notes", "x", "--type", "rock"), "'rock' is not a memory_type"),
        (("notes", "x", "--since", "soon"), "--since is 'soon'"),
        (("notes", "x", "--fusion", "sum"), "'--fusion': 'sum' is not one of 'default', 'rrf', 'zscore'"),
        (("notes", "x", "--min-match", "1.5"), "'--min-match': expected a number <= 1.0, not '1.5'"),
        (("notes", "x" * 10_001), "10,000 are allowed"),
        (("notes", " "), "QUERY is ' ': give words to search for"),
        (("notes", "caf\udcff"), "query is 'caf\\udcff': expected valid Unicode"),
        (("notes", "x", "--scope", "caf\udcff"), "scope is 'caf\\udcff': expected valid Unicode"),
    ):
        answer = cli("search", *arguments)
        assert (answer.code, message in answer.err) == (2, True), answer


def test_search_tells_versions_and_what_was_known(cli: Cli, tmp_path: Path) -> None:
    rows = [
        {"id": "a", "content": "The mirror syncs at 02:00.", "created_at": "2026-01-05"},
        {"id": "b", "content": "The mirror no longer syncs at 02:00.", "created_at": "2026-02-05"},
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert cli("import", "--project", "mirrors", str(tmp_path / "rows.jsonl")).code == 0
    assert cli("run", "mirrors", "--phases", "embedding_matrix,supersessions").code == 0
    lines = cli("search", "mirrors", "mirror syncs at 02:00").out.splitlines()
    assert lines[1] == "   The mirror no longer syncs at 02:00."
    assert lines[2].startswith("   was (2026-01-05) ")
    assert lines[5].startswith("   superseded (2026-02-05) ")
    then = cli("search", "mirrors", "mirror syncs at 02:00", "--as-of", "2026-01-31").out
    assert "The mirror syncs at 02:00." in then
    assert "no longer" not in then
    known = cli("context", "mirrors", "When does the mirror sync?", "--as-of", "2026-01-31").out
    assert "no longer" not in known
    for command in (("search", "mirrors", "x"), ("context", "mirrors", "x"), ("playbook", "mirrors")):
        answer = cli(*command, "--as-of", "2999-01-01")
        assert (answer.code, "as_of is '2999-01-01', in the future" in answer.err) == (2, True)
