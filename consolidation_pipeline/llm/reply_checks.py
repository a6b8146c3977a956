"""Checks of replies: unknown ids, invented quotes and invented literals.

Each check returns its problems as sentences for the model, which is asked to repair the reply. Quoted parts of a reply
are escaped and shortened, because they may be text of strangers.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping

from consolidation_pipeline.core.literals.literals import KINDS, literals, stands_in

_MAX_QUOTE_CHARS = 80


def find_unknown_ids(ids: Iterable[Hashable], known: Collection[Hashable]) -> list[str]:
    """Return a problem for each id of a reply that is not ``known``."""
    allowed = ", ".join(map(str, list(known)[:20])) + (", .." if len(known) > 20 else "")
    return [f"{_quote(str(id_))} is not one of the given memories: {allowed}" for id_ in ids if id_ not in known]


def find_invented_quotes(
    quotes: Iterable[tuple[Hashable, str]], sources: Mapping[Hashable, str] | Mapping[int, str]
) -> list[str]:
    """Return a problem for each quote (id of a source, text) that its source lacks; ignores white space and case."""
    flat = {id_: _flatten(source) for id_, source in sources.items()}
    problems = []
    for id_, quote in quotes:
        wanted = _flatten(quote)
        if not any(map(str.isalnum, wanted)):
            problems.append(f"the quote {_quote(quote)} has no words: quote what memory {id_} says")
        elif wanted not in flat.get(id_, ""):
            problems.append(f"{_quote(quote)} is not what memory {_quote(str(id_))} says: quote it word for word")
    return problems


def find_invented_literals(
    text: str, sources: Iterable[str], *, kinds: Collection[str] = (*KINDS, "negation")
) -> list[str]:
    """Return a problem for each literal of ``text``, of these kinds, that no source has."""
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
    return repr(text if len(text) <= _MAX_QUOTE_CHARS else text[: _MAX_QUOTE_CHARS - 1] + "…")
