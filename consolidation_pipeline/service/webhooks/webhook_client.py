"""One try to send a message to the webhook, signed as https://www.standardwebhooks.com specifies."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from uuid import UUID

from consolidation_pipeline.service.webhooks.webhook_config import Webhook, find_addresses

# A whole try, but for finding the address; the specification advises 15 to 30 seconds.
TRY_SECONDS = 15.0
_CONNECT_SECONDS = 5.0
# An answer is read so that its sender is not cut off, but nobody waits for it or needs it.
_ANSWER_SECONDS = 1.0
_ANSWER_BYTES = 65536


def send(webhook: Webhook, id_: UUID, body: str) -> str | None:
    """Try once to deliver a message; why not, in words that hold no secret, or None: the receiver took it.

    The connection goes to an address that was checked, whatever the name stands for a moment later. Redirects are not
    followed, proxies not used.

    Raises:
        InvalidWebhookError: the host has an address that is not allowed.
    """
    try:
        addresses = find_addresses(webhook)
        status = asyncio.run(_post(webhook, addresses, _request(webhook, id_, body)))
    except socket.gaierror:
        return f"the host {webhook.host} is not found"
    except TimeoutError:
        return "no answer in time"
    except asyncio.IncompleteReadError:
        return "the connection was closed without an answer"
    except asyncio.LimitOverrunError:
        return "the answer's headers are too long"
    except OSError as error:
        return f"no connection: {error}"
    return None if 200 <= status < 300 else _describe(status)


def _describe(status: int) -> str:
    known = status in list(HTTPStatus)
    more = " (redirects are not followed)" if 300 <= status < 400 else ""
    return f"{status} {HTTPStatus(status).phrase if known else 'unknown status'}{more}"


def _request(webhook: Webhook, id_: UUID, body: str) -> bytes:
    content = body.encode()
    headers = {
        "Host": webhook.authority,
        "User-Agent": "consolidation-pipeline",
        "Content-Type": "application/json",
        "Content-Length": str(len(content)),
        "Connection": "close",
        **_signature(webhook, id_, body),
    }
    lines = [f"POST {webhook.target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("ascii") + content


def _signature(webhook: Webhook, id_: UUID, body: str) -> Mapping[str, str]:
    from standardwebhooks import Webhook as Signer

    now = datetime.now(UTC)
    return {
        "webhook-id": str(id_),
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Signer(webhook.secret).sign(str(id_), now, body),
    }


async def _post(webhook: Webhook, addresses: Sequence[str], request: bytes) -> int:
    # Not an HTTP library: those limit each step, and a receiver that sends a byte now and then would hold us for hours.
    writer = None
    try:
        async with asyncio.timeout(TRY_SECONDS):
            reader, writer = await _connect(webhook, addresses)
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
        with suppress(asyncio.IncompleteReadError, OSError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                await reader.readexactly(_ANSWER_BYTES)
    finally:
        if writer is not None:
            writer.transport.abort()
    status = re.match(rb"HTTP/1\.\d (\d{3})\b", head)
    if status is None:
        raise ConnectionError("what answers does not speak HTTP/1")
    return int(status[1])


async def _connect(webhook: Webhook, addresses: Sequence[str]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """To the first address that answers. The certificate must be that of the host, not of the address."""
    is_safe = webhook.scheme == "https"
    tls = ssl.create_default_context() if is_safe else None
    failure: OSError = ConnectionError("the host has no address")
    for address in addresses:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                return await asyncio.open_connection(
                    address, webhook.port, ssl=tls, server_hostname=webhook.host if is_safe else None
                )
        except OSError as error:
            failure = error
    raise failure
