"""Messages of providers' errors, as they are stored and shown."""

import pytest

from consolidation_pipeline.llm.provider_errors import describe_error

TRACEBACK = """litellm.APIConnectionError: APIConnectionError: Some_aiException - Missing API key. Set SOME_API_KEY.
Traceback (most recent call last):
  File "/srv/people/ann/app/site-packages/litellm/main.py", line 6047, in completion
    key = "sk-abcdefghijklmnop1234"
"""


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (TRACEBACK, "Missing API key. Set SOME_API_KEY."),
        ("No such file: '/home/ann/.config/key.json'", "No such file: 'key.json'"),
        ("POST https://api.example.org/v1/chat failed", "POST https://api.example.org/v1/chat failed"),
        ("connect http://ann:secret@proxy.example.org:3128", "connect http://[redacted]@proxy.example.org:3128"),
        ("GET https://example.org/v1?key=abc123&x=1", "GET https://example.org/v1?key=[redacted]&x=1"),
        ("Incorrect API key provided: sk-proj-ab*******************wxyz.", "Incorrect API key provided: [redacted]."),
        (f"AIza{'x' * 35} gsk_{'x' * 40} hf_{'x' * 30}", "[redacted] [redacted] [redacted]"),
        ("", "ValueError"),
        ("x" * 3000, "x" * 500),
    ],
)
def test_description_keeps_the_message_alone(message: str, told: str) -> None:
    assert describe_error(ValueError(message)) == told
