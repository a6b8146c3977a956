"""What goes where: results to standard output, as text or as one JSON object; progress and notes to standard error."""

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
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object; all else goes to standard error.")]

# Without a terminal there is no width to ask for: wide enough for an id, a time and a sentence.
_WIDTH = 140
_POLL_SECONDS = 0.5


def print_json(payload: Mapping[str, Any]) -> None:
    """Print the one JSON object of a command: times in ISO 8601 UTC, ids as text."""
    print(json.dumps(payload, default=_to_json_value), flush=True)


def _to_json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return float(value) if isinstance(value, Decimal) else str(value)


def make_console(*, stderr: bool = False) -> Console:
    """A console that takes text as it is: memories are full of brackets and colons."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _WIDTH
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=False, width=width)


def print_note(text: str) -> None:
    """One line on standard error."""
    print(text, file=sys.stderr)


def fact_table(title: str, rows: Mapping[str, Any]) -> Table:
    """A table of names and values; those that are None are left out."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, padding=(0, 2))
    for name, value in rows.items():
        if value is not None:
            table.add_row(name, format_value(value))
    return table


def format_value(value: Any) -> str:
    """A value as people read it."""
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {number}" for name, number in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def format_percent(value: float | None) -> str | None:
    """A share as a percentage."""
    return None if value is None else f"{value:.1%}"


def shorten(text: str, width: int) -> str:
    """``text`` on one line, cut to ``width`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 1].rstrip()}…"


@contextmanager
def show_progress(title: str, *, as_json: bool) -> Iterator[Callable[[str], None]]:
    """A spinner with ``title``; hands over a function that says what is going on. Terminals only."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    target = make_console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=target, transient=True, disable=as_json or not target.is_terminal) as bar:
        task = bar.add_task(title, total=None)
        yield lambda text: bar.update(task, description=f"{title}: {text}")


@contextmanager
def poll_progress(title: str, look: Callable[[], str | None], *, as_json: bool) -> Iterator[None]:
    """A spinner that says what ``look`` finds twice a second. Terminals only; elsewhere nobody looks."""
    over = Event()

    def follow(update: Callable[[str], None]) -> None:
        while not over.wait(_POLL_SECONDS):
            if (seen := look()) is not None:
                update(seen)

    with show_progress(title, as_json=as_json) as update:
        if not as_json and sys.stderr.isatty():
            Thread(target=follow, args=(update,), daemon=True).start()
        try:
            yield
        finally:
            over.set()
