"""Writer of the text of a principle from the statements of its patterns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from consolidation_pipeline.core.knowledge.lesson_sentences import TO_TRY, TRIED, names_task
from consolidation_pipeline.core.knowledge.pattern_group import PatternGroup
from consolidation_pipeline.core.knowledge.pattern_layout import Sightings, render_pattern, tell_sightings
from consolidation_pipeline.core.knowledge.pattern_sentences import Candidate, list_evidence, opposes, repeats
from consolidation_pipeline.core.knowledge.pattern_titles import write_title
from consolidation_pipeline.core.knowledge.pattern_types import vote_pattern_type
from consolidation_pipeline.core.knowledge.pattern_units import ExtractedPattern
from consolidation_pipeline.core.knowledge.sentence_ranking import RankedSentence
from consolidation_pipeline.core.knowledge.weak_sentences import instructs_fault, names_goal_alone
from consolidation_pipeline.core.text.key_terms import extract_terms
from consolidation_pipeline.core.text.sentence_cues import is_command

# Patterns that must share an instruction or a matter: this many, and this share of them.
_FEWEST, _SHARE = 3, 0.6
# Instructions of a principle on one matter, and characters of all of them.
_MAX_LISTED, _LISTED_CHARS = 5, 1200


class PrincipleWriter(PatternGroup):
    """Writes the text of one group of patterns: an instruction that most of them share, or those on one matter.

    A sentence of a single pattern is no principle, however many patterns are like it in other respects.
    """

    def write(self, sightings: Sightings) -> ExtractedPattern:
        """Return the principle; it is not shared if the patterns have neither an instruction nor a matter in common."""
        fewest = max(_FEWEST, ceil(_SHARE * len(self.texts)))
        faults = self.list_faults()
        advice = [
            one
            for one in sorted(self.candidates, key=lambda one: replace(one.ranked, score=one.score).order)
            if one.lesson.role in ("rule", "warning")
            # What a failed attempt supposes is no principle.
            and not one.lesson.text.startswith((TRIED, TO_TRY))
            and not names_goal_alone(one.lesson.text)
            and not any(instructs_fault(one.lesson.text, fault, self.language) for fault in faults)
        ]
        title = ""
        shared = [one for one in advice if len(self.list_supporters(one)) >= fewest and self.stands_for_most(one)][:1]
        if shared:
            holders = self.list_supporters(shared[0])
        else:
            title = write_title(list(self.texts.values()), self.terms, share=_SHARE)
            shared = self._list_advice_on(title, advice)
            holders = {one.ranked.text for one in shared}
        rules, warnings = ([one for one in shared if one.lesson.role == role] for role in ("rule", "warning"))
        told = [self.tell(one) for one in shared]
        is_shared = len(holders) >= (_FEWEST if title else fewest)
        content = render_pattern(
            title=title,
            headline="" if title else "".join(told),
            do=[self.tell(one) for one in rules] if title else (),
            avoid=[self.tell(one) for one in warnings] if title else (),
            language=self.language,
        )
        return ExtractedPattern(
            content=content,
            seen=tell_sightings(replace(sightings, patterns=len(holders)), content, self.language),
            title=title,
            summary="; ".join(line.rstrip(".") for line in told) if title else "".join(told),
            best_practices=tuple(one.lesson.text for one in rules),
            gotchas=tuple(one.lesson.text for one in warnings),
            key_terms=self.terms,
            pattern_type=vote_pattern_type([replace(self.units[at], text=text) for at, text in self.texts.items()]),
            evidence=list_evidence(self.ranking, [one.ranked for one in shared]),
            overruled=len(self.overruled),
            support=round(self.weigh_texts(holders), 6),
            is_shared=is_shared,
        )

    def read(self, ranked: RankedSentence) -> Candidate:
        one = super().read(ranked)
        text = one.lesson.text
        # The title of a pattern is left out, so a command without a full stop is what the pattern says.
        is_command_line = one.lesson.role == "subject" and is_command(text) and not names_task(text)
        return replace(one, lesson=replace(one.lesson, role="rule")) if is_command_line else one

    def _list_advice_on(self, title: str, advice: Sequence[Candidate]) -> list[Candidate]:
        """Return the best instruction of each pattern that takes up the title; none without a title."""
        stems = {term.stem for term in extract_terms(title)}
        best: dict[int, Candidate] = {}
        for one in advice:
            if stems & {term.stem for term in extract_terms(one.lesson.text)}:
                best.setdefault(one.ranked.text, one)
        told: list[Candidate] = []
        for one in self.choose(list(best.values()), most=_MAX_LISTED, max_chars=_LISTED_CHARS):
            if not any(repeats(one, other) or opposes(one, other) for other in told):
                told.append(one)
        return told
