"""Groups of commands: help under headings, and the right command for a wrong one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import takewhile
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

from consolidation_pipeline.errors import UsageError

# Words that people try for commands of other names.
_OTHER_WORDS = {
    "check": "doctor",
    "config": "projects configure",
    "consolidate": "run",
    "dry-run": "plan",
    "dump": "backup create",
    "find": "search",
    "forget": "archive",
    "help": "--help",
    "jobs": "history",
    "log": "history",
    "merge": "run",
    "migrate": "init",
    "preview": "plan",
    "recall": "context",
    "redo": "rollback",
    "remove": "archive",
    "revert": "rollback",
    "server": "serve",
    "settings": "projects configure",
    "stats": "metrics",
    "ui": "dev",
    "unarchive": "restore",
    "undo": "rollback",
    "upgrade": "init",
    "version": "--version",
}
_MOST_SUGGESTED = 4


class CommandGroup(TyperGroup):
    """Group that lists its commands under headings and suggests commands of the whole program.

    ``headings``: their order; without any, all commands are under one heading.
    """

    headings: ClassVar[Sequence[str]] = ("Commands",)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the visible commands under their headings, which are their help panels."""
        del ctx
        panels: dict[str, list[tuple[str, Any]]] = {heading: [] for heading in self.headings}
        for name, command in self.commands.items():
            if not command.hidden:
                panels[getattr(command, "rich_help_panel", None) or "Commands"].append((name, command))
        width = max(map(len, self.commands))
        for heading, commands in panels.items():
            with formatter.section(heading):
                limit = formatter.width - width - 6
                rows = [(name.ljust(width), command.get_short_help_str(limit)) for name, command in commands]
                formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is meant; an error for an unknown one names those that may be.

        Raises:
            UsageError: Both flags of a pair are given. Without that, the last one would win.
        """
        try:
            found = super().resolve_command(ctx, args)
        except typer.TyperException as error:
            if not args[0].startswith("-") and "Did you mean" not in error.message:
                error.message = f"No such command {args[0]!r}. {self._suggest(ctx, args[0])}"
            raise
        if not ctx.resilient_parsing:  # as for the completion of a shell
            _reject_contradictions(*found[1:])
        return found

    def _suggest(self, ctx: Any, word: str) -> str:
        root = ctx.find_root().command
        paths = list(_list_paths(root))
        found = [_OTHER_WORDS[word]] if word in _OTHER_WORDS else [path for path in paths if path.split()[-1] == word]
        if not found:
            by_name = {path.split()[-1]: path for path in reversed(paths)}
            found = [by_name[name] for name in get_close_matches(word, by_name, n=1)]
        if found:
            quoted = [f"`{root.name} {path}`" for path in found[:_MOST_SUGGESTED]]
            return f"Did you mean {' or '.join(quoted)}?"
        if self is root:
            return f"`{root.name} --help` lists the commands."
        return f"`{ctx.command_path}` has: {', '.join(self.commands)}."


def _reject_contradictions(command: Any, args: Sequence[str]) -> None:
    """Raise UsageError if ``args`` have both flags of a pair, such as --helpful and --misleading."""
    given = set(takewhile(lambda arg: arg != "--", args))
    for option in command.params:
        flags = [*given.intersection(option.opts), *given.intersection(option.secondary_opts)]
        if len(flags) > 1 and option.secondary_opts:
            raise UsageError(f"{' and '.join(flags)} contradict each other: give one of them")


def _list_paths(group: TyperGroup, prefix: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from _list_paths(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}"
