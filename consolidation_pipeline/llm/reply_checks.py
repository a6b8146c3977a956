"""What a reply must not say: each guard returns what is wrong, in words for the model; nothing = fine.

A reply repeats what strangers wrote, so it is quoted here in an escaped and shortened form.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping

from consolidation_pipeline.core.conflicts.literals import KINDS, literals, stands_in

_SHOWN = 80


def find_unknown_ids(ids: Iterable[Hashable], known: Collection[Hashable]) -> list[str]:
    """The ids in a reply that are not among those of the prompt."""
    allowed = ", ".join(map(str, list(known)[:20])) + (", .." if len(known) > 20 else "")
    return [f"{_quote(str(id_))} is not one of the given memories: {allowed}" for id_ in ids if id_ not in known]


def find_invented_quotes(
    quotes: Iterable[tuple[Hashable, str]], sources: Mapping[Hashable, str] | Mapping[int, str]
) -> list[str]:
    """The quotes (id of a source, text) that do not stand there; white space and letter case do not count."""
    flat = {id_: _flatten(source) for id_, source in sources.items()}
    wrong = []
    for id_, quote in quotes:
        wanted = _flatten(quote)
        if not any(map(str.isalnum, wanted)):
            wrong.append(f"the quote {_quote(quote)} has no words: quote what memory {id_} says")
        elif wanted not in flat.get(id_, ""):
            wrong.append(f"{_quote(quote)} is not what memory {_quote(str(id_))} says: quote it word for word")
    return wrong


def find_invented_literals(
    text: str, sources: Iterable[str], *, kinds: Collection[str] = (*KINDS, "negation")
) -> list[str]:
    """The literals of these kinds in a text that stand in none of the sources."""
    given = list(sources)
    found = sorted(literals(text), key=lambda literal: (literal.kind, literal.value))
    return [
        f"the {literal.kind} {_quote(literal.text)} stands in none of the memories: leave it out"
        for literal in found
        if literal.kind in kinds and not any(stands_in(literal, source) for source in given)
    ]


def _flatten(text: str) -> str:
    return " ".join(text.split()).casefold()


def _quote(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
