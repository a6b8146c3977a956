"""Git work tree of a connected folder: what was written there becomes a commit of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

# Hooks, signatures and file monitors are programs of the user, made for people at work.
_SETTINGS = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "commit.gpgSign=false", "gc.auto=0")
_NEUTRAL_AUTHOR = ("user.name=consolidation", "user.email=consolidation@localhost")
_SECONDS = 60


class WorkTree:
    """Git work tree around a folder. ``prefix``: path of the folder in it, None = it is in none."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.prefix: str | None = None
        if shutil.which("git"):
            found = self._run("rev-parse", "--is-inside-work-tree", "--show-prefix")
            lines = found.stdout.split("\n") if found.returncode == 0 else []
            if lines[:1] == ["true"]:
                self.prefix = lines[1]

    def select_clean(self, paths: Sequence[str]) -> list[str]:
        """Return those paths that git tracks and that have no change which is not committed."""
        if self.prefix is None or not paths:
            return []
        tracked = self._run("ls-files", "-z", "--", *paths).stdout.split("\0")
        changed = {entry[3:] for entry in self._run("status", "--porcelain", "-z", "--", *paths).stdout.split("\0")}
        return [path for path in tracked if path and self.prefix + path not in changed]

    def commit(self, paths: Sequence[str], message: str) -> bool:
        """Commit these paths as they are now, and nothing else that is staged.

        Returns:
            False if git refused, as in the middle of a merge.
        """
        known = set(self._run("ls-files", "-z", "--", *paths).stdout.split("\0"))
        wanted = [path for path in paths if path in known or (self._root / path).exists()]
        new = [path for path in wanted if path not in known]
        if new:
            self._run("add", "--", *new)
        if not self._run("status", "--porcelain", "-z", "--", *wanted).stdout:
            return True
        listed = "\0".join(wanted)
        options = ("--only", "--no-verify", "--quiet", "--pathspec-from-file=-", "--pathspec-file-nul")
        return self._run("commit", *options, "-m", message, given=listed, author=True).returncode == 0

    def _run(self, *arguments: str, given: str = "", author: bool = False) -> subprocess.CompletedProcess[str]:
        settings = list(_SETTINGS)
        if author and self._run("var", "GIT_AUTHOR_IDENT").returncode:
            settings += _NEUTRAL_AUTHOR
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        kept = {name: value for name, value in os.environ.items() if name.startswith(("GIT_CONFIG", "GIT_AUTHOR"))}
        environment |= kept | {"GIT_LITERAL_PATHSPECS": "1", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
        options = [part for setting in settings for part in ("-c", setting)]
        return subprocess.run(
            ["git", *options, *arguments],
            cwd=self._root,
            env=environment,
            input=given,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=_SECONDS,
            check=False,
        )
