"""Browser sessions: signed tokens that name the API key of a login.

Sessions are not stored. A token names the key and the end of the session, and is signed. Each request looks the key up,
so revoking it ends its sessions. The signing secret is in the data folder. If it were in the database, a copy of that
would be enough to forge sessions.
"""

from __future__ import annotations

import hmac
import os
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from uuid import UUID

from consolidation_pipeline.service.admin.api_keys import Principal, load_principal
from consolidation_pipeline.store.database.engine import Engine

SESSION_SECONDS = 12 * 3600
_SECRET_FILE = "session.secret"
_SECRET_BYTES = 32
_NO_KEY = "nobody"


def load_signing_secret(folder: Path) -> bytes:
    """Return the signing secret that all processes with this data folder share; create it if there is none.

    If the folder is not writable, the secret is this process's own, and sessions end with the process.
    """
    path = folder / _SECRET_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            _create_secret(path)
        return path.read_bytes()
    except OSError:
        return secrets.token_bytes(_SECRET_BYTES)


def _create_secret(path: Path) -> None:
    """Create the whole file in one step, readable by its owner only, unless another process created it first."""
    with NamedTemporaryFile(dir=path.parent, prefix=path.name) as draft, suppress(FileExistsError):
        draft.write(secrets.token_bytes(_SECRET_BYTES))
        draft.flush()
        os.link(draft.name, path)


class BrowserSessions:
    """Browser sessions that are signed with one ``secret``. ``clock`` returns seconds since 1970."""

    def __init__(self, secret: bytes, clock: Callable[[], float] = time.time) -> None:
        self._secret, self._clock = secret, clock

    def create_token(self, key_id: UUID | None) -> str:
        """Return a new token for a key; without a key, for a visitor before login, whose forms need a token too."""
        ends = int(self._clock()) + SESSION_SECONDS
        payload = f"{key_id.hex if key_id else _NO_KEY}.{ends}.{secrets.token_urlsafe(12)}"
        return f"{payload}.{self._sign('session', payload)}"

    def is_valid(self, token: str) -> bool:
        """Return True if the token is signed with this secret and has not ended."""
        payload, _, signature = token.rpartition(".")
        if not payload or not hmac.compare_digest(signature.encode(), self._sign("session", payload).encode()):
            return False
        return int(payload.split(".")[1]) > self._clock()

    def find_principal(self, engine: Engine, token: str) -> Principal | None:
        """Return the principal of a session; None before login, after its end, or if the key was revoked."""
        if not self.is_valid(token) or (key := token.partition(".")[0]) == _NO_KEY:
            return None
        return load_principal(engine, UUID(hex=key))

    def form_token(self, token: str) -> str:
        """Return the token that every form of this session must carry, against cross-site request forgery."""
        return self._sign("form", token)

    def is_valid_form(self, token: str, given: str) -> bool:
        """Return True if ``given`` is the form token of this session."""
        return hmac.compare_digest(given.encode(), self.form_token(token).encode())

    def _sign(self, purpose: str, payload: str) -> str:
        signed = hmac.digest(self._secret, f"{purpose}:{payload}".encode(), "sha256")
        return urlsafe_b64encode(signed).decode().rstrip("=")
