"""Takes secrets out of texts that are stored or shown: errors of providers repeat the key they were called with."""

import os
import re
from collections.abc import Collection

_HIDDEN = "[redacted]"
_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)(_|$)", re.IGNORECASE)
# What keys look like wherever they come from: `sk-..` of most providers, our own, and whatever follows `Bearer`.
_SECRET_SHAPE = re.compile(r"\b(?:sk-|cnsl_)[\w-]{16,}|(?<=Bearer )[^\s'\"]+")
_SHORTEST = 6  # shorter values are no secrets, and taking them out would garble the text


def redact(text: str, secrets: Collection[str] = ()) -> str:
    """The text without these secrets, without those of the environment, and without what is shaped like a key."""
    known = {*secrets, *(value for name, value in os.environ.items() if _SECRET_NAME.search(name))}
    for secret in sorted(known, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, _HIDDEN)
    return _SECRET_SHAPE.sub(_HIDDEN, text)
