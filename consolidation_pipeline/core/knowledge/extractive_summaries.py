"""Summaries and profiles without a model: a few sentences that cover a batch, and how a project works."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from consolidation_pipeline.core.knowledge.sentence_ranking import RankedSentence, SentenceRanking, rank_sentences
from consolidation_pipeline.core.text.sentence_cues import is_advice, is_failure, is_preference, is_warning

# A summary has 2 to 5 sentences (pipeline.md, semantic_summaries), one more for every four memories.
_FEWEST, _MOST = 2, 5
_MEMORIES_PER_SENTENCE = 4
_SUMMARY_CHARS = 1000
# Per part of a profile: it is read as a whole before work starts.
_PART_SENTENCES = 6
_PART_CHARS = 1200
# A sentence below this worth is a heading, a fragment or markup, and taken only where there is nothing else.
_READABLE = 0.35
_PARTS = ("preferences", "practices", "pitfalls", "facts")


@dataclass(frozen=True)
class ExtractedProfile:
    """How a project or a user works, each part most central first; ``facts``: what is none of the other three."""

    preferences: tuple[str, ...]
    practices: tuple[str, ...]
    pitfalls: tuple[str, ...]
    facts: tuple[str, ...]

    @property
    def content(self) -> str:
        """All sentences, one per line, part after part."""
        return "\n".join((*self.preferences, *self.practices, *self.pitfalls, *self.facts))


def extract_summary(texts: Sequence[str], *, memories: int | None = None, boilerplate: Collection[str] = ()) -> str:
    """2 to 5 sentences that cover ``texts``, oldest first, in their chronological order, one per line.

    Maximal marginal relevance over the sentences' term vectors; sentences in the first person, about today only or
    without context count less. The same function reduces the summaries of chunks to one; ``memories`` is then how many
    memories they stand for (else one each), which the number of sentences goes by. Only texts with fewer
    distinct sentences than 2 give fewer; every sentence stands in a text, but for white space. Sentences in
    ``boilerplate`` (``boilerplate.find_boilerplate``) are left out as in ``extract_patterns``. ValueError: no text.
    """
    ranking = _ranking(texts, "summary", boilerplate)
    wanted = min(_MOST, max(_FEWEST, (memories or len(texts)) // _MEMORIES_PER_SENTENCE))
    readable = [one for one in ranking.sentences if one.sentence.worth >= _READABLE]
    chosen = ranking.choose(readable, most=wanted, max_chars=_SUMMARY_CHARS) if readable else []
    if len(chosen) < _FEWEST:
        chosen = ranking.choose(ranking.sentences, most=_FEWEST, max_chars=_SUMMARY_CHARS)
    # Rows number the sentences as they stand in the texts.
    return "\n".join(one.sentence.text for one in sorted(chosen, key=lambda one: one.row))


def extract_profile(summaries: Sequence[str]) -> ExtractedProfile:
    """How a project or user works, from all of its summaries; the order of summaries does not matter.

    Each sentence is in one part, first match wins: a preference that is no warning, a pitfall (a warning, or a failure
    that is no advice), a practice (advice), else a fact. ValueError: no text.
    """
    ranking = _ranking(sorted(summaries), "profile")
    readable = [one for one in ranking.sentences if one.sentence.worth >= _READABLE] or ranking.sentences
    parts: dict[str, list[RankedSentence]] = {part: [] for part in _PARTS}
    for one in readable:
        parts[_part(one.sentence.text)].append(one)
    chosen = {part: ranking.choose(parts[part], most=_PART_SENTENCES, max_chars=_PART_CHARS) for part in _PARTS}
    return ExtractedProfile(**{part: tuple(one.sentence.text for one in chosen[part]) for part in _PARTS})


def _ranking(texts: Sequence[str], wanted: str, boilerplate: Collection[str] = ()) -> SentenceRanking:
    if not any(text.strip() for text in texts):
        raise ValueError(f"{len(texts)} texts given, none with a word; a {wanted} needs at least one sentence")
    return rank_sentences([texts], boilerplate=boilerplate)[0]


def _part(sentence: str) -> str:
    if is_preference(sentence) and not is_warning(sentence):
        return "preferences"
    if is_warning(sentence) or (is_failure(sentence) and not is_advice(sentence)):
        return "pitfalls"
    return "practices" if is_advice(sentence) else "facts"
