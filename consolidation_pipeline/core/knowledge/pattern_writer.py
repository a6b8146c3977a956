"""Writer of the text of a pattern from the ranked sentences of its units."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date
from functools import partial

from consolidation_pipeline.core.differences.language_detection import detect_language
from consolidation_pipeline.core.knowledge.claims import Claim
from consolidation_pipeline.core.knowledge.lesson_sentences import SENTENCE_END, Lesson, Role, is_change, is_personal
from consolidation_pipeline.core.knowledge.pattern_group import LaterSentence, PatternGroup
from consolidation_pipeline.core.knowledge.pattern_layout import ExampleKind, Sightings, render_pattern, tell_sightings
from consolidation_pipeline.core.knowledge.pattern_sentences import (
    Candidate,
    as_written,
    is_disputed,
    list_evidence,
    opposes,
    repeats,
    shorten_example,
)
from consolidation_pipeline.core.knowledge.pattern_titles import MAX_TITLE_CHARS, names_told, strip_verb, write_title
from consolidation_pipeline.core.knowledge.pattern_types import vote_pattern_type
from consolidation_pipeline.core.knowledge.pattern_units import ExtractedPattern, Unit
from consolidation_pipeline.core.knowledge.sentence_ranking import SentenceRanking
from consolidation_pipeline.core.knowledge.template_families import TemplateFamily, find_template
from consolidation_pipeline.core.knowledge.weak_sentences import (
    instructs_fault,
    is_balanced,
    names_cause,
    names_goal_alone,
    names_remedy,
    names_symptom_alone,
    names_wish_alone,
    tells_status,
)
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.key_terms import extract_terms
from consolidation_pipeline.core.text.sentence_cues import is_pitfall
from consolidation_pipeline.core.text.word_overlap import extract_content_words, shares_words

# Limits of the lists of practices and of gotchas.
_MAX_LISTED = 5
_LISTED_CHARS = 1200
# Position of *Because* among the parts.
_BECAUSE = 2
# Lines of each part of the text, and characters of a part.
_MAX_DO, _MAX_AVOID, _MAX_BECAUSE, _MAX_EXAMPLES = 2, 2, 1, 3
_PART_CHARS = 420
# Share of units that must support a headline that does not instruct: otherwise it tells of one case.
_FACT_SUPPORT, _REPORT_SUPPORT = 0.55, 0.5
# Share for advice where fewer units instruct.
_RULE_SUPPORT = 0.4
# Share for any headline: of twenty memories, more than one.
_LEAST_SUPPORT = 0.1
# Share of units that must be like the first example, if they share no phrase; an example has this score of the first.
_COHERENT, _CENTRAL = 0.5, 0.45
_FEWEST_EXAMPLES = 2
# Terms that a pattern must have to say anything.
_FEWEST_TERMS = 2
# A longer sentence without an end was cut, and so was one that ends in a function word.
_UNFINISHED_CHARS = 100
# Lines that share this part of the content words of the shorter one say the same.
_SAME_WORDS = 0.6
# A line of a part must have this cosine with the headline, or it is about something else; one of another text, the
# second.
_RELATED, _RELATED_ADVICE = 0.06, 0.3
# And what another failed attempt concludes.
_RELATED_REMEDY = 0.4
# A line of a part must not have this cosine with another line; a reason speaks of the same as what it is a reason for.
_ALIKE, _ALIKE_REASON = 0.5, 0.75
# A further line must score this much of the best one of its part.
_WORTH = 0.4
# A line of a part is no longer than this.
_LINE_CHARS = 240
# With this share of questions, a group is about what is asked.
_ASKING = 0.25
# Share of the units that give their kind to all examples.
_MOST = 0.5
# Share of the words of a title that the lines below have: "Flu shots" is no title of "The hall had 4 shots left".
_TITLE_TOLD = 1.0
# Memories whose examples make a pattern.
_FEWEST_MEMORIES = 3
# Share of failed attempts that give them their title.
_ATTEMPTS = 1 / 3
# Share of the weight of a group that a template family must have.
_TEMPLATE_SHARE = 0.6


# What others say, or what was before.
_QUOTED = re.compile(r"“[^”]*”")
# A warning whose first word is the label of its line.
_AVOID = re.compile(r"^avoid (\w)", re.IGNORECASE)


class PatternWriter(PatternGroup):
    """Writes the text of one group."""

    def __init__(self, units: Sequence[Unit], ranking: SentenceRanking, terms: tuple[str, ...]) -> None:
        super().__init__(units, ranking, terms)
        # What fails must be named, even by fewer attempts.
        title = write_title(list(self.texts.values()), terms, share=_ATTEMPTS if self.has_verdicts else _MOST)
        bare = strip_verb(title)
        self.title = bare if " " in bare else title
        # Sentences that say the like of several things, none of which speaks for the group.
        self._side_by_side: list[Candidate] = []

    def write(self, sightings: Sightings) -> ExtractedPattern:
        """Return the pattern."""
        candidates = self.candidates
        rules, warnings = ([one for one in candidates if one.lesson.role == role] for role in ("rule", "warning"))
        pitfalls = [
            *warnings,
            *(one for one in candidates if one.lesson.role == "fact" and is_pitfall(one.lesson.text)),
        ]
        used: list[Candidate] = []
        practices: list[Candidate] = []
        gotchas: list[Candidate] = []
        render = partial(render_pattern, language=self.language)
        support, said, overruled = 0.0, None, set(self.overruled)
        later: LaterSentence | None = None
        kind: ExampleKind = "any"
        family = self._find_template()
        if family is not None and self.weigh_texts(family.members) >= _TEMPLATE_SHARE:
            title, headline, support, is_shared = "", family.text, self.measure_part(family.members), True
            said = self._count_saying(family.members, sightings)
            content = render(title="", headline=headline)
        elif found := self._find_headline():
            best, is_shared = found
            passage, later = self._find_passage(best), self.find_later(best)
            headline = self._tell_passage(best, passage, later)
            saying = self.list_saying_alone(best) if later else self.list_saying(best)
            if self._is_sequel(best):
                saying = saying & self.list_saying(passage[0])
            support = self.measure_part(self.list_supporters(best) - self.list_others(best))
            said = self._count_saying(saying, sightings)
            overruled |= saying if later and later.is_revision else frozenset()
            parts = self._find_parts(best, passage, later)
            practices, gotchas = (
                self.choose(
                    [
                        one
                        for one in found
                        if (one is best or not opposes(one, as_written(best))) and self.find_later(one) is None
                    ],
                    most=_MAX_LISTED,
                    max_chars=_LISTED_CHARS,
                )
                for found in (rules, pitfalls)
            )
            used = [*passage, *practices, *gotchas, *(one for part in parts for one in part)]
            do, avoid, because = ([self.tell(one) for one in part] for part in parts)
            avoid = [_AVOID.sub(lambda match: match[1].upper(), line) for line in avoid]
            # A short sentence alone is its own title.
            told = [headline, *do, *avoid]
            is_title = self._is_title_of(told)
            if not is_title and self.has_verdicts:
                # Attempts at different tasks read alike: a phrase of their own names the task better than nothing.
                self.title, is_title = write_title(["\n".join(told)], self.terms), True
            title = self.title if is_title and (any(parts) or len(headline) > MAX_TITLE_CHARS) else ""
            content = render(title=title, headline=headline, do=do, avoid=avoid, because=because)
        else:
            kind = self._find_kind()
            practices, gotchas = ([one for one in found if one in self._side_by_side] for found in (rules, warnings))
            used = self._find_examples(family, candidates if kind == "questions" else ())
            lines = [*([family.text] if family else []), *(one.lesson.text for one in used)]
            told = [shorten_example(line) for line in lines]
            headline = "; ".join(told[:_MAX_EXAMPLES])
            is_single = len({normalize_text(text) for text in self.texts.values()}) == 1
            # Attempts of which no sentence tells what was wrong say only that they failed.
            is_matter = self._is_coherent(used, kind) and self.say_something() and not self.has_attempts
            # Of the others, newer memories replaced all: what is left would not have made a group.
            is_matter &= self.weight >= _FEWEST_MEMORIES
            is_shared = is_single or is_matter
            days = {shorten_example(one.lesson.text): self.units[one.ranked.text].day for one in used}
            # The question that most of the units ask names them better than a phrase; else the newest example leads.
            is_title = len(told) > 1 and len(told[0]) <= MAX_TITLE_CHARS and (kind == "questions" or not self.title)
            if is_title and kind != "questions" and not family:
                told = [*sorted(told[: _MAX_EXAMPLES + 1], key=lambda text: days.get(text) or date.min, reverse=True)]
                # A whole statement above others would read as what they are examples of.
                whole = {shorten_example(one.lesson.text) for one in used if SENTENCE_END.search(one.lesson.text)}
                is_title = len(told[0]) <= MAX_TITLE_CHARS and told[0] not in whole
            shown = " ".join(told[:_MAX_EXAMPLES])
            is_named = kind != "any" or names_told(self.title, shown, share=_TITLE_TOLD)
            title = told.pop(0) if is_title else self.title if is_named else ""
            # The sort is stable: a template and examples without a day keep their places.
            told = sorted(told[:_MAX_EXAMPLES], key=lambda text: days.get(text) or date.max, reverse=True)
            used = [*used, *practices, *gotchas]
            if is_single and kind != "questions":
                content, said = render(title="", headline=headline), sightings.count
            else:
                content = render(title="" if is_single else title, headline="", examples=told, examples_are=kind)
        # "Help!" says nothing, however often.
        is_shared &= len({term.stem for term in extract_terms(headline)}) >= _FEWEST_TERMS
        is_asked = kind != "problems" and not support and self.measure_asking() >= _ASKING
        units = [replace(self.units[at], text=text) for at, text in self.texts.items()]
        return ExtractedPattern(
            content=content,
            seen=tell_sightings(replace(sightings, said=said), content, self.language),
            title=title,
            summary=headline,
            best_practices=tuple(one.lesson.text for one in practices),
            gotchas=tuple(one.lesson.text for one in gotchas),
            key_terms=self.terms,
            pattern_type=None if is_asked else vote_pattern_type(units),
            evidence=list_evidence(self.ranking, [*(one.ranked for one in used), *([later.ranked] if later else [])]),
            overruled=len(overruled),
            support=round(support, 6),
            is_shared=is_shared,
        )

    def _tell_passage(self, best: Candidate, passage: Sequence[Candidate], later: LaterSentence | None) -> str:
        """Return the headline with the sentences around it, behind what a newer text says beside it."""
        lines = [self.tell_with(one, later) if one is best else self.tell(one) for one in passage]
        if later and not later.is_revision:
            news, is_all = self.tell_news(best, later)
            lines = (
                [news if one is best else line for one, line in zip(passage, lines, strict=True)]
                if is_all
                else [news, *lines]
            )
        *before, last = lines
        return " ".join([*(line if SENTENCE_END.search(line) else f"{line}." for line in before), last])

    def _count_saying(self, texts: Iterable[int], sightings: Sightings) -> int | None:
        """Return the number of memories in some texts; None in a language in which claims cannot be compared."""
        return None if self.language is None else max(1, round(self.measure_part(texts) * sightings.count))

    def _find_template(self) -> TemplateFamily | None:
        # Of what changed, the values of before do not stand beside those of now.
        positions = [at for at in self.texts if at not in self.outdated]
        weights = [self.units[at].weight for at in positions]
        family = find_template([self.texts[at] for at in positions], weights)
        return family and replace(family, members=tuple(positions[at] for at in family.members))

    def _find_headline(self) -> tuple[Candidate, bool] | None:
        """Return the best sentence that speaks for the group, and whether most units are on its matter."""
        ordered = sorted(self.candidates, key=lambda one: replace(one.ranked, score=one.score).order)
        told = [one for one in ordered if self.has_clear and self._may_lead(one)]
        instructs = self.has_instructions()
        leasts: dict[Role, float] = {"rule": 0.0 if instructs else _FACT_SUPPORT, "fact": _FACT_SUPPORT}
        leasts |= {"warning": leasts["rule"], "definition": _FACT_SUPPORT}
        if self.measure_asking() >= _ASKING and not instructs:
            return None
        faults = self.list_faults()
        # What to do, even of fewer units, says more than a report on one of them.
        passes: tuple[dict[Role, float], ...] = (
            leasts,
            {"rule": _RULE_SUPPORT, "warning": _RULE_SUPPORT},
            {"report": _REPORT_SUPPORT},
        )
        lone: Candidate | None = None
        for wanted in passes:
            for one in [one for one in told if one.lesson.role in wanted][:_MAX_LISTED]:
                # A command without an end may be the name of a change.
                is_name = SENTENCE_END.search(one.lesson.text) is None
                least = max(wanted[one.lesson.role], _RULE_SUPPORT if is_name else _LEAST_SUPPORT)
                if self._is_faulty(one, faults) or self.measure_support(one) < least or self.is_contested(one):
                    continue
                if self.is_one_case(one) or self._leaves_opening(one) or self._is_in_other_language(one):
                    continue
                if self.is_of_few(one):
                    self._side_by_side.append(one)
                    continue
                if self.stands_for_most(one):
                    return one, True
                lone = lone or one
        return None if lone is None else (lone, False)

    def _is_in_other_language(self, one: Candidate) -> bool:
        """Return True if a sentence is in another language than that of the group, in which all else is told."""
        language = detect_language(one.ranked.sentence.line)
        return None not in (language, self.language) and language != self.language

    def _is_sequel(self, one: Candidate) -> bool:
        """Return True for what was done after what stands before it: "The export failed. Piotr opened a ticket"."""
        is_event = one.lesson.role == "fact" and Claim.of(one.lesson.text, self.language or "en").is_event
        is_told = is_event or one.lesson.role == "report"
        is_behind = one.ranked.sentence.line != self.sentences[one.ranked.text][0]
        return is_told and is_behind and not one.lesson.is_reason and not self.has_attempts

    def _leaves_opening(self, one: Candidate) -> bool:
        """Return True for what was done after something that the text would not tell."""
        opening = self._find_passage(one)[0].ranked.sentence.line
        return self._is_sequel(one) and opening != self.sentences[one.ranked.text][0]

    def _is_title_of(self, told: Sequence[str]) -> bool:
        """Return True if the title names something told; one name alone may be the task of failed attempts."""
        if " " not in self.title:
            return self.has_verdicts
        # Of attempts, one word of their task is enough. What is quoted may be so no longer.
        return names_told(self.title, _QUOTED.sub("", "\n".join(told)), share=0.0 if self.has_verdicts else _TITLE_TOLD)

    def _may_lead(self, one: Candidate) -> bool:
        """Return True for a sentence that can stand alone at the head of the text."""
        text = one.lesson.text
        is_report = one.lesson.role in ("report", "fact")
        return (
            not _is_cut(text)
            and is_balanced(text)
            and not tells_status(text)
            and self.is_on_topic(text)
            and not names_goal_alone(text)
            and not names_symptom_alone(text)
            and not (is_report and (is_personal(text) or names_wish_alone(text)))
        )

    def _find_kind(self) -> ExampleKind:
        """Return what most of the units are."""
        if self.measure_asking() >= _MOST:
            return "questions"
        if self.weigh_texts(at for at, found in self.sentences.items() if is_change(found[0])) >= _MOST:
            return "changes"
        problems = (at for at in self.texts if self.units[at].memory_type in ("error_fix", "bugfix"))
        return "problems" if self.weigh_texts(problems) >= _MOST else "any"

    def _find_passage(self, headline: Candidate) -> list[Candidate]:
        """Return the headline with the sentences around it that most units say too: what was wrong, and what helped.

        Attempts tell each failure in other words, so their headline stands alone.
        """
        if self.has_attempts:
            return [headline]
        of_text = {one.ranked.row: one for one in self.candidates if one.ranked.text == headline.ranked.text}
        passage = [headline]
        for step in (-1, 1):
            row = headline.ranked.row + step
            while (one := of_text.get(row)) is not None and self._is_of_most(one):
                if any(self._is_like(one, other, _ALIKE) or opposes(one, other) for other in passage):
                    break
                if sum(len(other.lesson.text) for other in (*passage, one)) > _PART_CHARS:
                    break
                passage = [*passage, one] if step > 0 else [one, *passage]
                row += step
        # What refers to a sentence before it does not open a text.
        opening = next(at for at, one in enumerate(passage) if one is headline or one.lesson.role != "fragment")
        return passage[opening:]

    def _is_of_most(self, one: Candidate) -> bool:
        """Return True for a statement that most units make."""
        silent: tuple[Role, ...] = ("subject", "question", "definition")
        return one.lesson.role not in silent and self.measure_support(one) > _MOST

    def _find_parts(
        self, headline: Candidate, passage: Sequence[Candidate], later: LaterSentence | None
    ) -> list[list[Candidate]]:
        """Return the lines of *Do*, *Avoid* and *Because* that neither repeat the passage nor each other.

        What a newer unit says something else of is not told beside the headline, and neither is what stands in it.
        """
        roles = {"rule": 0, "warning": 1}
        parts: list[list[Candidate]] = [[], [], []]
        told = [*passage]
        faults = self.list_faults()
        # What is a fact needs no reason.
        parts_told = (_MAX_DO, _MAX_AVOID, _MAX_BECAUSE if headline.lesson.role in roles else 0)
        for number, most in enumerate(parts_told):
            found = [
                one
                for one in self.candidates
                if one not in passage
                and (
                    roles.get(one.lesson.role) == number
                    if number < _BECAUSE
                    else one.lesson.is_reason and one.lesson.role in ("fact", "report") and self._is_reason(one)
                )
                and len(one.lesson.text) <= _LINE_CHARS
                and is_balanced(one.lesson.text)
                and not tells_status(one.lesson.text)
                and (len(self.sentences[one.ranked.text]) == 1 or SENTENCE_END.search(one.lesson.text))
                and not names_goal_alone(one.lesson.text)
                and not (self.has_attempts and names_symptom_alone(one.lesson.text))
                and self._belongs(one, headline)
                and not self._is_faulty(one, faults)
                and not self.is_contested(one)
            ]
            own = [one for one in found if one.ranked.text == headline.ranked.text]
            if self.has_verdicts and number < _BECAUSE:
                # Guesses of several attempts exclude each other.
                found = own or sorted(found, key=lambda one: -one.score)[:1]
            limit = _ALIKE if number < _BECAUSE else _ALIKE_REASON
            best = max((one.score for one in found), default=0.0)
            worth = [one for one in found if one.score >= _WORTH * best]
            for one in self.choose([*told, *worth], most=most + len(told), max_chars=_PART_CHARS * 2, first=told):
                if (
                    one not in told
                    and len(parts[number]) < most
                    and not any(self._is_like(one, other, limit) or opposes(one, other) for other in told)
                    and not (later and one.ranked.row == later.ranked.row)
                    and self.find_later(one) is None
                ):
                    parts[number].append(one)
                    told.append(one)
        return parts

    def _is_faulty(self, one: Candidate, faults: Sequence[tuple[str, ...]]) -> bool:
        """Return True for advice to do what a unit calls wrong; what was tried and failed is no advice."""
        return not one.lesson.is_verdict and any(
            instructs_fault(one.lesson.text, fault, self.language) for fault in faults
        )

    def _is_reason(self, one: Candidate) -> bool:
        """Return True if a sentence names a cause that more than one unit knows."""
        text = one.lesson.text
        return SENTENCE_END.search(text) is not None and names_cause(text) and not names_symptom_alone(text)

    def _belongs(self, one: Candidate, headline: Candidate) -> bool:
        """Return True if a sentence goes on with the headline: of the same text, or advice that is near to it."""
        cosine = self.measure_cosine(one, headline)
        if one.ranked.text == headline.ranked.text:
            # The instruction beside a fact may have words of its own.
            is_next = headline.lesson.role == "fact" and abs(one.ranked.row - headline.ranked.row) == 1
            return cosine >= _RELATED or is_next
        # Attempts fail for reasons of their own, which are no reasons for the advice of another.
        is_reason = one.lesson.role in ("fact", "report") or one.lesson.is_verdict
        is_mended = self.has_verdicts and (not headline.lesson.is_verdict or names_remedy(headline.lesson.text))
        least = _RELATED_REMEDY if self.has_verdicts else _RELATED_ADVICE
        return cosine >= least and not is_reason and not is_mended

    def _is_like(self, one: Candidate, other: Candidate, limit: float) -> bool:
        """Return True if the sentences share most of their terms, or one says no more than the other.

        What is right has the words of what was wrong.
        """
        if one.lesson.is_verdict != other.lesson.is_verdict:
            return repeats(one, other)
        is_near = self.measure_cosine(one, other) >= limit
        words, others = (extract_content_words(text.lesson.text) for text in (one, other))
        is_near |= shares_words(words, others, _SAME_WORDS)
        return (is_near and not is_disputed(one.ranked)) or repeats(one, other)

    def _find_examples(self, family: TemplateFamily | None, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the most central openings of units that differ and are no members of the family, one for the title.

        Args:
            candidates: If some of these are questions, only they are examples.
        """
        members = family.members if family else ()
        openings = [
            one
            for one in self.ranking.sentences
            if one.text not in members and one.sentence.text == self.sentences[one.text][0]
        ]
        asked = {one.ranked.row for one in candidates if one.lesson.role == "question"}
        openings = [one for one in openings if one.row in asked] or openings
        openings = [one for one in openings if not names_symptom_alone(one.sentence.text)] or openings
        openings = [one for one in openings if not _is_cut(one.sentence.text)] or openings
        scored = [replace(one, score=one.score / one.sentence.readability) for one in openings]
        scored.sort(key=lambda one: one.order)
        texts = (f"{one.sentence.text} {self.find_reservation(one)}".rstrip() for one in scored)
        lessons = [
            Candidate(one, Lesson(text, "subject", False), one.score) for one, text in zip(scored, texts, strict=True)
        ]
        near = [one for one in lessons if one.score >= _CENTRAL * lessons[0].score]
        chosen = self.choose(near, most=_MAX_EXAMPLES + 1, max_chars=10 * _PART_CHARS)
        told: list[Candidate] = []
        for one in [*chosen, *(one for one in near if one not in chosen)][: 4 * _MAX_EXAMPLES]:
            is_new = not any(repeats(one, other) or opposes(one, other) for other in told)
            if len(told) <= _MAX_EXAMPLES and is_new:
                told.append(one)
        return [*dict.fromkeys(self._find_newest(one, chosen) for one in told)]

    def _find_newest(self, one: Candidate, others: Sequence[Candidate]) -> Candidate:
        """Return the newest of an example and those that contradict it."""
        rivals = [one, *(other for other in others if opposes(one, other))]
        return max(rivals, key=lambda rival: self.units[rival.ranked.text].day or date.min)

    def _is_coherent(self, examples: Sequence[Candidate], kind: ExampleKind) -> bool:
        """Return True if most units are on one matter; names of changes have none."""
        if kind == "changes" or len(examples) < _FEWEST_EXAMPLES:
            return False
        named = (at for at, text in self.texts.items() if self.title and names_told(self.title, text, share=1.0))
        return max(self.weigh_texts(named), self.measure_support(examples[0])) > _COHERENT


def _is_cut(text: str) -> bool:
    """Return True for words without an end of a sentence that go on: "The build failed with", "Traceback:"."""
    is_open = text.endswith((":", "："))
    is_cut = len(text) > _UNFINISHED_CHARS or not any(extract_terms(text.split()[-1]))
    return is_open or (SENTENCE_END.search(text) is None and is_cut)
