"""Numbers with their nouns, for messages to people."""

_PLURALS = {
    "memory": "memories",
    "merged memory": "merged memories",
    "summary": "summaries",
    "playbook entry": "playbook entries",
    "entry": "entries",
    "is": "are",
    "has": "have",
    "waits": "wait",
    "matches": "match",
}


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 memory``, ``2,000 memories``."""
    return f"{number:,} {plural(number, noun)}"


def plural(number: int, noun: str) -> str:
    """Return the form of a noun for a number: ``memory`` or ``memories``."""
    return noun if number == 1 else plural_of(noun)


def plural_of(noun: str) -> str:
    """Return the plural of a noun: ``memories``."""
    return _PLURALS.get(noun, noun + "s")
