"""Progress of commands."""

from __future__ import annotations

import sys
from threading import Event

import pytest

from consolidation_pipeline.cli import output
from consolidation_pipeline.cli.output import poll_progress, shorten, show_progress


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Refunds\nRefunds need a key.\nDo: pass one.", "Refunds: Refunds need a key. Do: pass one."),
        ("Refunds need a key.\nPass one.", "Refunds need a key. Pass one."),
        ("Refunds need\ta key", "Refunds need a key"),
        ("\n", ""),
    ],
)
def test_title_is_told_from_the_text_behind_it(text: str, line: str) -> None:
    assert shorten(text, 80) == line


def test_progress_without_terminal_is_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Event()
    texts = iter(("3%, clusters done", None, "9%, patterns done"))

    def read_status() -> str | None:
        text = next(texts, None)
        if text is None and asked.is_set():
            return None
        if text == "9%, patterns done":
            asked.set()
        return text

    monkeypatch.setattr(output, "_LINE_SECONDS", 0.001)
    with poll_progress("consolidating shop", read_status, as_json=False):
        assert asked.wait(30)
    shown = capsys.readouterr()
    assert (shown.out, "\r" in shown.err) == ("", False)
    assert shown.err.splitlines()[:2] == ["consolidating shop: 3%, clusters done, 0 s"] * 2


def test_short_work_without_terminal_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress("importing", as_json=False) as update:
        update("5 added")
    assert capsys.readouterr() == ("", "")


def test_progress_in_terminal_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    shown = Event()
    monkeypatch.setattr(output, "_POLL_SECONDS", 0.001)
    with poll_progress("planning shop", lambda: shown.set() or "half", as_json=False):
        assert shown.wait(30)
    assert "planning shop" in capsys.readouterr().err
    with show_progress("planning shop", as_json=True) as update:
        update("half")
    assert capsys.readouterr().err == ""
