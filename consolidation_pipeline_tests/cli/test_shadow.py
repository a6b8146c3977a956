"""`shadow`: run, read again, promote, undo, drop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from consolidation_pipeline_tests.cli.conftest import LESSONS, RECENT, Cli, Write


@pytest.fixture
def imported(cli: Cli, write: Write) -> Iterator[None]:
    rows = [{"id": f"n{at}", "content": text, "created_at": RECENT} for at, text in enumerate(LESSONS)]
    assert cli("import", write(*rows), "--project", "notes", "--source", "test").code == 0
    yield
    cli("projects", "delete", "notes", "--yes")


pytestmark = pytest.mark.usefixtures("imported")


@pytest.mark.slow
def test_shadow_is_run_promoted_and_undone(cli: Cli) -> None:
    shown = cli("shadow", "notes", "--options", "t_merge=0.9,recall_gate=false")
    assert shown.code == 0
    assert "consolidation shadow notes --name next --promote" in shown.out
    report = cli("shadow", "notes", "--json").json
    assert report["options"] == {"t_merge": 0.9, "recall_gate": False}
    assert cli("shadow", "notes", "--options", "t_merge=0.91").code == 3
    done = cli("shadow", "notes", "--promote", "--json")
    assert (done.code, done.json["changes"]) == (0, sum(report["changes"].values()))
    assert cli("projects", "configure", "notes", "--json").json["config"] == report["options"]
    assert cli(*done.json["undo"].split()[1:]).code == 0
    assert cli("projects", "configure", "notes", "--json").json["config"] == {}
    assert cli("shadow", "notes", "--drop").out.strip() == "dropped shadow next of notes"
    assert cli("shadow", "notes").code == 2


def test_wrong_use_of_shadow_is_explained(cli: Cli) -> None:
    both = cli("shadow", "notes", "--options", "t_merge=0.9", "--promote")
    assert (both.code, "give one of them" in both.err) == (2, True)
    assert "is not allowed" in cli("shadow", "notes", "--options", "t_merge=7").err
    assert "give the value" in cli("shadow", "notes", "--options", "t_merge=").err
    assert "no shadow 'next'; shadows: none" in cli("shadow", "notes").err
