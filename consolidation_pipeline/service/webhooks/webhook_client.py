"""Client of the webhook: one attempt to deliver a message, signed as https://www.standardwebhooks.com specifies."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from uuid import UUID

from consolidation_pipeline.service.webhooks.webhook_config import Webhook, find_addresses

# Limit of an attempt in seconds, without the name lookup. The specification advises 15 to 30.
TRY_SECONDS = 15.0
_CONNECT_SECONDS = 5.0
# The answer's body is read up to these limits, so that the receiver is not cut off. Its content does not matter.
_ANSWER_SECONDS = 1.0
_ANSWER_BYTES = 65536


def send(webhook: Webhook, id_: UUID, body: str) -> str | None:
    """Try once to deliver a message; return None, or why the receiver did not take it. The reason holds no secret.

    The connection goes to an address that was checked; the name is not looked up again. Redirects are not followed.
    Proxies and the environment are not used.

    Raises:
        InvalidWebhookError: the host has an address that is not allowed.
    """
    import httpx

    try:
        addresses = find_addresses(webhook)
        status = asyncio.run(_post(webhook, addresses, id_, body))
    except socket.gaierror:
        return f"the host {webhook.host} is not found"
    except (TimeoutError, httpx.TimeoutException):
        return "no answer in time"
    except httpx.RemoteProtocolError as error:
        # The library's message is not used: it quotes the receiver, which may repeat the request with its secrets.
        hint = getattr(_root_cause(error), "error_status_hint", None)
        reasons = {None: "the connection was closed without an answer", 431: "the answer's headers are too long"}
        return reasons.get(hint, "the receiver does not speak HTTP/1")
    except (OSError, httpx.TransportError) as error:
        return f"no connection: {_root_cause(error)}"
    if 200 <= status < 300:
        return None
    phrase = HTTPStatus(status).phrase if status in list(HTTPStatus) else "unknown status"
    return f"{status} {phrase}{' (redirects are not followed)' if 300 <= status < 400 else ''}"


def _root_cause(error: BaseException) -> BaseException:
    cause = error.__cause__ or error.__context__
    return error if cause is None else _root_cause(cause)


async def _post(webhook: Webhook, addresses: Sequence[str], id_: UUID, body: str) -> int:
    """Send the message to the first address that accepts a connection; return the status of the answer."""
    import httpx
    from standardwebhooks import Webhook as Signer

    now = datetime.now(UTC)
    headers = {
        "Host": webhook.authority,
        "User-Agent": "consolidation-pipeline",
        "Content-Type": "application/json",
        "Connection": "close",
        "webhook-id": str(id_),
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Signer(webhook.secret).sign(str(id_), now, body),
    }
    # The certificate must be that of the host, not of the address. The path stays out of the URL, which httpx logs.
    extensions = {"sni_hostname": webhook.host, "target": webhook.target.encode()}
    urls = [httpx.URL(scheme=webhook.scheme, host=address, port=webhook.port) for address in addresses]
    # The system's certificates, not httpx's own. httpx limits single steps only, hence the deadlines.
    tls, limits = ssl.create_default_context(), httpx.Timeout(None, connect=_CONNECT_SECONDS)
    async with httpx.AsyncClient(verify=tls, trust_env=False, timeout=limits) as client:
        requests = [
            client.build_request("POST", url, content=body, headers=headers, extensions=extensions) for url in urls
        ]
        async with asyncio.timeout(TRY_SECONDS):
            # Only a failure of the last address is the result.
            for request in requests[:-1]:
                with suppress(httpx.ConnectError, httpx.ConnectTimeout):
                    response = await client.send(request, stream=True)
                    break
            else:
                response = await client.send(requests[-1], stream=True)
        with suppress(TimeoutError, httpx.HTTPError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                async for _ in response.aiter_raw():
                    if response.num_bytes_downloaded >= _ANSWER_BYTES:
                        break
        return response.status_code
