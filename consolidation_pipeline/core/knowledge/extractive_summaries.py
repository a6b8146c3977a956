"""Summaries and profiles without a model: sentences of the texts, chosen by extractive summarization."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from consolidation_pipeline.core.knowledge.sentence_ranking import RankedSentence, SentenceRanking, rank_sentences
from consolidation_pipeline.core.text.sentence_cues import is_advice, is_pitfall, is_preference, is_warning

# A summary has 2 to 5 sentences, one per four memories.
_MIN_SENTENCES, _MAX_SENTENCES = 2, 5
_MEMORIES_PER_SENTENCE = 4
_SUMMARY_CHARS = 1000
# Limits of each part of a profile, because agents read all of it before they start.
_PART_SENTENCES = 6
_PART_CHARS = 1200
# A sentence of lower readability is a heading, a fragment or markup, used only if there is nothing else.
_READABLE = 0.35
_PARTS = ("preferences", "practices", "pitfalls", "facts")


@dataclass(frozen=True)
class ExtractedProfile:
    """The working habits of a project or user; each part has its most central sentences first.

    ``facts``: sentences of no other part.
    """

    preferences: tuple[str, ...]
    practices: tuple[str, ...]
    pitfalls: tuple[str, ...]
    facts: tuple[str, ...]

    @property
    def content(self) -> str:
        """All sentences, one per line, part by part."""
        return "\n".join((*self.preferences, *self.practices, *self.pitfalls, *self.facts))


def extract_summary(texts: Sequence[str], *, memories: int | None = None, boilerplate: Collection[str] = ()) -> str:
    """Return 2 to 5 sentences of the texts, in their order, one per line; also reduces summaries of chunks to one.

    They are chosen by maximal marginal relevance over term vectors. Sentences in the first person, about today only, or
    without context count less. Only white space in a sentence is changed. Texts with a single distinct sentence give
    that one.

    Args:
        texts: Oldest first.
        memories: Number of memories behind the texts, which sets the number of sentences; None = one per text.
        boilerplate: Sentences (``boilerplate.find_boilerplate``) to leave out of texts that hold anything else.

    Raises:
        ValueError: All texts are blank.
    """
    ranking = _rank(texts, "summary", boilerplate)
    wanted = min(_MAX_SENTENCES, max(_MIN_SENTENCES, (memories or len(texts)) // _MEMORIES_PER_SENTENCE))
    readable = [one for one in ranking.sentences if one.sentence.readability >= _READABLE]
    chosen = ranking.choose(readable, most=wanted, max_chars=_SUMMARY_CHARS) if readable else []
    if len(chosen) < _MIN_SENTENCES:
        chosen = ranking.choose(ranking.sentences, most=_MIN_SENTENCES, max_chars=_SUMMARY_CHARS)
    # Rows are numbered in the order of the texts.
    return "\n".join(one.sentence.text for one in sorted(chosen, key=lambda one: one.row))


def extract_profile(summaries: Sequence[str]) -> ExtractedProfile:
    """Return the profile of a project or user from all of its summaries, in any order.

    Each sentence is in one part, the first that applies: preference (not a warning), pitfall (a warning, or a failure
    without advice), practice (advice), fact.

    Raises:
        ValueError: All summaries are blank.
    """
    ranking = _rank(sorted(summaries), "profile")
    readable = [one for one in ranking.sentences if one.sentence.readability >= _READABLE] or ranking.sentences
    parts: dict[str, list[RankedSentence]] = {part: [] for part in _PARTS}
    for one in readable:
        parts[_find_part(one.sentence.text)].append(one)
    chosen = {part: ranking.choose(parts[part], most=_PART_SENTENCES, max_chars=_PART_CHARS) for part in _PARTS}
    return ExtractedProfile(**{part: tuple(one.sentence.text for one in chosen[part]) for part in _PARTS})


def _rank(texts: Sequence[str], noun: str, boilerplate: Collection[str] = ()) -> SentenceRanking:
    if not any(text.strip() for text in texts):
        raise ValueError(f"{len(texts)} texts given, none with a word; a {noun} needs at least one sentence")
    return rank_sentences([texts], boilerplate=boilerplate)[0]


def _find_part(sentence: str) -> str:
    if is_preference(sentence) and not is_warning(sentence):
        return "preferences"
    if is_pitfall(sentence):
        return "pitfalls"
    return "practices" if is_advice(sentence) else "facts"
