"""Signature of a report: Ed25519 over its content, so that whoever has the public key sees that nothing was changed.

The private key is PEM (PKCS #8), or the 32 bytes of it in base64. The signature holds the public key, which tells who
signed only to those who know the key: ``verify_report`` therefore takes the expected one.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from consolidation_pipeline.errors import UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ALGORITHM = "Ed25519"
_KEY_BYTES = 32
_KEY_ADVICE = "`openssl genpkey -algorithm ed25519` makes one"


@dataclass(frozen=True)
class Verification:
    """Result of a verification.

    ``problem``: why the report is not as it was signed, or not by the expected key; None if it is. ``key``: fingerprint
    of the key that signed, None without a signature.
    """

    problem: str | None
    key: str | None


def sign_report(report: Mapping[str, Any], private_key: str) -> dict[str, Any]:
    """Return a report with its signature. ``report`` holds only values of JSON.

    Raises:
        UsageError: The key is not a private Ed25519 key.
    """
    key = read_private_key(private_key)
    public = key.public_key().public_bytes_raw()
    unsigned = {name: value for name, value in report.items() if name != "signature"}
    return unsigned | {
        "signature": {
            "algorithm": ALGORITHM,
            "public_key": base64.b64encode(public).decode(),
            "value": base64.b64encode(key.sign(encode_content(report))).decode(),
        }
    }


def verify_report(report: Mapping[str, Any], public_key: str | None = None) -> Verification:
    """Return if a report is as it was signed. ``public_key``: the one that is expected, as PEM or base64.

    Raises:
        UsageError: ``public_key`` is not a public Ed25519 key.
    """
    expected = None if public_key is None else read_public_key(public_key)
    signature = report.get("signature")
    if signature is None:
        return Verification("the report is not signed", None)
    try:
        if signature["algorithm"] != ALGORITHM:
            return Verification(f"the signature is {signature['algorithm']!r}: only {ALGORITHM} is known", None)
        raw = base64.b64decode(signature["public_key"], validate=True)
        value = base64.b64decode(signature["value"], validate=True)
        key = _load_public(raw)
    except (KeyError, TypeError, ValueError):
        return Verification("the signature is damaged", None)
    fingerprint = fingerprint_key(raw)
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(value, encode_content(report))
    except InvalidSignature:
        return Verification("the report was changed after it was signed", fingerprint)
    if expected is not None and expected.public_bytes_raw() != raw:
        other = fingerprint_key(expected.public_bytes_raw())
        return Verification(f"the report was signed with another key: {fingerprint} instead of {other}", fingerprint)
    return Verification(None, fingerprint)


def encode_content(report: Mapping[str, Any]) -> bytes:
    """Return the bytes that are signed: canonical JSON of the report without its signature."""
    content = {name: value for name, value in report.items() if name != "signature"}
    return json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def digest_content(report: Mapping[str, Any]) -> str:
    """Return the hash of what is signed: ``sha256:`` and 64 hexadecimal digits."""
    return f"sha256:{sha256(encode_content(report)).hexdigest()}"


def fingerprint_key(raw: bytes) -> str:
    """Return the fingerprint of a public key as OpenSSH writes it. ``raw``: its 32 bytes."""
    return f"SHA256:{base64.b64encode(sha256(raw).digest()).decode().rstrip('=')}"


def read_private_key(given: str) -> Ed25519PrivateKey:
    """Return a private key from PEM or base64. The error never quotes it.

    Raises:
        UsageError: It is no private Ed25519 key, or it is encrypted.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        if "-----BEGIN" not in given:
            return Ed25519PrivateKey.from_private_bytes(_decode_raw(given))
        # A variable of an .env file has \n for the ends of lines.
        key = load_pem_private_key(given.replace("\\n", "\n").encode(), password=None)
    except TypeError:
        raise UsageError("the signing key is encrypted: give it without a password") from None
    except (ValueError, UnsupportedAlgorithm):
        raise UsageError(f"the signing key is neither PEM nor {_KEY_BYTES} bytes in base64: {_KEY_ADVICE}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"the signing key is of another kind ({type(key).__name__}), not Ed25519: {_KEY_ADVICE}")
    return key


def read_public_key(given: str) -> Ed25519PublicKey:
    """Return a public key from PEM or base64.

    Raises:
        UsageError: It is no public Ed25519 key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        if "-----BEGIN" not in given:
            return _load_public(_decode_raw(given))
        key = load_pem_public_key(given.replace("\\n", "\n").encode())
    except (ValueError, UnsupportedAlgorithm):
        raise UsageError(f"the public key is neither PEM nor {_KEY_BYTES} bytes in base64") from None
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError(f"the public key is of another kind ({type(key).__name__}), not Ed25519")
    return key


def _load_public(raw: bytes) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return Ed25519PublicKey.from_public_bytes(raw)


def _decode_raw(given: str) -> bytes:
    try:
        raw = base64.b64decode(given.strip(), validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
    if len(raw) != _KEY_BYTES:
        raise ValueError(f"{len(raw)} bytes")
    return raw
