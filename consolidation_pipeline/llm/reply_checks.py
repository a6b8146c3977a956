"""Checks of replies: unknown ids, lost facts, inventions, another language, contradictions, overruled claims.

Each check returns its problems as sentences for the model, which is asked to repair the reply. Quoted parts of a reply
are escaped and shortened, because they may be text of strangers.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import date

from consolidation_pipeline.core.differences.explanation import explain_readings
from consolidation_pipeline.core.differences.language import NAMES
from consolidation_pipeline.core.differences.language_detection import detect_language, find_clear_language
from consolidation_pipeline.core.knowledge.disputes import find_disputes, list_statements, read_sentence
from consolidation_pipeline.core.knowledge.rewrite_checks import (
    MIN_KEPT_SHARE,
    compute_kept_share,
    find_lost_denials,
    find_reversals,
)
from consolidation_pipeline.core.knowledge.source_support import IsNear, SourceWords
from consolidation_pipeline.core.literals.literals import literals, stands_in
from consolidation_pipeline.core.text.text_merge import find_missing_literals

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


def find_invented_literals(text: str, sources: Iterable[str]) -> list[str]:
    """Return a problem for each literal or negation of ``text`` that no source has."""
    given = list(sources)
    found = sorted(literals(text), key=lambda literal: (literal.kind, literal.value))
    return [
        f"the {literal.kind} {_quote(literal.text)} stands in none of the memories: leave it out"
        for literal in found
        if not any(stands_in(literal, source) for source in given)
    ]


def find_text_losses(text: str, sources: Sequence[str], *, longest: int) -> list[str]:
    """Return the problems of a ``text`` in place of its sources: too long, a fact of a source lost or reversed.

    What one source says and another one denies may be told in both ways. ``longest``: in characters.
    """
    lost = sorted(find_missing_literals(sources, text), key=lambda literal: (literal.kind, literal.value))
    return [
        *([f"it has {len(text)} characters: at most {longest} are allowed"] if len(text) > longest else []),
        *(f"the {literal.kind} {literal.text!r} is missing: keep it as it is written" for literal in lost),
        *(problem for number in range(len(sources)) for problem in _compare_source(sources, number, text)),
    ]


def _compare_source(sources: Sequence[str], number: int, text: str) -> Iterator[str]:
    source, name = sources[number], f"memory {number + 1}"
    others = [other for at, other in enumerate(sources) if at != number]
    denied = {word for other in others for word in find_reversals(source, other)}
    yield from (f"{name} says {clause!r}, and this does not: keep it" for clause in find_lost_denials(source, text))
    yield from (
        f"{name} says {word!r}, and this the opposite" for word in find_reversals(source, text) if word not in denied
    )
    if compute_kept_share(source, text) < MIN_KEPT_SHARE:
        yield f"most of what {name} says is missing: keep all of it"


def find_other_language(text: str, sources: Sequence[str]) -> list[str]:
    """Return a problem if a text is clearly in another language than its sources, which are clearly in one."""
    given = find_clear_language("\n".join(sources))
    told = find_clear_language(text)
    if given is None or told is None or given == told or {given, told} == {"zh", "ja"}:
        return []
    if not {find_clear_language(source) for source in sources} <= {given, None}:
        return []
    return [f"it is not in the language of the memories, {NAMES[given]}: write in {NAMES[given]}"]


def find_unsupported(
    text: str,
    sources: Sequence[str],
    *,
    others: Sequence[str] = (),
    is_abstract: bool = False,
    is_near: IsNear | None = None,
) -> list[str]:
    """Return a problem for each sentence of a text that nothing in its sources supports; see ``SourceWords``.

    Args:
        others: Texts whose words count too, in any language.
        is_abstract: Judge only sentences with a sign of an injection.
        is_near: As of ``SourceWords``.
    """
    unsupported = SourceWords(sources, others, is_near).find_unsupported(text, is_abstract=is_abstract)
    return [f"{_quote(sentence)} is what none of the memories says: leave it out" for sentence in unsupported]


def find_contradictions(texts: Sequence[str]) -> list[str]:
    """Return a problem for each two sentences of a reply that contradict each other."""
    sentences = list_statements(texts, [None] * len(texts))
    return [
        f"{_quote(sentences[dispute.rule].text)} and {_quote(sentences[at].text)} contradict each other: tell the one "
        "that holds, and in the same sentence what the other says"
        for dispute in find_disputes(sentences)
        for at in dispute.overruled
    ]


def find_outdated(texts: Sequence[str], sources: Sequence[str], days: Sequence[date | None]) -> list[str]:
    """Return a problem for each sentence of a reply that claims what a newer source contradicts.

    A sentence with both claims is no problem.

    Args:
        days: On which each source was learned.
    """
    language = detect_language("\n".join(sources))
    said = [read_sentence(one.text, language) for one in list_statements(texts, [None] * len(texts))]
    given = list_statements(sources, days)
    readings = [read_sentence(one.text, language) for one in given]
    return [
        f"{_quote(sentence.text)} is what memory {given[at].unit + 1} says, and memory {given[dispute.rule].unit + 1} "
        "is newer: tell what that says, and in the same sentence what was before"
        for dispute in find_disputes(given)
        if dispute.is_decided
        for at in dispute.overruled
        for sentence in said
        if explain_readings(sentence, readings[at]).may_merge
        and not explain_readings(sentence, readings[dispute.rule]).may_merge
    ]


def _flatten(text: str) -> str:
    return " ".join(text.split()).casefold()


def _quote(text: str) -> str:
    return repr(text if len(text) <= _MAX_QUOTE_CHARS else text[: _MAX_QUOTE_CHARS - 1] + "…")
