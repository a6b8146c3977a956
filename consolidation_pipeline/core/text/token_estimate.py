"""Estimated number of tokens of a text, without the tokenizer of any model."""

from __future__ import annotations

# Bytes per token of OpenAI's tokenizers: English prose 4.5; code 3; Chinese, Japanese and Cyrillic 3 to 6. Hexadecimal
# ids have 1, but are a small part of a text.
BYTES_PER_TOKEN = 3


def estimate_tokens(text: str) -> int:
    """Return the estimated tokens of ``text``, rather too many than too few: a third of its UTF-8 bytes, rounded up.

    It is at most the sum of the estimates of the text's parts.
    """
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)
