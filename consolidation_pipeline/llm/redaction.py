"""Redaction of secrets in texts that are stored or shown. Errors of providers may contain the caller's key."""

import os
import re
from collections.abc import Collection

_REDACTED = "[redacted]"
_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)(_|$)", re.IGNORECASE)
# Shapes of keys: `sk-..` of most providers, also if they mask its middle, `cnsl_..` of this project, those of Google,
# Groq, xAI, Hugging Face and AWS; any value after `Bearer` or `key=`, and a password in a URL.
_SECRET_SHAPE = re.compile(
    r"\b(?:sk-|cnsl_|gsk_|xai-|hf_)[\w*-]{16,}|\bAIza[\w-]{20,}|\bAKIA[A-Z0-9]{12,}"
    r"|(?<=Bearer )[^\s'\"]+|(?<=key=)[^\s&'\"]+|(?<=://)[^\s/@:]*:[^\s/@]+(?=@)"
)
_MIN_SECRET_CHARS = 6  # shorter values are no secrets, and removing them would garble the text


def redact(text: str, secrets: Collection[str] = ()) -> str:
    """Return the text without ``secrets``, secrets of the environment and anything shaped like a key."""
    known = {*secrets, *(value for name, value in os.environ.items() if _SECRET_NAME.search(name))}
    for secret in sorted(known, key=len, reverse=True):
        if len(secret) >= _MIN_SECRET_CHARS:
            text = text.replace(secret, _REDACTED)
    return _SECRET_SHAPE.sub(_REDACTED, text)
