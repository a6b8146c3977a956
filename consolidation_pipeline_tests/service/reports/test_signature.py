"""Signatures of reports: by the key, of the whole content, in JSON and in pages."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.reports.job_report import FORMAT, format_json
from consolidation_pipeline.service.reports.report_page import format_page, verify_file
from consolidation_pipeline.service.reports.signature import sign_report, verify_report

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
SEED = base64.b64encode(bytes(range(32))).decode()
PEM = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
PUBLIC = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()


def sample_report() -> dict[str, Any]:
    """Return a small report; its texts have to be escaped in a page."""
    row = {"table": "task_memories", "id": "1", "change": "changed", "text": "<script>alert('ü & 中')</script></pre>"}
    group = {"operation": "merge", "rule": "merged", "reason": None, "confidence": 0.5, "made_of": [], "rows": [row]}
    return {
        "format": FORMAT,
        "project": "p",
        "job": "consolidate",
        "status": "completed",
        "code": {"version": "1"},
        "options": {"t_merge": "auto"},
        "inputs": {"memories": 1, "hash": "sha256:0"},
        "changes": {
            "hash": "sha256:0",
            "groups": 1,
            "rows": 1,
            "groups_rolled_back_since": 0,
            "groups_by_operation": {"merge": 1},
        },
        "groups": [group],
        "cost": {"usd": 0.1, "tokens": 1, "calls": 1, "from_cache": 0},
        "phases": {"clusters": {"status": "completed"}},
        "notices": {},
        "checks": {"no_memory_is_abandoned": {"holds": True}},
        "memory_tests": {"a test": {"kind": "must_find", "passes": False, "failure": "not found"}},
        "run": {
            "job_id": "j",
            "trigger": "manual",
            "triggered_by": "me",
            "started_at": None,
            "seconds": None,
            "seconds_by_phase": {"clusters": 0.1},
            "error": None,
            "group_ids": ["g"],
        },
    }


@pytest.mark.parametrize("key", [SEED, PEM, PEM.replace("\n", "\\n")], ids=["base64", "pem", "pem on one line"])
def test_signed_report_is_verified(key: str) -> None:
    signed = sign_report(sample_report(), key)
    found = verify_report(json.loads(format_json(signed)), PUBLIC)
    assert found.problem is None
    assert (found.key or "").startswith("SHA256:")
    assert sign_report(signed, key) == signed


def test_any_changed_fact_is_found() -> None:
    def change(value: Any) -> Any:
        return not value if isinstance(value, bool) else value + 1 if isinstance(value, int | float) else f"{value}x"

    def each(part: Any) -> list[tuple[Any, Any]]:
        items = list(part.items() if isinstance(part, dict) else enumerate(part))
        inner = [found for _, value in items if isinstance(value, dict | list) for found in each(value)]
        return [(part, name) for name, value in items if not isinstance(value, dict | list)] + inner

    content = sign_report(sample_report(), SEED)
    signature = {"signature": content.pop("signature")}
    places = each(content)
    assert len(places) > 30
    for part, name in places:
        kept = part[name]
        part[name] = change(kept)
        assert verify_report(content | signature).problem == "the report was changed after it was signed", name
        part[name] = kept
    assert verify_report(content | signature).problem is None
    assert "changed after" in (verify_report({**content, **signature, "more": 1}).problem or "")


def test_unsigned_and_foreign_reports_are_told() -> None:
    assert verify_report(sample_report()).problem == "the report is not signed"
    signed = sign_report(sample_report(), SEED)
    other = base64.b64encode(OTHER.public_bytes_raw()).decode()
    assert "was signed with another key" in (verify_report(signed, other).problem or "")
    for signature in ({}, "x", {**signed["signature"], "value": "%"}, {**signed["signature"], "public_key": "AAAA"}):
        assert verify_report({**signed, "signature": signature}).problem == "the signature is damaged"
    assert "only Ed25519" in (verify_report({**signed, "signature": {"algorithm": "none"}}).problem or "")


def test_bad_keys_are_refused_unquoted() -> None:
    rsa_key = rsa.generate_private_key(65537, 2048)
    encodings = (Encoding.PEM, PrivateFormat.PKCS8)
    wrong = {
        "s3cret": "neither PEM nor 32 bytes",
        base64.b64encode(b"s3cret").decode(): "neither PEM nor 32 bytes",
        "-----BEGIN PRIVATE KEY-----\ns3cret\n-----END PRIVATE KEY-----": "neither PEM nor 32 bytes",
        PUBLIC: "neither PEM nor 32 bytes",
        KEY.private_bytes(*encodings, BestAvailableEncryption(b"pw")).decode(): "is encrypted",
        rsa_key.private_bytes(*encodings, NoEncryption()).decode(): "of another kind .*, not Ed25519",
    }
    for key, told in wrong.items():
        with pytest.raises(UsageError, match=told) as raised:
            sign_report(sample_report(), key)
        assert "s3cret" not in str(raised.value)
    with pytest.raises(UsageError, match="the public key is neither PEM"):
        verify_report(sample_report(), "nonsense")


@pytest.mark.parametrize("write", [format_json, format_page], ids=["json", "html"])
def test_changed_files_are_found(tmp_path: Path, write: Any) -> None:
    path = tmp_path / "report"
    text = write(sign_report(sample_report(), SEED))
    path.write_text(text, "utf-8")
    assert verify_file(path, PUBLIC).problem is None
    for old, new in (("completed", "failed"), ("consolidate", "decay"), ("not found", "found"), ("\n", "\n ")):
        assert old in text
        path.write_text(text.replace(old, new, 1), "utf-8")
        assert verify_file(path, PUBLIC).problem is not None, old
    path.write_text(text.replace("0.1", "0.2"), "utf-8")
    assert verify_file(path, PUBLIC).problem == "the report was changed after it was signed"


def test_pages_are_self_contained() -> None:
    page = format_page(sign_report(sample_report(), SEED))
    assert "<script" not in page
    assert "src=" not in page
    assert "href=" not in page
    assert "&lt;script&gt;" in page
    assert '<span class="good">Signed</span>' in page
    assert "The report is not signed" in format_page(sample_report())


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"{", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"\xff", "it is not UTF-8"),
        (b"<p>hello", "it is a page without one"),
        (b"[]", f"is no report of the format {FORMAT}"),
        (b'{"format": "other"}', f"is no report of the format {FORMAT}"),
    ],
)
def test_files_without_a_report_are_refused(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=told):
        verify_file(path)
    with pytest.raises(UsageError, match="cannot be read"):
        verify_file(tmp_path / "none")


def test_signed_scraps_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(json.dumps(sign_report({"format": FORMAT}, SEED)), "utf-8")
    assert "the file around it was changed" in (verify_file(path).problem or "")
