"""Webhook configuration and client: signature, timeouts, redirects, private addresses and TLS."""

from __future__ import annotations

import json
import logging
import re
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import standardwebhooks
from pydantic import SecretStr

from consolidation_pipeline.errors import InvalidWebhookError
from consolidation_pipeline.service.webhooks import webhook_client
from consolidation_pipeline.service.webhooks.webhook_client import send
from consolidation_pipeline.service.webhooks.webhook_config import Webhook, read_webhook
from consolidation_pipeline.settings import Settings
from consolidation_pipeline_tests.webhook_receiver import SECRET, Message, Receiver, Reply, run_receiver, status_reply

ID = UUID("0f3c9a2e-1111-4222-8333-444455556666")
BODY = json.dumps({"type": "consolidation.completed", "data": {"text": "übers Netz"}}, ensure_ascii=False)


@pytest.fixture(scope="module")
def shared_receiver() -> Iterator[Receiver]:
    with run_receiver() as receiver:
        yield receiver


@pytest.fixture
def receiver(shared_receiver: Receiver) -> Receiver:
    shared_receiver.messages.clear()
    shared_receiver.answer = lambda _, reply: reply(status_reply(200))
    return shared_receiver


def make_webhook(url: str, *, private: bool = True, secret: str | None = SECRET) -> Webhook:
    found = read_webhook(
        Settings(
            webhook_url=SecretStr(url),
            webhook_secret=None if secret is None else SecretStr(secret),
            webhook_allow_private=private,
        )
    )
    assert found is not None
    return found


def test_webhook_is_none_without_url() -> None:
    assert read_webhook(Settings(webhook_url=None)) is None


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/hunter2",
        "example.com/hunter2",
        "https:///hunter2",
        "https://me:hunter2@example.com/",
        "https://example.com:99999/hunter2",
        "https://example.com:0/hunter2",
        "https://[::1/hunter2",
        "https://example.com/hunter2 x",
        "https://example.com/hunter2\r\nX-Evil: 1",
        "https://exämple.com/hunter2",
    ],
)
def test_invalid_webhook_url_is_refused_unshown(url: str) -> None:
    with pytest.raises(InvalidWebhookError, match="CONSOLIDATION_WEBHOOK_URL must be") as refused:
        make_webhook(url)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("host", ["a..b.example", f"{'x' * 64}.example", ".example"])
def test_host_that_is_no_name_is_named(host: str) -> None:
    with pytest.raises(InvalidWebhookError, match=rf"host '{re.escape(host)}' of .*URL is not") as error:
        make_webhook(f"https://{host}/hunter2")
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("secret", [None, "whsec_", "correct horse hunter2", "whsec_a"])
def test_webhook_requires_valid_secret(secret: str | None) -> None:
    with pytest.raises(InvalidWebhookError, match="CONSOLIDATION_WEBHOOK_SECRET must be whsec_") as refused:
        make_webhook("https://example.com/", secret=secret)
    assert "hunter2" not in str(refused.value)


def test_webhook_repr_hides_path_and_secret() -> None:
    found = make_webhook("https://example.com/hunter2?token=hunter2")
    shown = f"{found} {found!r} {Settings(webhook_url=SecretStr('https://example.com/hunter2'))!r}"
    assert "https://example.com" in shown
    assert "hunter2" not in shown
    assert SECRET not in shown


def test_sent_message_verifies_with_signature(receiver: Receiver) -> None:
    assert send(make_webhook(receiver.url), ID, BODY) is None
    (message,) = receiver.messages
    assert message.line == "POST /hooks/t0ken?room=1 HTTP/1.1"
    assert message.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert message.headers["content-type"] == "application/json"
    assert message.headers["webhook-id"] == str(ID)
    assert standardwebhooks.Webhook(SECRET).verify(message.text, message.headers) == json.loads(BODY)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(SECRET).verify(message.text + " ", message.headers)
    sent = datetime.fromtimestamp(int(message.headers["webhook-timestamp"]), UTC)
    assert abs(datetime.now(UTC) - sent) < timedelta(minutes=5)


def test_signature_matches_specification_example() -> None:
    signer = standardwebhooks.Webhook(SECRET)
    at = datetime.fromtimestamp(1614265330, UTC)
    expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", at, '{"test": 2432232314}') == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (status_reply(204), None),
        (status_reply(500), "500 Internal Server Error"),
        (status_reply(410), "410 Gone"),
        (status_reply(599), "599 unknown status"),
        (b"", "closed without an answer"),
        (b"HTTP/1.1 200 OK\r\n", "closed without an answer"),
        (b"220 smtp.example.com ESMTP\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000 + b"\r\n\r\n", "headers are too long"),
    ],
)
def test_only_2xx_status_counts_as_delivered(receiver: Receiver, answer: bytes, expected: str | None) -> None:
    receiver.then(answer)
    error = send(make_webhook(receiver.url), ID, BODY)
    assert error == expected or (error is not None and expected is not None and expected in error)


def test_webhook_redirect_is_not_followed(receiver: Receiver) -> None:
    receiver.then(status_reply(307, Location=receiver.url))
    assert send(make_webhook(receiver.url), ID, BODY) == "307 Temporary Redirect (redirects are not followed)"
    assert len(receiver.messages) == 1


