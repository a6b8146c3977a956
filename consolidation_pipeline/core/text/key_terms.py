"""Terms of texts, and the key terms of a group of texts by class-based TF-IDF."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.differences.language_detection import detect_language
from consolidation_pipeline.core.differences.language_loader import load_function_words
from consolidation_pipeline.core.text.word_overlap import stem

# Words, numbers, identifiers and paths: joined by signs between two letters or digits, never by white space.
_TERM = re.compile(r"(?<![^\W_])[./$@~_]{0,2}\w[\w+#]*(?:(?:[._/:@'’-]+(?=[^\W_])|,(?=\d{3}(?!\d)))[\w+#]*)*(?:\(\))?")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0eff]+")
_PLAIN = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
# A number that says nothing alone.
_SMALL_NUMBER = re.compile(r"\d{1,2}")
_POSSESSIVE = re.compile(r"['’]s?$")
_STOP_WORDS = frozenset(
    """
    a about above across actually after again against all almost alone along already also although always am among
    an and another any anyone anything are aren't around as at away back be became because become been before began
    behind being below between both but by came can can't cannot come could couldn't did didn't do does doesn't
    doing don't done down during each either else enough etc even ever every everything far few first for found from
    further gave get gets give given gives go goes going gone got had has hasn't have haven't having he her here
    hers him his how however i if in inside instead into is isn't it it's its itself just keep keeps kept last later
    least less let lets like long longer look looks made make makes making many may maybe me might more most much
    must my near need needs neither never new next no nobody non none nor not nothing now of off often old on once
    one only onto or other others otherwise our ours out over own per put puts quite rather really said same saw say
    second see seen several shall she should shouldn't since so some somebody someone something sometimes still such
    take takes than that that's the their them then there these they thing things third this those though three
    through thus till to together told too took toward two under until up upon us use used uses using usually very
    via was wasn't way we well went were what when where whether which while who whole whom whose why will with
    within without won't would wouldn't yet you your
    """.split()
)
# A text with one of these is English. Telling the language by all words takes several times as long.
_ENGLISH = re.compile(r"\b(?:the|and|with|for|of|is|to)\b", re.IGNORECASE)
# Enough terms to distinguish a group. Terms that occur in a single text are used only to reach this number.
_MIN_TERMS = 3
# Scores are compared to this many decimals; more is rounding noise.
_DECIMALS = 9


class Term(NamedTuple):
    """A term: its ``stem``, by which terms are equal, and its ``surface``, as written; plain words in lower case."""

    stem: str
    surface: str


class TermCounts(NamedTuple):
    """Counts of terms in texts.

    ``matrix``: sparse float64 (n, v), the occurrences of each term in each text. ``terms``: the v stems, sorted.
    """

    matrix: Any
    terms: list[str]


class BackgroundTerms(NamedTuple):
    """Terms of a sample of groups, which tell how rare a term is.

    ``groups``, ``texts``: their numbers. ``frequency``: number of these texts that have each term.
    """

    groups: int
    texts: int
    frequency: Counter[str]


# Topics are found, named and told by the terms of the same texts.
@lru_cache(maxsize=1 << 12)
def find_language(text: str) -> str:
    """Return the language whose function words are no terms of ``text``, besides those of English."""
    return "en" if _ENGLISH.search(text) else detect_language(text) or "en"


@lru_cache(maxsize=1 << 12)
def extract_terms(text: str, language: str | None = None) -> tuple[Term, ...]:
    """Return the terms of ``text`` in order, without function words of its language and of English.

    Inflections of a plain word are one term. Identifiers (``pool_size``, ``core/money.py``) and numbers (``1,000``,
    ``3.12``) stay whole. Scripts without blanks between words give overlapping pairs of signs.

    Args:
        language: Of the text, where it is a part of another one; None = that of ``find_language``.
    """
    language = language or find_language(text)
    terms: list[Term] = []
    for match in _TERM.finditer(text):
        written = match[0]
        if not written.isascii() and _UNSPACED.search(written):
            terms += _split_unspaced(written)
        elif term := _parse_term(written, language):
            terms.append(term)
    return tuple(terms)


def count_terms(texts: Sequence[str]) -> TermCounts:
    """Count the occurrences of each term in each of n texts."""
    from scipy.sparse import csr_array

    counted = [Counter(term.stem for term in extract_terms(text)) for text in texts]
    terms = sorted(set().union(*counted)) if counted else []
    numbers = {term: number for number, term in enumerate(terms)}
    rows = np.repeat(np.arange(len(texts)), [len(counts) for counts in counted])
    columns = np.array([numbers[term] for counts in counted for term in counts], dtype=np.int64)
    values = np.array([n for counts in counted for n in counts.values()], dtype=np.float64)
    matrix = csr_array((values, (rows, columns)), shape=(len(texts), max(1, len(terms))))
    matrix.sort_indices()
    return TermCounts(matrix, terms)


def is_unspaced(text: str) -> bool:
    """Return True if most letters of a text are of scripts without spaces between words."""
    return 2 * sum(map(len, _UNSPACED.findall(text))) > sum(map(str.isalpha, text))


def find_key_terms(
    groups: Sequence[Iterable[str]], *, count: int = 8, background: BackgroundTerms | None = None
) -> list[tuple[str, ...]]:
    """Return for each group of texts the terms that distinguish it from the other groups, best first.

    Class-based TF-IDF (Grootendorst 2022, BERTopic): tf(t, c) * ln(1 + A / f(t)). tf is the frequency of the term in
    the group, f that in the background, or tf if that is higher, A the mean number of terms of a group of the
    background. A term counts once per text, so that a long text does not dominate its group.

    Terms of a single text are used only to reach 3 terms. Numbers of one or two digits are no terms. Ties are broken by
    the term. A term is returned in its most frequent spelling. The order of groups and texts does not matter.

    Args:
        groups: Texts of each group.
        count: Most terms of a group.
        background: Of a sample that may hold the groups; None = the groups.
    """
    counted = [_count_texts(texts) for texts in groups]
    frequencies = [frequency for frequency, _ in counted]
    if background is None:
        total = Counter[str]()
        for frequency in frequencies:
            total.update(frequency)
        background = BackgroundTerms(len(groups), 0, total)
    scores = _score_terms(frequencies, background)
    return [
        _rank_terms(frequency, surfaces, scored, count)
        for (frequency, surfaces), scored in zip(counted, scores, strict=True)
    ]


def _count_texts(texts: Iterable[str]) -> tuple[Counter[str], Mapping[str, Mapping[str, int]]]:
    """Return the number of texts that hold each term, and how often each of its spellings occurs."""
    found = [extract_terms(text) for text in texts]
    frequency = Counter(name for terms in found for name in {term.stem for term in terms})
    surfaces: defaultdict[str, dict[str, int]] = defaultdict(dict)
    # A dictionary for each of thousands of terms: a counter takes several times as long to make.
    for term, count in Counter(chain.from_iterable(found)).items():
        surfaces[term.stem][term.surface] = count
    return frequency, surfaces


def _score_terms(frequencies: Sequence[Counter[str]], background: BackgroundTerms) -> list[NDArray[np.float64]]:
    """Return for each group the scores of its terms, in the order of its counter."""
    mean = background.frequency.total() / max(1, background.groups)
    scores = []
    for frequency in frequencies:
        tf = np.fromiter(frequency.values(), dtype=np.float64, count=len(frequency))
        found = (background.frequency[term] for term in frequency)
        everywhere = np.fromiter(found, dtype=np.float64, count=len(frequency))
        scores.append(tf * np.log1p(mean / np.maximum(everywhere, tf)))
    return scores


def _rank_terms(
    frequency: Counter[str], surfaces: Mapping[str, Mapping[str, int]], scores: NDArray[np.float64], count: int
) -> tuple[str, ...]:
    lone = {term for term, texts in frequency.items() if texts < 2}
    scored = zip(frequency, np.round(scores, _DECIMALS).tolist(), strict=True)
    ranked = [item for item in scored if not _SMALL_NUMBER.fullmatch(item[0])]
    ranked = sorted(ranked, key=lambda item: (item[0] in lone, -item[1], item[0]))
    kept = max(_MIN_TERMS, len(frequency) - len(lone))
    return tuple(_most_frequent(surfaces[term]) for term, _ in ranked[: min(kept, count)])


def _most_frequent(surfaces: Mapping[str, int]) -> str:
    return min(surfaces, key=lambda surface: (-surfaces[surface], len(surface), surface))


@lru_cache(maxsize=1 << 16)
def _parse_term(written: str, language: str = "en") -> Term | None:
    if language != "en":  # Its list is _STOP_WORDS.
        function_words = load_function_words(language)
        article, mark, rest = written.replace("’", "'").partition("'")
        written = rest if mark and article.lower() in function_words.elisions else written
        if function_words.is_light(written.lower()):
            return None
    if written.endswith(("'s", "’s", "'", "’")):
        written = _POSSESSIVE.sub("", written)
    lower = written.lower()
    if lower.replace("’", "'") in _STOP_WORDS or (len(lower) < 2 and not lower.isdigit()):
        return None
    return Term(stem(lower), lower) if _is_plain_word(written) else Term(lower, written)


def _is_plain_word(written: str) -> bool:
    """Return True for a plain word; capitals and endings of identifiers and acronyms mean something."""
    return _PLAIN.fullmatch(written) is not None and written[1:] == written[1:].lower()


def list_pairs(signs: str) -> list[str]:
    """Return the overlapping pairs of a run of signs in a script without blanks; a single sign as it is."""
    return [signs[at : at + 2] for at in range(len(signs) - 1)] or [signs]


def _split_unspaced(written: str) -> Iterator[Term]:
    end = 0
    for run in _UNSPACED.finditer(written):
        if term := _parse_term(written[end : run.start()]):
            yield term
        yield from (Term(pair, pair) for pair in list_pairs(run[0]))
        end = run.end()
    if term := _parse_term(written[end:]):
        yield term


def normalize_rows(matrix: Any) -> Any:
    """Return the rows of a sparse matrix divided by their L2 norm; a row of zeros stays."""
    from scipy.sparse import diags_array

    rows = matrix.tocsr()
    length = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    return diags_array(1.0 / np.where(length > 0, length, 1.0)).tocsr() @ rows
