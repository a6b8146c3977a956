"""`report`, `report verify` and `lineage --openlineage`."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from consolidation_pipeline_tests.cli.conftest import Cli

KEY = base64.b64encode(bytes(range(32))).decode()

pytestmark = pytest.mark.usefixtures("consolidated")


def test_report_is_written_signed_and_verified(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPORT_KEY", KEY)
    for name in ("report.json", "report.html"):
        path = tmp_path / name
        assert cli("report", "notes", "--out", path, "--sign-key-env", "REPORT_KEY").out == f"wrote {path}\n"
        verified = cli("report", "verify", path)
        assert verified.code == 0, verified
        assert "as it was signed with key SHA256:" in verified.out
        path.write_text(path.read_text("utf-8").replace("completed", "failed"), "utf-8")
        changed = cli("report", "verify", path, "--json")
        assert (changed.code, changed.json["valid"]) == (1, False)
    assert (tmp_path / "report.html").read_text("utf-8").startswith("<!doctype html>")


def test_report_is_printed_unsigned(cli: Cli, tmp_path: Path) -> None:
    printed = cli("report", "notes")
    report = json.loads(printed.out)
    assert (report["project"], report["status"]) == ("notes", "completed")
    assert cli("report", report["run"]["job_id"]).out == printed.out
    assert cli("report", "notes", "--format", "html").out.startswith("<!doctype html>")
    path = tmp_path / "report.json"
    assert cli("report", "notes", "--out", path).out == f"wrote {path}, not signed\n"
    verified = cli("report", "verify", path)
    assert (verified.code, verified.out) == (1, f"{path}: the report is not signed\n")


def test_wrong_use_is_told(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPORT_KEY", "short")
    for arguments, told in (
        (["notes", "--sign-key-env", "NO_SUCH_KEY"], "the environment variable NO_SUCH_KEY is not set"),
        (["notes", "--sign-key-env", "REPORT_KEY"], "neither PEM nor 32 bytes in base64"),
        (["nothing"], "nothing"),
        (["00000000-0000-0000-0000-000000000000"], "there is no job"),
        (["verify"], "takes a file"),
        (["verify", str(tmp_path / "none")], "cannot be read"),
        (["notes", "file.json"], "--out names the file to write"),
        (["notes", "--out", str(tmp_path / "no" / "folder.json")], "cannot be written"),
    ):
        answer = cli("report", *arguments)
        assert (answer.code, told in answer.err) == (2, True), (arguments, answer)


def test_lineage_prints_events_of_a_job(cli: Cli) -> None:
    lines = cli("lineage", "notes", "--openlineage").out.splitlines()
    assert [json.loads(line)["eventType"] for line in lines] == ["START", "COMPLETE"]
    assert cli("lineage", "00000000-0000-0000-0000-000000000000", "--openlineage").code == 2