def test_slow_receiver_runs_into_timeout(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_client, "TRY_SECONDS", 0.3)

    def drip(_: Message, reply: Reply) -> None:
        while not receiver.closing.wait(0.05):
            reply(b"H")

    receiver.answer = drip
    assert send(make_webhook(receiver.url), ID, BODY) == "no answer in time"


def test_slow_response_body_is_not_awaited(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_client, "_ANSWER_SECONDS", 0.2)

    def drip(_: Message, reply: Reply) -> None:
        reply(b"HTTP/1.1 200 OK\r\n\r\n")
        while not receiver.closing.wait(0.05):
            reply(b"x")

    receiver.answer = drip
    assert send(make_webhook(receiver.url), ID, BODY) is None


def test_error_and_log_hide_webhook_path(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Libraries that other tests of this process load may have silenced httpx.
    monkeypatch.setattr(logging.getLogger("httpx"), "disabled", False)
    monkeypatch.setattr(logging.getLogger("httpx"), "propagate", True)
    receiver.then(b"POST /hooks/t0ken HTTP/1.1\r\n\r\n", status_reply(200))
    with caplog.at_level(logging.INFO, logger="httpx"):
        error = send(make_webhook(receiver.url), ID, BODY)
        assert send(make_webhook(receiver.url), ID, BODY) is None
    assert "HTTP Request: POST" in caplog.text
    assert "t0ken" not in f"{error} {caplog.text}"


def test_webhook_ignores_proxy_environment(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert send(make_webhook(receiver.url), ID, BODY) is None


def test_webhook_path_is_sent_unchanged(receiver: Receiver) -> None:
    target = '/a/../b//%7e|{c}?q="d"&e=[f]\''
    assert send(make_webhook(f"http://127.0.0.1:{receiver.port}{target}"), ID, BODY) is None
    assert receiver.messages[0].line == f"POST {target} HTTP/1.1"


def test_next_resolved_address_is_tried(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    stub_name_lookup(monkeypatch, [["127.0.0.2", "127.0.0.1"], ["127.0.0.2", "127.0.0.3"]])
    url = f"http://receiver.example:{receiver.port}/"
    assert send(make_webhook(url), ID, BODY) is None
    assert "'127.0.0.3'" in str(send(make_webhook(url), ID, BODY))


def test_large_response_body_is_ignored(receiver: Receiver) -> None:
    receiver.then(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n" + b"x" * 10_000_000)
    assert send(make_webhook(receiver.url), ID, BODY) is None


def test_unreachable_receiver_returns_error(monkeypatch: pytest.MonkeyPatch) -> None:
    stub_name_lookup(monkeypatch, [])
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        error = send(make_webhook(f"http://127.0.0.1:{closed.getsockname()[1]}/hunter2"), ID, BODY)
    assert error is not None
    assert error.startswith("no connection: ")
    assert "hunter2" not in error
    assert send(make_webhook("http://receiver.example/"), ID, BODY) == "the host receiver.example is not found"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]", "0"])
def test_private_address_is_refused_in_any_notation(receiver: Receiver, host: str) -> None:
    with pytest.raises(InvalidWebhookError, match=r"not a public address; CONSOLIDATION_WEBHOOK_ALLOW_PRIVATE"):
        send(make_webhook(f"http://{host}:{receiver.port}/hunter2", private=False), ID, BODY)
    assert receiver.messages == []


def test_any_private_resolved_address_is_refused(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    stub_name_lookup(monkeypatch, [["8.8.8.8", "127.0.0.1"]])
    with pytest.raises(InvalidWebhookError, match=r"127\.0\.0\.1 is not a public address"):
        send(make_webhook(f"http://receiver.example:{receiver.port}/", private=False), ID, BODY)
    assert receiver.messages == []


def test_client_connects_to_checked_address(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    stub_name_lookup(monkeypatch, [["127.0.0.1"], ["192.0.2.1"]])
    assert send(make_webhook(f"http://receiver.example:{receiver.port}/"), ID, BODY) is None
    assert receiver.messages[0].headers["host"] == f"receiver.example:{receiver.port}"


def stub_name_lookup(monkeypatch: pytest.MonkeyPatch, answers: list[list[str]]) -> None:
    """Stub the lookups of receiver.example: one list of addresses each, then not found."""
    real = socket.getaddrinfo

    def look_up(host: Any, port: Any, *how: Any, **options: Any) -> Any:
        if host != "receiver.example":
            return real(host, port, *how, **options)
        if not answers:
            raise socket.gaierror("name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in answers.pop(0)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


def test_certificate_must_match_host_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = write_certificate(tmp_path, "receiver.example")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    stub_name_lookup(monkeypatch, [["127.0.0.1"], ["127.0.0.1"]])
    with run_receiver(tls) as receiver:
        url = f"https://receiver.example:{receiver.port}/"
        assert "certificate verify failed" in str(send(make_webhook(url), ID, BODY))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert send(make_webhook(url), ID, BODY) is None
        assert "certificate verify failed" in str(send(make_webhook(receiver.url), ID, BODY))
        assert len(receiver.messages) == 1


def write_certificate(folder: Path, host: str) -> Path:
    """Write a self-signed certificate of ``host`` and its key to one file; return its path."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        issuer_name=name,
        subject_name=name,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - timedelta(hours=1),
        not_valid_after=now + timedelta(hours=1),
    ).add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / "certificate.pem"
    path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(pem) + private)
    return path
