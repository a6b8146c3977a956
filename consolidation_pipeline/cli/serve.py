"""``consolidation serve``: HTTP API, web pages and MCP over HTTP."""

from __future__ import annotations

import logging
import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from consolidation_pipeline.cli.cli_context import open_store
from consolidation_pipeline.cli.output import print_note

if TYPE_CHECKING:
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import Engine

# Time for requests under way at shutdown; the longest one is the plan of a large project.
_GRACE_SECONDS = 30


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; default: CONSOLIDATION_API_HOST.")] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port to listen on; default: CONSOLIDATION_API_PORT.")
    ] = None,
) -> None:
    """Serve the HTTP API, the web pages and MCP over HTTP. On shutdown, requests under way are finished first."""
    import uvicorn

    from consolidation_pipeline.api.app import create_app

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
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    _announce(engine, settings)
    # After shutdown uvicorn raises the signal again. The shutdown was requested, so the exit code is 0.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    uvicorn.Server(config).run()


def _announce(engine: Engine, settings: Settings) -> None:
    """Print the addresses, and how to create a key if there is none."""
    from consolidation_pipeline.service.admin.api_keys import list_keys

    host = f"[{settings.api_host}]" if ":" in settings.api_host else settings.api_host
    print_note(f"http://{host}:{settings.api_port}/docs")
    print_note(f"http://{host}:{settings.api_port}/review for people")
    if settings.api_auth == "off":
        print_note("keys are off: everyone on this machine may do everything")
    elif all(key.revoked_at for key in list_keys(engine)):
        print_note("there is no key yet: consolidation keys create --role admin")
