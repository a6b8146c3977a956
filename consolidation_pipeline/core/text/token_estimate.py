"""How many tokens a text takes, without the tokenizer of any one model."""

from __future__ import annotations

# English prose has 4.5 bytes to a token of OpenAI's tokenizers, code 3, Chinese, Japanese and Cyrillic 3 to 6; ids of
# hexadecimal digits alone come to 1, and are the smallest part of a text.
BYTES_PER_TOKEN = 3


def estimate_tokens(text: str) -> int:
    """Tokens of ``text``, rather too many than too few: a third of its bytes in UTF-8, rounded up.

    Never less for a longer text, and never more for a whole than for its parts together.
    """
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)
