"""Sessions in a browser: a signed note of the key that somebody logged in with, never the key itself.

A session is not stored: its token says which key and until when, and is signed. Each request looks the key up, so that
revoking it ends its sessions. The secret that signs lies in the data folder and not in the database, a copy of which
would otherwise be enough to forge sessions.
"""

from __future__ import annotations

import hmac
import os
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile
from uuid import UUID

from consolidation_pipeline.service.admin.api_keys import Principal, recognize
from consolidation_pipeline.store.database.engine import Engine

LASTS_SECONDS = 12 * 3600
_FILE = "session.secret"
_BYTES = 32
_NOBODY = "nobody"


def load_secret(folder: Path) -> bytes:
    """The secret that the processes with this data folder share; made when there is none.

    Where the folder cannot be written it is this process's own, and sessions end with the process.
    """
    path = folder / _FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            _write_once(path)
        return path.read_bytes()
    except OSError:
        return secrets.token_bytes(_BYTES)


def _write_once(path: Path) -> None:
    """Write the file whole, readable by its owner alone; where another process was quicker, its file stays."""
    with NamedTemporaryFile(dir=path.parent, prefix=path.name) as draft:
        draft.write(secrets.token_bytes(_BYTES))
        draft.flush()
        try:
            os.link(draft.name, path)
        except FileExistsError:
            return


class Sessions:
    """Begins and reads sessions, all signed with one ``secret``. ``clock``: seconds since 1970."""

    def __init__(self, secret: bytes, clock: Callable[[], float] = time.time) -> None:
        self._secret, self._clock = secret, clock

    def begin(self, key_id: UUID | None) -> str:
        """A new token for a key; None: for somebody who has not logged in, whose forms need one too."""
        ends = int(self._clock()) + LASTS_SECONDS
        said = f"{key_id.hex if key_id else _NOBODY}.{ends}.{secrets.token_urlsafe(12)}"
        return f"{said}.{self._sign('session', said)}"

    def is_valid(self, token: str) -> bool:
        """Whether this is a token of ours that has not ended."""
        said, _, signature = token.rpartition(".")
        if not said or not hmac.compare_digest(signature.encode(), self._sign("session", said).encode()):
            return False
        return int(said.split(".")[1]) > self._clock()

    def identify(self, engine: Engine, token: str) -> Principal | None:
        """Who has logged in; None: nobody, it has ended, or the key was revoked."""
        if not self.is_valid(token) or (key := token.partition(".")[0]) == _NOBODY:
            return None
        return recognize(engine, UUID(hex=key))

    def form_token(self, token: str) -> str:
        """What every form of this session must carry, which no other site can know."""
        return self._sign("form", token)

    def fits(self, token: str, given: str) -> bool:
        """Whether a form came from a page of this session."""
        return hmac.compare_digest(given.encode(), self.form_token(token).encode())

    def _sign(self, purpose: str, said: str) -> str:
        signed = hmac.digest(self._secret, f"{purpose}:{said}".encode(), "sha256")
        return urlsafe_b64encode(signed).decode().rstrip("=")
