"""Writer of the text of a pattern from the ranked sentences of its units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from consolidation_pipeline.core.differences.language import detect_language
from consolidation_pipeline.core.knowledge.lesson_sentences import (
    SENTENCE_END,
    Lesson,
    Role,
    is_bug_report,
    is_change,
    opens_with_condition,
    read_lesson,
)
from consolidation_pipeline.core.knowledge.pattern_layout import ExampleKind, Sightings, render_pattern
from consolidation_pipeline.core.knowledge.pattern_sentences import (
    Candidate,
    is_disputed,
    list_evidence,
    list_sentences,
    opposes,
    repeats,
    settle_disputes,
    shorten_example,
)
from consolidation_pipeline.core.knowledge.pattern_titles import MAX_TITLE_CHARS, fit_title, write_title
from consolidation_pipeline.core.knowledge.pattern_types import vote_pattern_type
from consolidation_pipeline.core.knowledge.pattern_units import ExtractedPattern, Unit
from consolidation_pipeline.core.knowledge.sentence_ranking import RankedSentence, SentenceRanking
from consolidation_pipeline.core.knowledge.template_families import TemplateFamily, find_template
from consolidation_pipeline.core.knowledge.weak_sentences import (
    instructs_fault,
    names_cause,
    names_wish_alone,
    read_fault,
)
from consolidation_pipeline.core.literals.literals import literals
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.key_terms import extract_terms
from consolidation_pipeline.core.text.sentence_cues import is_command, is_pitfall

# Limits of the lists of practices and of gotchas.
_MAX_LISTED = 5
_LISTED_CHARS = 1200
# Position of *Because* among the parts.
_BECAUSE = 2
# Lines of each part of the text, and characters of a part.
_MAX_DO, _MAX_AVOID, _MAX_BECAUSE, _MAX_EXAMPLES = 2, 2, 1, 3
_PART_CHARS = 420
# A sentence of lower readability is a heading, a fragment or markup. It is never a practice or gotcha, and in the text
# only if there is nothing else.
_READABLE = 0.35
# Factors of the centrality of a sentence by its role, in the choice of the headline.
_ROLE_FACTORS: dict[Role, float] = {
    "rule": 1.6,
    "warning": 1.4,
    "fact": 1.0,
    "definition": 0.5,
    "report": 0.4,
    "subject": 0.1,
    "question": 0.1,
    "fragment": 0.05,
}
# Factor of a command: "Check the log" rather than "The log must be checked".
_COMMAND = 1.15
# Factor of what changed, or what units differ in: a reader must know it.
_DISPUTED = 1.3
# Factor for each literal of a sentence that few other units have: it is about one case.
_SPECIFIC = 0.85
_MOST_SPECIFIC = 0.45
# Factor of a short rule after one with a condition, which may hold for both: "When x, do y. Always do z."
_SHORT_WORDS, _CONDITION_BEFORE = 10, 0.6
# Factor of a verdict that names no cause.
_WISH = 0.5
_LONG_CHARS, _LONG = 240, 0.8
# A unit supports a sentence if one of its own has this cosine with it.
_SUPPORTS = 0.3
# Share of units that must support a headline that does not instruct: otherwise it tells of one case.
_FACT_SUPPORT, _REPORT_SUPPORT = 0.55, 0.5
# Share for advice where fewer units instruct, and for a reason.
_RULE_SUPPORT, _REASON_SUPPORT = 0.4, 0.3
# A line of a part must have this cosine with the headline, or it is about something else.
_RELATED, _RELATED_ADVICE = 0.06, 0.15
# A line of a part must not have this cosine with another line; a reason speaks of the same as what it is a reason for.
_ALIKE, _ALIKE_REASON = 0.5, 0.75
# Share of the units with more than a subject that must have an instruction, for the headline to be one.
_INSTRUCTING = 0.5
# A further line must score this much of the best one of its part.
_WORTH = 0.4
# With this share of questions, a group is about what is asked.
_ASKING = 0.25
# Share of the units that give their kind to all examples.
_MOST = 0.5
# Share of the weight of a group that a template family must have.
_TEMPLATE_SHARE = 0.6


@dataclass(frozen=True)
class Style:
    """``rule``: further factor of the scores of advice and warnings. ``parts``: of *Do*, *Avoid* and *Because*."""

    rule: float
    parts: tuple[int, int, int]


# A pattern says what happens and what to do; a principle says what to do.
PATTERN = Style(rule=1.0, parts=(_MAX_DO, _MAX_AVOID, _MAX_BECAUSE))
PRINCIPLE = Style(rule=2.0, parts=(1, 1, 0))


class PatternWriter:
    """Writes the text of one group."""

    def __init__(self, units: Sequence[Unit], ranking: SentenceRanking, terms: tuple[str, ...], style: Style) -> None:
        self.units = units
        self.ranking = ranking
        self.terms = terms
        self.style = style
        self.sentences = list_sentences(ranking)
        self.texts = {at: "\n".join(found) for at, found in self.sentences.items()}
        self.language = detect_language("\n".join(self.texts.values()))
        self.weight = sum(units[at].weight for at in self.texts)
        self.title = write_title(list(self.texts.values()), terms)
        clear = [one for one in ranking.sentences if one.sentence.readability >= _READABLE]
        self.usable, self.overruled = settle_disputes(clear or ranking.sentences, units)
        self.has_clear = bool(clear)
        self.literals = Counter(literal for text in self.texts.values() for literal in set(literals(text)))
        self.bug_reports = {at for at, text in self.texts.items() if is_bug_report(text)}
        self.stems = {term.stem for word in terms for term in extract_terms(word)}

    def write(self, sightings: Sightings) -> ExtractedPattern:
        """Return the pattern."""
        candidates = [self._read(one) for one in self.usable]
        rules, warnings = ([one for one in candidates if one.lesson.role == role] for role in ("rule", "warning"))
        pitfalls = [
            *warnings,
            *(one for one in candidates if one.lesson.role == "fact" and is_pitfall(one.lesson.text)),
        ]
        used: list[Candidate] = []
        practices: list[Candidate] = []
        gotchas: list[Candidate] = []
        render = partial(render_pattern, sightings=sightings, language=self.language)
        support = 0.0
        family = self._find_template()
        if family is not None and self._weigh_texts(family.members) >= _TEMPLATE_SHARE:
            title, headline, support = "", family.text, self._weigh_texts(family.members)
            content = render(title="", headline=headline)
        elif best := self._find_headline(candidates):
            title, headline = self.title, best.lesson.text
            support = self._measure_support(best)
            parts = self._find_parts(best, candidates)
            practices, gotchas = (
                self._choose(found, most=_MAX_LISTED, max_chars=_LISTED_CHARS) for found in (rules, pitfalls)
            )
            used = [best, *practices, *gotchas, *(one for part in parts for one in part)]
            do, avoid, because = ([one.lesson.text for one in part] for part in parts)
            title = fit_title(title, [headline, *do, *avoid, *because], list(self.texts.values()), self.terms)
            # A short sentence alone is its own title.
            title = title if any(parts) or len(headline) > MAX_TITLE_CHARS else ""
            content = render(title=title, headline=headline, do=do, avoid=avoid, because=because)
        else:
            used = self._find_examples(family)
            lines = [*([family.text] if family else []), *(one.lesson.text for one in used)]
            topic = self._find_topic()
            told = [shorten_example(line) for line in lines[:_MAX_EXAMPLES]]
            title = fit_title(topic, [], list(self.texts.values()), self.terms)
            headline = "; ".join(told)
            is_single = len({normalize_text(text) for text in self.texts.values()}) == 1
            content = render(
                title="" if is_single else title,
                headline=headline if is_single else "",
                examples=[] if is_single else told,
                examples_are=self._find_kind(candidates),
            )
        return ExtractedPattern(
            content=content,
            title=title,
            summary=headline,
            best_practices=tuple(one.lesson.text for one in practices),
            gotchas=tuple(one.lesson.text for one in gotchas),
            key_terms=self.terms,
            pattern_type=vote_pattern_type([replace(self.units[at], text=text) for at, text in self.texts.items()]),
            evidence=list_evidence(self.ranking, [one.ranked for one in used]),
            overruled=self.overruled,
            support=round(support, 6),
        )

    def _read(self, ranked: RankedSentence) -> Candidate:
        sentences = self.sentences[ranked.text]
        is_opening = len(sentences) > 1 and ranked.sentence.text == sentences[0]
        lesson = read_lesson(ranked.sentence.text, is_opening=is_opening)
        # What units dispute is of all of them, whatever its values; "was 3" makes it no report.
        disputed = is_disputed(ranked)
        if disputed:
            role = read_lesson(" ".join(ranked.sentence.quote.split())).role
            lesson = replace(lesson, role=role if role in ("rule", "warning", "question") else "fact")
        if lesson.role == "fact" and len(sentences) > 1 and not SENTENCE_END.search(lesson.text):
            lesson = replace(lesson, role="subject")
        if lesson.role in ("rule", "warning", "fact") and ranked.text in self.bug_reports:
            lesson = replace(lesson, role="fragment")
        factor = _ROLE_FACTORS[lesson.role] * (self.style.rule if lesson.role in ("rule", "warning") else 1.0)
        found = frozenset() if disputed else literals(lesson.text)
        rare = sum(2 * self.literals[literal] < len(self.texts) for literal in found)
        factor *= _DISPUTED if disputed else 1.0
        factor *= _COMMAND if is_command(lesson.text) else 1.0
        factor *= max(_MOST_SPECIFIC, _SPECIFIC**rare)
        factor *= _CONDITION_BEFORE if lesson.role == "rule" and self._follows_condition(ranked) else 1.0
        factor *= _WISH if names_wish_alone(lesson.text) else 1.0
        factor *= _LONG if len(lesson.text) > _LONG_CHARS else 1.0
        return Candidate(ranked, lesson, ranked.score * factor)

    def _follows_condition(self, ranked: RankedSentence) -> bool:
        """Return True for a short rule without a condition, after a sentence that has one."""
        sentences = self.sentences[ranked.text]
        at = sentences.index(ranked.sentence.text) if ranked.sentence.text in sentences else 0
        is_short = len(ranked.sentence.text.split()) <= _SHORT_WORDS
        return at > 0 and is_short and opens_with_condition(sentences[at - 1])

    def _find_template(self) -> TemplateFamily | None:
        positions = list(self.texts)
        weights = [self.units[at].weight for at in positions]
        family = find_template([self.texts[at] for at in positions], weights)
        return family and replace(family, members=tuple(positions[at] for at in family.members))

    def _find_headline(self, candidates: Sequence[Candidate]) -> Candidate | None:
        """Return the best sentence that speaks for the group."""
        ordered = sorted(candidates, key=lambda one: replace(one.ranked, score=one.score).order)
        told = [one for one in ordered if self.has_clear and self._is_on_topic(one.lesson.text)]
        instructs = self._has_instructions(candidates)
        leasts: dict[Role, float] = {"rule": 0.0 if instructs else _FACT_SUPPORT, "fact": _FACT_SUPPORT}
        leasts |= {"warning": leasts["rule"], "definition": _FACT_SUPPORT}
        if self._ask(candidates) >= _ASKING and not instructs:
            return None
        faults = self._list_faults(candidates)
        # What to do, even of fewer units, says more than a report on one of them.
        passes: tuple[dict[Role, float], ...] = (
            leasts,
            {"rule": _RULE_SUPPORT, "warning": _RULE_SUPPORT},
            {"report": _REPORT_SUPPORT},
        )
        for wanted in passes:
            for one in [one for one in told if one.lesson.role in wanted][:_MAX_LISTED]:
                is_right = not any(instructs_fault(one.lesson.text, fault, self.language) for fault in faults)
                if is_right and self._measure_support(one) >= wanted[one.lesson.role]:
                    return one
        return None

    def _list_faults(self, candidates: Iterable[Candidate]) -> list[tuple[str, ...]]:
        """Return what the units call wrong."""
        return sorted({fault for one in candidates if (fault := read_fault(one.ranked.sentence.text))})

    def _ask(self, candidates: Iterable[Candidate]) -> float:
        """Return the share of units that ask something."""
        return self._weigh_texts(one.ranked.text for one in candidates if one.lesson.role == "question")

    def _find_kind(self, candidates: Sequence[Candidate]) -> ExampleKind:
        """Return what most of the units are."""
        if self._ask(candidates) >= _MOST:
            return "questions"
        if self._weigh_texts(at for at, found in self.sentences.items() if is_change(found[0])) >= _MOST:
            return "changes"
        problems = (at for at in self.texts if self.units[at].memory_type in ("error_fix", "bugfix"))
        return "problems" if self._weigh_texts(problems) >= _MOST else "any"

    def _find_topic(self) -> str:
        """Return the title of units that share no lesson: if they have titles, from what these share."""
        openings = [found[0] for found in self.sentences.values() if len(found) > 1]
        if 2 * len(openings) < len(self.sentences):
            return self.title
        counted = Counter(term for text in openings for term in {one.surface for one in extract_terms(text)})
        shared = [term for term, count in counted.items() if count > 1]
        shared.sort(key=lambda term: (term not in self.terms, -counted[term], term))
        title = write_title(openings, shared)
        # One word alone, such as "Upgrade", tells little.
        return title if " " in title else self.title

    def _has_instructions(self, candidates: Sequence[Candidate]) -> bool:
        """Return True if enough of the units that have more than a subject instruct."""
        speaking = {at for at, found in self.sentences.items() if len(found) > 1}
        speaking |= {one.ranked.text for one in candidates if one.lesson.role not in ("subject", "fragment")}
        instructing = {one.ranked.text for one in candidates if one.lesson.role in ("rule", "warning")}
        total = sum(self.units[at].weight for at in speaking)
        return sum(self.units[at].weight for at in instructing) >= _INSTRUCTING * total

    def _weigh_texts(self, texts: Iterable[int]) -> float:
        """Return the share of texts by weight."""
        return sum(self.units[at].weight for at in set(texts)) / self.weight

    def _is_on_topic(self, text: str) -> bool:
        return not self.stems or any(term.stem in self.stems for term in extract_terms(text))

    def _measure_support(self, candidate: Candidate) -> float:
        """Return the share of the units, by weight, that have a sentence like this one."""
        vectors, rows = self.ranking.vectors, [one.row for one in self.ranking.sentences]
        cosines = (vectors[rows] @ vectors[[candidate.ranked.row]].T).toarray().ravel()
        texts = {
            one.text
            for one, cosine in zip(self.ranking.sentences, cosines.tolist(), strict=True)
            if cosine >= _SUPPORTS
        }
        return sum(self.units[at].weight for at in texts) / self.weight

    def _find_parts(self, headline: Candidate, candidates: Sequence[Candidate]) -> list[list[Candidate]]:
        """Return the lines of *Do*, *Avoid* and *Because* that neither repeat the headline nor each other."""
        roles = {"rule": 0, "warning": 1}
        parts: list[list[Candidate]] = [[], [], []]
        told = [headline]
        faults = self._list_faults(candidates)
        # What is a fact needs no reason.
        parts_told = self.style.parts if headline.lesson.role in roles else (*self.style.parts[:2], 0)
        for number, most in enumerate(parts_told):
            found = [
                one
                for one in candidates
                if one is not headline
                and (
                    roles.get(one.lesson.role) == number
                    if number < _BECAUSE
                    else one.lesson.is_reason and one.lesson.role in ("fact", "report") and self._is_reason(one)
                )
                and len(one.lesson.text) <= _LONG_CHARS
                and (len(self.sentences[one.ranked.text]) == 1 or SENTENCE_END.search(one.lesson.text))
                and self._measure_cosine(one, headline) >= (_RELATED if number == _BECAUSE else _RELATED_ADVICE)
                and not any(instructs_fault(one.lesson.text, fault, self.language) for fault in faults)
            ]
            limit = _ALIKE if number < _BECAUSE else _ALIKE_REASON
            best = max((one.score for one in found), default=0.0)
            worth = [one for one in found if one.score >= _WORTH * best]
            for one in self._choose([*told, *worth], most=most + len(told), max_chars=_PART_CHARS * 2, first=told):
                if (
                    one not in told
                    and len(parts[number]) < most
                    and not any(self._is_like(one, other, limit) or opposes(one, other) for other in told)
                ):
                    parts[number].append(one)
                    told.append(one)
        return parts

    def _is_reason(self, one: Candidate) -> bool:
        """Return True if a sentence names a cause that more than one unit knows."""
        text = one.lesson.text
        is_told = SENTENCE_END.search(text) is not None and names_cause(text)
        return is_told and self._measure_support(one) >= _REASON_SUPPORT

    def _measure_cosine(self, one: Candidate, other: Candidate) -> float:
        vectors = self.ranking.vectors[[one.ranked.row, other.ranked.row]]
        return float((vectors[[0]] @ vectors[[1]].T).sum())

    def _is_like(self, one: Candidate, other: Candidate, limit: float) -> bool:
        """Return True if the sentences share most of their terms, or one says no more than the other."""
        is_near = self._measure_cosine(one, other) >= limit
        return (is_near and not is_disputed(one.ranked)) or repeats(one, other)

    def _find_examples(self, family: TemplateFamily | None) -> list[Candidate]:
        """Return the most central openings of units that differ and are no members of the family."""
        members = family.members if family else ()
        openings = [
            one
            for one in self.ranking.sentences
            if one.text not in members and one.sentence.text == self.sentences[one.text][0]
        ]
        scored = [replace(one, score=one.score / one.sentence.readability) for one in openings]
        scored.sort(key=lambda one: one.order)
        lessons = [Candidate(one, Lesson(one.sentence.text, "subject", False), one.score) for one in scored]
        chosen = self._choose(lessons, most=_MAX_EXAMPLES, max_chars=10 * _PART_CHARS)
        told: list[Candidate] = []
        for one in [*chosen, *(one for one in lessons if one not in chosen)][: 4 * _MAX_EXAMPLES]:
            if len(told) < _MAX_EXAMPLES and not any(repeats(one, other) for other in told):
                told.append(one)
        return told

    def _choose(
        self, candidates: Sequence[Candidate], *, most: int, max_chars: int, first: Sequence[Candidate] = ()
    ) -> list[Candidate]:
        """Return what ``SentenceRanking.choose`` does, the ``first`` before the others."""
        by_row = {one.ranked.row: one for one in candidates}
        top = max((one.score for one in candidates), default=0.0)
        before = {one.ranked.row: top * (1 + 0.01 * (len(first) - at)) for at, one in enumerate(first)}
        scored = (
            replace(
                one.ranked,
                sentence=replace(one.ranked.sentence, text=one.lesson.text),
                score=before.get(one.ranked.row, one.score),
            )
            for one in candidates
        )
        return [by_row[one.row] for one in self.ranking.choose(scored, most=most, max_chars=max_chars)]
