"""Output of commands: results go to standard output, as text or JSON, progress and notes to standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from decimal import Decimal
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object; other output goes to standard error.")]

# Used without a terminal: wide enough for an id, a time and a sentence.
_WIDTH = 140
_POLL_SECONDS = 0.5
# Between two lines of progress where there is no terminal.
_LINE_SECONDS = 5.0


def print_json(payload: Mapping[str, Any]) -> None:
    """Print the JSON object of a command. Times are in ISO 8601 UTC, ids are text."""
    print(json.dumps(payload, default=_to_json_value), flush=True)


def _to_json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return float(value) if isinstance(value, Decimal) else str(value)


def make_console(*, stderr: bool = False) -> Console:
    """Return a console without markup and emoji codes, because memories contain brackets and colons."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _WIDTH
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=False, width=width)


def print_note(text: str) -> None:
    """Print one line to standard error."""
    print(text, file=sys.stderr)


def make_table(*columns: str, title: str | None = None) -> Table:
    """Return an empty table without borders, with its title on the left."""
    from rich.table import Table

    return Table(*columns, title=title, title_justify="left", box=None)


def fact_table(title: str, rows: Mapping[str, Any]) -> Table:
    """Return a table of names and values. Values that are None are left out."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, padding=(0, 2))
    for name, value in rows.items():
        if value is not None:
            table.add_row(name, format_value(value))
    return table


def format_value(value: Any) -> str:
    """Return a value as text for people."""
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {number}" for name, number in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def format_percent(value: float | None) -> str | None:
    """Return a share from 0 to 1 as a percentage."""
    return None if value is None else f"{value:.1%}"


def shorten(text: str, width: int) -> str:
    """Return ``text`` on one line, cut to ``width`` characters, with a colon behind a title."""
    first, *rest = text.strip().split("\n", maxsplit=1)
    opening = f"{first.rstrip()}:" if rest and first.rstrip()[-1].isalnum() else first
    line = " ".join(" ".join([opening, *rest]).split())
    return line if len(line) <= width else f"{line[: width - 1].rstrip()}…"


@contextmanager
def show_progress(title: str, *, as_json: bool) -> Iterator[Callable[[str], None]]:
    """Show that ``title`` goes on, and yield a function that sets its status text.

    In a terminal a spinner, else a line every few seconds; nothing with ``as_json``.
    """
    with _follow(title, None, as_json=as_json) as update:
        yield update


@contextmanager
def poll_progress(title: str, read_status: Callable[[], str | None], *, as_json: bool) -> Iterator[None]:
    """Show progress as ``show_progress`` does, with the text that ``read_status`` returns."""
    with _follow(title, read_status, as_json=as_json):
        yield


@contextmanager
def _follow(
    title: str, read_status: Callable[[], str | None] | None, *, as_json: bool
) -> Iterator[Callable[[str], None]]:
    if as_json:
        yield lambda _: None
        return
    in_terminal = sys.stderr.isatty()
    latest, is_done = "", Event()

    def update(text: str) -> None:
        nonlocal latest
        latest = text

    with _show_spinner(title) if in_terminal else _print_lines(title) as show:

        def refresh() -> None:
            while not is_done.wait(_POLL_SECONDS if in_terminal else _LINE_SECONDS):
                if read_status and (status := read_status()) is not None:
                    update(status)
                show(latest)

        Thread(target=refresh, daemon=True).start()
        try:
            yield update
        finally:
            is_done.set()


@contextmanager
def _show_spinner(title: str) -> Iterator[Callable[[str], None]]:
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=make_console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda text: bar.update(task, description=f"{title}: {text}" if text else title)


@contextmanager
def _print_lines(title: str) -> Iterator[Callable[[str], None]]:
    began = monotonic()
    yield lambda text: print_note(f"{title}: {f'{text}, ' if text else ''}{monotonic() - began:.0f} s")
