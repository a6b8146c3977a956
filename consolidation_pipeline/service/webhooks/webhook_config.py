"""Configuration of the webhook: URL, signing secret, allowed addresses."""

from __future__ import annotations

import binascii
import re
import socket
from base64 import b64decode
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from consolidation_pipeline.core.public_addresses import is_public
from consolidation_pipeline.errors import InvalidWebhookError
from consolidation_pipeline.settings import Settings

_DEFAULT_PORTS = {"http": 80, "https": 443}
_SECRET_FORMAT = re.compile(r"(?:whsec_)?([A-Za-z0-9+/]+)=*")
_SECRET_ADVICE = "CONSOLIDATION_WEBHOOK_SECRET must be whsec_ followed by 24 to 64 random bytes in base64"


@dataclass(frozen=True)
class Webhook:
    """Receiver of messages. ``str`` gives scheme, host and port only: the path may be secret too.

    ``target``: path and query. ``allow_private``: the host may have an address that is not public.
    """

    scheme: str
    host: str
    port: int
    target: str = field(repr=False)
    secret: str = field(repr=False)
    allow_private: bool = False

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"

    @property
    def authority(self) -> str:
        """Host, and port if it is not the scheme's default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def read_webhook(settings: Settings) -> Webhook | None:
    """Return the configured webhook, None if there is none.

    Raises:
        InvalidWebhookError: the URL is invalid, or the secret is missing or invalid.
    """
    if settings.webhook_url is None:
        return None
    parts = _parse_url(settings.webhook_url.get_secret_value())
    if settings.webhook_secret is None:
        raise InvalidWebhookError(f"the webhook has no secret: {_SECRET_ADVICE}")
    return Webhook(
        parts.scheme,
        parts.hostname or "",
        parts.port or _DEFAULT_PORTS[parts.scheme],
        (parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        _check_secret(settings.webhook_secret.get_secret_value()),
        settings.webhook_allow_private,
    )


def _parse_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url if re.fullmatch("[!-~]+", url) else "")
        is_valid = parts.scheme in _DEFAULT_PORTS and parts.hostname and parts.port != 0
    except ValueError:  # invalid port or IPv6 address
        is_valid = False
    if not is_valid or parts.username is not None:
        raise InvalidWebhookError(
            "CONSOLIDATION_WEBHOOK_URL must be https://host/path (or http), without user and password; special "
            "characters must be percent-encoded"
        )
    _check_host(parts.hostname or "")
    return parts


def _check_host(host: str) -> None:
    try:
        host.encode("idna")
    except UnicodeError as error:
        raise InvalidWebhookError(
            f"the host {host!r} of CONSOLIDATION_WEBHOOK_URL is not a host name ({error}): give labels of 1 to 63 "
            "characters with single dots between them"
        ) from None


def _check_secret(secret: str) -> str:
    found = _SECRET_FORMAT.fullmatch(secret)
    try:
        # Checked here, because the library ignores characters that are not base64.
        is_valid = found is not None and b64decode(found[1] + "==")
    except binascii.Error:
        is_valid = False
    if not is_valid:
        raise InvalidWebhookError(f"the webhook's secret is invalid: {_SECRET_ADVICE}")
    return secret


def find_addresses(webhook: Webhook) -> list[str]:
    """Return the IP addresses of the webhook's host.

    Raises:
        InvalidWebhookError: an address is not public, and private ones are not allowed.
        OSError: the host name is not found.
    """
    found = socket.getaddrinfo(webhook.host, webhook.port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(address[0]) for *_, address in found))
    private = [address for address in addresses if not is_public(address)]
    if private and not webhook.allow_private:
        raise InvalidWebhookError(
            f"the webhook {webhook} is refused: {private[0]} is not a public address; "
            "CONSOLIDATION_WEBHOOK_ALLOW_PRIVATE=true allows it"
        )
    return addresses
