"""Faults of the chaos test: killed processes, database restarts, unreliable services."""

from __future__ import annotations

import os
import random
import shutil
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
from consolidation_pipeline_tests.chaos.clients import ChaosConfig, run_client
from consolidation_pipeline_tests.openai_server import Reply, Request, reply_with_json
from consolidation_pipeline_tests.service.fork_server import ForkServer
from consolidation_pipeline_tests.service.knowledge.test_failing_providers import BEHAVIOURS
from consolidation_pipeline_tests.service.model_replies import reply_by_schema
from consolidation_pipeline_tests.webhook_receiver import Message, status_reply

# Only these are killed: the logs of the others must be complete.
KILLABLE_ROLES = ("launcher", "worker", "deliverer")


class PostgresServer:
    """Postgres server for one test. It may be stopped at any time and loses nothing that it acknowledged."""

    def __init__(self, folder: Path) -> None:
        self._server = start_server(folder)
        self.url: str = self._server.url("postgres")
        # These settings guard only against power failures, which are not tested here.
        for setting in ("fsync", "full_page_writes"):
            self.execute(sql.SQL("ALTER SYSTEM SET {} = off").format(sql.Identifier(setting)))
        self.execute(sql.SQL("SELECT pg_reload_conf()"))

    def execute(self, statement: sql.Composable) -> Sequence[Any]:
        """Execute a statement and return its rows, if any."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            done = connection.execute(statement)
            return done.fetchall() if done.description else ()

    def restart(self, mode: str) -> None:
        """Restart the server; ``immediate``: as after a crash; ``fast``: roll back transactions first."""
        self._control("restart", mode)

    def delete(self) -> None:
        """Stop the server and delete its files, which may be outside of the folder of the test.

        ``pg_ctl`` stops it: the object that started it does not know the process after a restart.
        """
        self._control("stop", "immediate")
        shutil.rmtree(self._server.folder)

    def _control(self, order: str, mode: str) -> None:
        folder = self._server.folder
        options = ("-w", "-t", "120", "-m", mode, "-D", str(folder), "-l", str(folder / "log"))
        self._server.run_program("pg_ctl", order, *options)

    def cut_connections(self, rng: random.Random) -> int:
        """End about a third of the connections and return their number."""
        query = "SELECT pid FROM pg_stat_activity WHERE datname IS NOT NULL AND pid <> pg_backend_pid()"
        rows = self.execute(sql.SQL(query))
        chosen = [pid for (pid,) in rows if rng.random() < 0.33]
        self.execute(sql.SQL("SELECT pg_terminate_backend(p) FROM unnest({}::int[]) p").format(sql.Literal(chosen)))
        return len(chosen)


@dataclass
class ChaosRun:
    """Processes and faults of one chaos run.

    Attributes:
        roles: role of each client to start.
        log: writes to the timeline.
        pids: process of each running client, by name.
        spawned: number of clients started so far.
    """

    seed: str
    config: ChaosConfig
    server: PostgresServer
    fork_server: ForkServer
    database: str
    roles: Sequence[str]
    log: Callable[..., None]
    pids: dict[str, int] = field(default_factory=dict)
    spawned: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def run(self) -> None:
        """Start the clients and inject faults until the end. Pauses are long enough for some runs to complete."""
        for role in self.roles:
            self._spawn_client(role)
        longest = min(2.0, (self.config.until - time.time()) / 10)
        faults = [self._kill_client] * 6 + [self._cut_connections, self._shorten_statement_timeout] * 2
        faults.append(self._restart_server)
        while time.time() < self.config.until:
            time.sleep(self.rng.uniform(0.05, longest))
            with suppress(psycopg.OperationalError):  # the server may be starting, or its statement timeout short
                self.rng.choice(faults)()
        self._reset_statement_timeout()

    def join(self, seconds: float) -> None:
        """Wait until all clients have ended.

        Raises:
            TimeoutError: a client did not end within ``seconds``.
        """
        for name, pid in self.pids.items():
            code = self.fork_server.wait(pid, seconds)
            if code != 0:
                self.log("bug", why=f"{name} ended with {code}")
        self.pids.clear()

    def _spawn_client(self, role: str) -> None:
        self.spawned += 1
        name = f"{role}-{self.spawned}"
        self.pids[name] = self.fork_server.spawn(run_client, asdict(self.config), role, name, f"{self.seed}-{name}")

    def _kill_client(self) -> None:
        slow = self.rng.random() < 0.8  # launchers start slowly, so they are killed less often
        killable = [name for name in self.pids if name.startswith(KILLABLE_ROLES[1:] if slow else KILLABLE_ROLES)]
        name = self.rng.choice(killable)
        pid = self.pids.pop(name)
        os.kill(pid, signal.SIGKILL)
        self.fork_server.wait(pid)
        self.log("killed", name=name)
        self._spawn_client(name.rpartition("-")[0])

    def _cut_connections(self) -> None:
        self.log("cut", connections=self.server.cut_connections(self.rng))

    def _restart_server(self) -> None:
        mode = self.rng.choice(["immediate", "fast"])
        self.log("restarting", mode=mode)
        self.server.restart(mode)
        self.log("restarted")

    def _shorten_statement_timeout(self) -> None:
        """Set a statement timeout so short that some statements fail, and cut connections so that it applies."""
        most = self.rng.choice(["5ms", "20ms", "100ms"])
        self.log("hurry", statement_timeout=most)
        shorten = sql.SQL("ALTER DATABASE {} SET statement_timeout = {}")
        self.server.execute(shorten.format(sql.Identifier(self.database), sql.Literal(most)))
        self.server.cut_connections(self.rng)
        time.sleep(self.rng.uniform(0.05, 0.4))
        self._reset_statement_timeout()

    def _reset_statement_timeout(self) -> None:
        self.server.execute(sql.SQL("ALTER DATABASE {} RESET statement_timeout").format(sql.Identifier(self.database)))
        terminate = sql.SQL("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = {}")
        self.server.execute(terminate.format(sql.Literal(self.database)))


@dataclass
class UnreliableServices:
    """The model's provider and the receiver of events; unless ``is_reliable``, about half of the requests fail."""

    rng: random.Random
    delivered_ids: set[str] = field(default_factory=set)
    is_reliable: bool = False

    def reply_as_model(self, request: Request) -> Reply | None:
        """Return a valid reply or one of the failures of ``BEHAVIOURS``."""
        kind = "well" if self.is_reliable or self.rng.random() < 0.5 else self.rng.choice(list(BEHAVIOURS))
        if not self.is_reliable and self.rng.random() < 0.1:
            time.sleep(0.5)
        return reply_with_json(reply_by_schema)(request) if kind == "well" else BEHAVIOURS[kind](request)

    def receive(self, message: Message, reply: Callable[[bytes], None]) -> None:
        """Take an event, refuse it, answer slowly, or drop the connection before or after taking it."""
        how = "take" if self.is_reliable else self.rng.choice(["take", "take", "refuse", "slow", "drop", "forget"])
        if how == "slow":
            time.sleep(0.3)
        if how == "refuse":
            reply(status_reply(self.rng.choice([429, 500, 503])))
        elif how != "drop":
            self.delivered_ids.add(message.headers["webhook-id"])
            if how != "forget":
                reply(status_reply(200))
