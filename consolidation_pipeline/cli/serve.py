"""``consolidation serve``: HTTP API, web pages and MCP over HTTP."""

from __future__ import annotations

import errno
import logging
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from consolidation_pipeline.cli.cli_context import open_store
from consolidation_pipeline.cli.output import print_note
from consolidation_pipeline.errors import ConsolidationError

if TYPE_CHECKING:
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import Engine

# Time for requests under way at shutdown; the longest one is the plan of a large project.
_GRACE_SECONDS = 30
# Connections that wait to be accepted: asyncio's own number is 100, uvicorn's this.
_BACKLOG = 2048


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; default: CONSOLIDATION_API_HOST.")] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port to listen on; default: CONSOLIDATION_API_PORT.")
    ] = None,
) -> None:
    """Serve the HTTP API, the web pages and MCP over HTTP.

    Prints the addresses when it listens. On shutdown, requests under way are finished first.
    """
    import uvicorn

    from consolidation_pipeline.api.app import create_app
    from consolidation_pipeline.api.connection_limits import limit_connections

    engine, settings = open_store()
    given = {"api_host": host, "api_port": port}
    settings = settings.model_copy(update={name: value for name, value in given.items() if value is not None})
    app = create_app(engine, settings)
    logging.getLogger("consolidation_pipeline.api").setLevel(logging.INFO)
    config = uvicorn.Config(
        app,
        host=settings.api_host,
        port=settings.api_port,
        log_config=None,
        access_log=False,
        server_header=False,
        http=limit_connections(settings),
        ws="none",
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    # After shutdown uvicorn raises the signal again. The shutdown was requested, so the exit code is 0.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    greeting = list(_describe_addresses(engine, settings))

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            print_note("\n".join(greeting))

    with ExitStack() as stack:
        listeners = [stack.enter_context(one) for one in open_listeners(settings.api_host, settings.api_port)]
        Server(config).run(sockets=listeners)


def open_listeners(host: str, port: int) -> list[socket.socket]:
    """Return a socket that listens for each address of ``host``.

    Raises:
        ConsolidationError: The port is in use or not allowed, or this machine has no such address.
    """
    listeners: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, address in dict.fromkeys((one[0], one[4]) for one in found):
            listeners.append(socket.create_server(address, family=family, backlog=_BACKLOG))
    except OSError as error:
        for listener in listeners:
            listener.close()
        reasons = {
            errno.EADDRINUSE: "another program uses it; stop that program, or choose a port with --port",
            errno.EACCES: "this user may not use it; choose a port above 1023 with --port",
            errno.EADDRNOTAVAIL: "this machine has no such address; choose one with --host",
        }
        reason = reasons.get(error.errno or 0, error.strerror or str(error))
        raise ConsolidationError(f"{_format_address(host, port)} cannot be listened on: {reason}") from None
    return listeners


def _format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _describe_addresses(engine: Engine, settings: Settings) -> Iterator[str]:
    """Yield the addresses, and how to create a key if there is none."""
    from consolidation_pipeline.service.admin.api_keys import list_keys

    url = f"http://{_format_address(settings.api_host, settings.api_port)}"
    yield f"listening on {url} (Ctrl-C stops it)"
    yield f"{url}/docs for programs"
    yield f"{url}/review for people"
    if settings.api_auth == "off":
        yield "keys are off: everyone on this machine may do everything"
    elif all(key.revoked_at for key in list_keys(engine)):
        yield "there is no key yet: consolidation keys create --role admin"
