"""`calibrate --label N`: answers typed in the terminal, and the pairs as JSON."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest
from sqlalchemy import text

from consolidation_pipeline.core.knowledge.difference_words import describe_sides
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline_tests.cli.conftest import Answer, Cli, Write
from consolidation_pipeline_tests.database_pool import fill
from consolidation_pipeline_tests.service.corpus import corpus

PHASES = "embedding_matrix,threshold_calibration,similarity_graph"
Type = Callable[[str], None]


@pytest.fixture
def type_answers(monkeypatch: pytest.MonkeyPatch) -> Type:
    """Function that sets what the person types."""
    return lambda answers: monkeypatch.setattr("sys.stdin", io.StringIO(answers))


@pytest.fixture
def compared(cli: Cli, write: Write, engine: Engine) -> None:
    """Project `notes` with pairs to label; none of them is merged."""

    def build() -> None:
        cli("import", write(*corpus()), "--project", "notes")
        assert cli("run", "notes", "--phases", PHASES).code == 0

    fill(engine, build, "compared by the command line")


def labels(engine: Engine) -> list[tuple[bool | None, str]]:
    query = "SELECT same, labelled_by FROM consolidation.labelled_pairs ORDER BY labelled_at"
    with engine.connect() as connection:
        return [(row.same, row.labelled_by) for row in connection.execute(text(query))]


def list_contents(answer: Answer) -> list[tuple[str, str]]:
    return [(pair["a"]["content"], pair["b"]["content"]) for pair in answer.json["pairs"]]


@pytest.mark.usefixtures("compared")
def test_label_stores_answers(cli: Cli, engine: Engine, type_answers: Type) -> None:
    type_answers("s\nDifferent\nk\n")
    answer = cli("calibrate", "notes", "--label", 3)
    assert answer.code == 0
    assert [same for same, _ in labels(engine)] == [True, False, None]
    assert all(by.startswith("cli") for _, by in labels(engine))
    assert "1 of 3, similarity" in answer.out
    assert "[s]ame, [d]ifferent, s[k]ip or [q]uit?" in answer.out
    assert "answers stored: 3; all labels of notes: 1 same, 1 different, 1 skipped" in answer.out
    assert "consolidation calibrate notes" in answer.err


@pytest.mark.usefixtures("compared")
@pytest.mark.parametrize("end", ["q\n", ""])
def test_label_keeps_answers_when_person_quits(cli: Cli, engine: Engine, type_answers: Type, end: str) -> None:
    type_answers(f"s\nd\n{end}")
    answer = cli("calibrate", "notes", "--label", 9)
    assert answer.code == 0
    assert [same for same, _ in labels(engine)] == [True, False]
    assert "3 of 9" in answer.out
    assert "4 of 9" not in answer.out


@pytest.mark.slow
@pytest.mark.usefixtures("compared")
def test_label_never_shows_pair_twice(cli: Cli, type_answers: Type) -> None:
    seen: list[tuple[str, str]] = []
    for _ in range(3):
        listed = list_contents(cli("calibrate", "notes", "--label", 4, "--json"))
        seen += listed[:2]
        type_answers("s\nk\n")
        assert cli("calibrate", "notes", "--label", 4).code == 0
    assert len(set(seen)) == 6


@pytest.mark.usefixtures("compared")
def test_label_asks_again_after_wrong_answer(cli: Cli, engine: Engine, type_answers: Type) -> None:
    type_answers("yes\n\ns\n")
    answer = cli("calibrate", "notes", "--label", 1)
    assert "'yes' is no answer; type one of s, d, k, q" in answer.err
    assert [same for same, _ in labels(engine)] == [True]


@pytest.mark.usefixtures("compared")
def test_label_marks_differences(cli: Cli, type_answers: Type) -> None:
    first = cli("calibrate", "notes", "--label", 1, "--json").json["pairs"][0]
    type_answers("")
    out = cli("calibrate", "notes", "--label", 1).out
    assert first["a"]["id"] in out
    assert first["b"]["id"] in out
    marked = re.findall(r"(?<!\w)\[([^\]]+)\]", out.split("[s]ame")[0])
    assert marked
    assert all(one in first["a"]["content"] + first["b"]["content"] for one in marked)
    assert all(describe_sides(one["kind"], one["a"], one["b"]) in out for one in first["differences"])


@pytest.mark.usefixtures("compared")
def test_label_json_asks_and_stores_nothing(cli: Cli, engine: Engine, type_answers: Type) -> None:
    type_answers("s\ns\n")
    answer = cli("calibrate", "notes", "--label", 2, "--json").json
    assert (answer["project"], answer["labels"]) == ("notes", {"same": 0, "different": 0, "skipped": 0})
    assert [pair["would_merge"] for pair in answer["pairs"]] == [True, False]
    assert {"a", "b", "similarity", "verdict", "differences", "merged_into"} <= answer["pairs"][0].keys()
    assert labels(engine) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--label", "0"], "0 pairs cannot be labelled at once: give a number from 1 to 200"),
        (["--label", "201"], "201 pairs cannot be labelled at once: give a number from 1 to 200"),
        (["--label", "many"], "Invalid value for '--label'"),
        (["--label", "3", "--apply"], "label first, then calibrate with --apply"),
    ],
)
def test_label_refuses_wrong_number(cli: Cli, arguments: list[str], message: str) -> None:
    answer = cli("calibrate", "notes", *arguments)
    assert answer.code == 2
    assert message in answer.err


def test_label_without_pairs_names_run(cli: Cli, write: Write) -> None:
    cli("import", write({"content": "a"}), "--project", "p")
    answer = cli("calibrate", "p", "--label", 5)
    assert (answer.code, answer.out) == (0, "p: no pair is left to label\n")
    assert "consolidation run p" in answer.err


@pytest.mark.usefixtures("compared")
def test_label_of_merged_pair_tells_how_to_undo(cli: Cli, type_answers: Type) -> None:
    assert cli("run", "notes", "--phases", "clusters,merged_memories").code == 0
    type_answers("d\n")
    answer = cli("calibrate", "notes", "--label", 1)
    assert "They are in one merged memory" in answer.out
    assert "consolidation history notes --operation merge" in answer.out


@pytest.mark.slow
@pytest.mark.usefixtures("compared")
def test_calibrate_says_intervals_of_few_labels_are_wide(cli: Cli, type_answers: Type) -> None:
    type_answers("s\nd\n")
    cli("calibrate", "notes", "--label", 2)
    answer = cli("calibrate", "notes")
    assert "pairs: 2 labelled" in answer.out
    assert "calibrate notes --label 40 (few pairs: an interval is 79% wide)" in answer.out
    decided = cli("calibrate", "notes", "--json").json["decided"]
    assert decided["kinds"]["label"]["of"] == 2
