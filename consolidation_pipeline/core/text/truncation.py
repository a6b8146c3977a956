"""Cut of a long text at its end."""


def truncate_at_word(text: str, max_chars: int) -> str:
    """Return at most the first ``max_chars`` characters of a text, cut at a blank if there is one near the end.

    Else it is cut between two characters, as Chinese and Japanese texts have no blanks between words.
    """
    if len(text) <= max_chars:
        return text
    head = text[:max_chars]
    words = head.rsplit(maxsplit=1)
    # A cut at a blank may take a quarter at most.
    return words[0] if len(words) > 1 and len(words[0]) * 4 >= max_chars * 3 else head
