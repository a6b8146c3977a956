"""Reader: makes the reading of a text, clause by clause."""

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache

from consolidation_pipeline.core.differences.connectives import unify_connectives
from consolidation_pipeline.core.differences.language import Language, Phrase, is_unspaced
from consolidation_pipeline.core.differences.language_detection import detect_language
from consolidation_pipeline.core.differences.language_loader import load_language
from consolidation_pipeline.core.differences.lexer import (
    PHRASE_MARKERS,
    Piece,
    blank_closings,
    drop_remarks,
    join_negations,
    join_particles,
    move_tools,
    open_conditions,
    quote,
    read_copulas,
    split_pieces,
    unify_signs,
)
from consolidation_pipeline.core.differences.phrase_matcher import PhraseMatcher, replace_phrases
from consolidation_pipeline.core.differences.quantities import add_numbers, in_small_units, measure, scale
from consolidation_pipeline.core.differences.questions import find_question
from consolidation_pipeline.core.differences.reading import DONE, VERB, Cue, Reading, Token
from consolidation_pipeline.core.differences.rewriting import rewrite
from consolidation_pipeline.core.differences.times import join_times
from consolidation_pipeline.core.differences.verb_second import (
    put_objects_last,
    put_owners_first,
    put_subjects_first,
    read_demands,
)

_NUMBER = re.compile(r"number:(-?\d+(?:\.\d+)?)")
# "You should", "we must"
_DEMANDS = {("modality", "required"), ("modality", "advised")}
_OPENING_WORDS = 2
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th|er|ère|ème|e|º|ª)")
# Twice; "every 30 seconds" also tells when.
_DURATION = re.compile(r"number:[\d.]+ (?:s|min|h|d|month|year)")
_TIMES = re.compile(r"number:[\d.]+ x")
_ACRONYMS = re.compile(r"[A-Z]{2,}s")  # PDFs


# Each pair that a text is in reads it again: the readings of 4,000 texts take about 40 MB.
@lru_cache(maxsize=4096)
def read(text: str) -> Reading:
    """Read a text. A text of an unknown language is read with the word lists of English."""
    return read_in(text, detect_language(text))


@lru_cache(maxsize=1024)
def read_in(text: str, code: str | None) -> Reading:
    """Read a text whose language is known from elsewhere, such as what stands around it."""
    language = load_language(code or "en")
    reader = _Reader(blank_closings(unify_signs(text), language), language)
    reader.read()
    ends, agents = tuple(reader.ends), frozenset(reader.agents)
    return Reading(text, code, tuple(reader.tokens), tuple(reader.cues), tuple(reader.frame), ends, agents)


class _Reader:
    """State of reading one text, clause by clause."""

    def __init__(self, text: str, language: Language) -> None:
        self.text = text
        self.language = language
        self.phrases = PhraseMatcher(text, language)
        self.tokens: list[Token] = []
        self.cues: list[Cue] = []
        self.frame: list[int | str] = []
        self.ends: list[tuple[int, int, int, int]] = []
        self.agents: set[int] = set()
        self.clause = self.segment = self.conjunct = self.phrase = 0
        self.governor = ""
        self.gerund = -1  # number of tokens before the last "needs cleaning"
        self.last_marker = ""  # of this clause
        self.governed_from = 0  # number of tokens before the governor
        self.words_before = 0
        self.gap = "tight"
        self.clause_start = 0
        self.pointed = -1  # number of tokens before the last demonstrative
        self.dated = -1  # number of tokens before the last article of a date
        self.is_adverb = False  # of the next token: "first" tells when
        self.passive: int | None = None  # number of tokens before the last auxiliary of the passive in this clause

    def read(self) -> None:
        """Fill ``tokens`` and ``cues``."""
        language = self.language
        pieces = list(split_pieces(self.text, language))
        pieces = replace_phrases(pieces, language)
        pieces = rewrite(pieces, language)
        pieces = join_times(pieces, language, self.text)
        pieces = unify_connectives(drop_remarks(pieces, language), language)
        pieces = join_negations(pieces, language)
        pieces = read_copulas(pieces, language) if language.copula_clitic else pieces
        pieces = open_conditions(pieces, language) if language.verb_first else pieces
        pieces = read_demands(pieces, language) if language.demands else pieces
        pieces = put_objects_last(pieces, language) if language.object_articles else pieces
        pieces = (
            put_subjects_first(put_owners_first(pieces, language), language, self.text)
            if language.nominatives
            else pieces
        )
        pieces = join_particles(pieces, language) if language.particles else pieces
        pieces = move_tools(pieces, language)
        at, is_opening, sentence_start, relative = 0, True, 0, -1
        while at < len(pieces):
            piece = pieces[at]
            if piece.kind in ("stop", "comma"):
                is_opening = is_opening or piece.kind == "stop"
                if piece.kind == "stop":
                    self._read_question(pieces[sentence_start:at], piece.text)
                    self._end_sentence(piece.start + len(piece.text))
                    sentence_start = at + 1
                self._end_passive()
                self.clause, self.segment, self.conjunct = self.clause + 1, self.segment + 1, self.conjunct + 1
                self.phrase, self.governor, self.last_marker = self.phrase + 1, "", ""
                self.passive, self.clause_start = None, len(self.tokens)
                at += 1
                continue
            if is_opening and piece.lower in language.openings:
                at += 1
                continue
            if piece.lower in language.openings and self._opens_demand(pieces[sentence_start:at]):
                at += 1
                continue
            if is_opening and (divided := self.phrases.match_divided_label(pieces, at)):
                at += divided
                continue
            if piece.lower in language.articles and self._read_one(pieces, at):
                is_opening, at = False, at + 2
                continue
            if piece.lower in language.relatives and self._opens_participle(pieces, at):
                relative = at = at + 1  # "tickets that are tagged" are tagged tickets
                continue
            size, meaning = self._match_in_context(pieces, at)
            role = meaning.role if meaning else ""
            words = pieces[at : at + size]
            if role == "label":
                following = pieces[at + size].text if at + size < len(pieces) else ""
                # 更新软件后重启 tells of an update.
                word = tuple(one.lower for one in words) if is_unspaced(piece.lower) else ()
                is_content = word in language.synonym_phrases and " ".join(word) not in language.groups
                if is_opening and ((size > 1 and not is_content) or following in (":", ",", "-")):
                    at += size
                    continue
                size, meaning = self.phrases.match_synonym(pieces, at)
                role, words = (meaning.role if meaning else ""), pieces[at : at + size]
            is_first, is_opening = is_opening, False
            has_auxiliary = any(word.lower in language.passive_auxiliaries for word in words)
            has_auxiliary = has_auxiliary or self.gerund == len(self.tokens)
            if role in ("light", "cue") and has_auxiliary and at != relative:
                self._end_passive()
                self.passive = len(self.tokens)
            is_agent = meaning and role == "marker" and meaning.key in language.agents
            if is_agent and not language.has_late_participles and self._find_participle() is not None:
                self.frame.append("link by ")
                at = self._read_agent(pieces, at + size)
                continue
            if meaning and role in ("marker", "cue"):
                category, pole = ("marker", meaning.key) if role == "marker" else (meaning.key, meaning.pole)
                written, start = quote(self.text, words), words[0].start
                self.cues.append(Cue(written, category, pole, len(self.tokens), self.clause, start))
            if meaning and role == "marker":
                self.last_marker = words[0].lower
            if meaning and role == "marker" and meaning.key not in PHRASE_MARKERS:
                self._end_passive()
                self.segment += 1
                self.clause_start = len(self.tokens)
            if meaning and role in ("light", "marker"):
                self.phrase += 1
                self._set_governor(words, meaning)
            elif role != "cue":
                size = self._read_content(pieces, at, size, meaning, is_first)
            if meaning and role != "synonym":
                self.words_before += size
                self._widen_gap(words, meaning)
            at += size
        self._read_question(pieces[sentence_start:], "")
        self._end_sentence(len(self.text))

    def _match_in_context(self, pieces: Sequence[Piece], at: int) -> tuple[int, Phrase | None]:
        """As ``match`` of the phrases, for words whose meaning depends on those beside them."""
        size, meaning = self.phrases.match(pieces, at)
        language, word = self.language, pieces[at].lower
        if size > 1 and is_unspaced(word) and self.phrases.ends_in_longer(pieces, at, size):
            return 1, language.phrases.get((word,))
        if word in language.participle_prepositions and self.tokens and not self.words_before:
            return 1, Phrase("light")
        if word in language.late_spans and self.tokens and self._is_span(self.tokens[-1]):
            self.tokens[-1] = self.tokens[-1]._replace(governor=min(language.spans & language.prepositions), gap="link")
            return 1, Phrase("light")
        if size == 1 and word in language.perfects and self._is_participle(pieces, at + 1):
            return 1, Phrase("cue", "tense", "past")
        if size == 1 and word in language.approximations and not self._counts(pieces, at + 1):
            return 1, Phrase("light")
        if meaning and (meaning.key, meaning.pole) == ("order", "earlier") and self._follows_before():
            return size, Phrase("light")
        if meaning and meaning.key == "against" and self._compares():
            return size, Phrase("light", "with")
        if meaning and meaning.key == "than" and language.has_noun_capitals and self._tells_state(pieces, at + 1):
            return size, Phrase("light")
        if size == 1 and word in language.degrees and at + 1 < len(pieces) and self._has_degree(pieces[at + 1]):
            return 1, Phrase("synonym", language.read_word(language.degrees[word]))
        if word in language.gerund_verbs and at + 1 < len(pieces):  # "needs cleaning"
            following = pieces[at + 1]
            if following.kind == "word" and following.lower.endswith(language.gerund_endings):
                self.gerund = len(self.tokens)
                return 1, Phrase("cue", "modality", "required")
        if meaning and meaning.key == "switch" and size > 1 and self._stands_before_noun(pieces, at + size):
            return 1, language.phrases.get((word,))
        if meaning and size > 1 and self._ends_with_preposition(pieces, at + size):
            return 1, language.phrases.get((word,))
        if meaning and size > 1 and (meaning.key, meaning.pole) == ("order", "final"):
            behind = pieces[at + size].lower if at + size < len(pieces) else ""
            if behind in language.genitives:  # "at the end of the month"
                return 1, language.phrases.get((word,))
        if meaning and meaning.key == "until" and self.last_marker == "from" and self._ends_with_time():
            return size, Phrase("marker", "to")  # "from May until June"
        return size, meaning

    def _is_span(self, token: Token) -> bool:
        """Return True for a duration: "30 Tage", "eine Stunde"."""
        return bool(_DURATION.fullmatch(token.key)) or self.language.stem(token.text.lower()) in self.language.times

    def _opens_demand(self, opening: Sequence[Piece]) -> bool:
        """Return True if a sentence opens with words such as "you should", behind which "always" says nothing."""
        if len(opening) != _OPENING_WORDS or opening[0].lower not in self.language.addressees:
            return False
        demand = self.language.phrases.get((opening[1].lower,))
        return demand is not None and (demand.key, demand.pole) in _DEMANDS

    def _follows_before(self) -> bool:
        """Return True if a marker such as "before" ends here: 部署前先通知 is 部署前通知."""
        return any((cue.pole, cue.place) == ("before", len(self.tokens)) for cue in self.cues)

    def _compares(self) -> bool:
        """Return True if a verb such as "test" stands ahead in the clause."""
        tokens = self.tokens[self.clause_start :]
        return any(self.language.stem(token.text.lower()) in self.language.comparisons for token in tokens)

    def _ends_with_time(self) -> bool:
        """Return True if at most one token stands behind the last preposition, or the last one is a time or number."""
        if len(self.tokens) - self.governed_from < 2:
            return True
        return self.tokens[-1].key.startswith(("number:", "date:", "days-", "months-"))

    def _counts(self, pieces: Sequence[Piece], at: int) -> bool:
        """Return True if a number, a time or an amount begins at a piece: "about 30", "about an hour"."""
        if at < len(pieces) and pieces[at].lower in self.language.determiners:
            at += 1
        if at >= len(pieces):
            return False
        piece, language = pieces[at], self.language
        phrase = language.phrases.get((piece.lower,))
        is_amount = phrase is not None and phrase.key == "quantity"
        is_time = language.stem(piece.lower) in language.times or piece.lower in language.calendar
        return piece.kind == "literal" or piece.lower in language.numbers or is_amount or is_time

    def _tells_state(self, pieces: Sequence[Piece], at: int) -> bool:
        """Return True if an adjective stands at a piece, and nothing is compared: "wird als offline angezeigt"."""
        tokens, language = self.tokens[self.clause_start :], self.language
        if not tokens or at >= len(pieces) or pieces[at].kind != "word" or (pieces[at].lower,) in language.phrases:
            return False
        endings = (*language.graded_endings, "ers")
        compares = any(token.text[0].islower() and token.text.endswith(endings) for token in tokens)
        counts = any(cue.clause == self.clause and cue.category == "quantity" for cue in self.cues)
        return pieces[at].text[0].islower() and not compares and not counts

    def _has_degree(self, piece: Piece) -> bool:
        """Return True for a comparative and a participle: "etwas höher", "etwas gestiegen", not "etwas essen"."""
        language, word = self.language, piece.lower
        is_known = (word,) in language.phrases or piece.text[0].isupper()
        return not is_known and (word.endswith(language.graded_endings) or language.is_participle(word))

    def _is_participle(self, pieces: Sequence[Piece], at: int) -> bool:
        return at < len(pieces) and self.language.is_participle(pieces[at].lower)

    def _opens_participle(self, pieces: Sequence[Piece], at: int) -> bool:
        """Return True if a relative clause in the passive begins at a piece, after a noun: "that are tagged"."""
        if not self.tokens or self.words_before or at + 2 >= len(pieces):
            return False
        return pieces[at + 1].lower in self.language.passive_auxiliaries and self._is_participle(pieces, at + 2)

    def _stands_before_noun(self, pieces: Sequence[Piece], at: int) -> bool:
        """Return True if a noun phrase begins at a piece: "is on the desk", not "is on in the lab"."""
        if at >= len(pieces) or pieces[at].kind in ("stop", "comma"):
            return False
        meaning, word = self.language.phrases.get((pieces[at].lower,)), pieces[at].lower
        if meaning is None or meaning.role == "label":
            return True
        return word in self.language.determiners and word not in self.language.prepositions

    def _ends_with_preposition(self, pieces: Sequence[Piece], end: int) -> bool:
        """Return True if the last word before a piece is no particle: "hört auf dem Ohr", "come around ten"."""
        language, last = self.language, pieces[end - 1].lower
        meaning = language.phrases.get((last,))
        if meaning and (meaning.key, meaning.pole) == ("bound", "about"):
            return self._counts(pieces, end) and bool(language.stemmer)
        is_both = language.has_prefixes and last in language.particles and last in language.prepositions
        if not is_both or end >= len(pieces):
            return False
        is_noun = pieces[end].text[0].isupper() or pieces[end].kind == "literal"  # "hört auf Port 80"
        return is_noun or pieces[end].lower in language.determiners

    def _end_sentence(self, end: int) -> None:
        """Take note of a sentence that ends at an offset."""
        self._end_passive()
        self.ends.append((end, len(self.tokens), len(self.cues), len(self.frame)))

    def _read_question(self, sentence: Sequence[Piece], end: str) -> None:
        """Append a cue if a sentence asks."""
        if question := find_question(sentence, end, self.text, self.language):
            written, pole, start = question
            self.cues.append(Cue(written, "question", pole, len(self.tokens), self.clause, start))

    def _find_participle(self) -> int | None:
        """Return the position of the participle after the last auxiliary of the passive, None if there is none."""
        at, language = self.passive, self.language
        if at is None:
            return None
        while at < len(self.tokens):
            word = self.tokens[at].text.lower().partition(" ")[0]  # "set up"
            is_gerund = at == self.gerund and word.endswith(language.gerund_endings)
            if is_gerund or language.is_participle(word):
                return at
            if not word.endswith(language.adverb_endings) and not language.has_late_participles:
                return None
            at += 1
        return None

    def _end_passive(self, agent: Sequence[Token] = ()) -> None:
        """Put the tokens of a passive clause into the order of the active one: agent, verb, subject, the rest."""
        verb = self._find_participle()
        if verb is not None and self.passive is not None:
            tokens, subject, middle = self.tokens, self._find_subject(self.passive), self.passive
            phrase, between = tokens[verb].phrase, tokens[middle:verb]
            if self.language.has_late_participles:  # "wird von Ann täglich gelesen"
                agent = [token for token in between if token.governor in self.language.agents]
                between = [token for token in between if token not in agent]
                first, rest = [tokens[verb]], [*between, *tokens[verb + 1 :]]
                if all(token.governor for token in tokens[subject:middle]):  # "nach 30 Tagen werden Dateien gelöscht"
                    rest, middle = [*between, *tokens[subject:middle], *tokens[verb + 1 :]], subject
            else:
                first, rest = tokens[middle : verb + 1], tokens[verb + 1 : len(tokens) - len(agent)]
            agent = [token._replace(phrase=phrase, governor="") for token in agent]
            self.agents.update(token.place for token in agent)
            tokens[subject:] = [*agent, *first, *tokens[subject:middle], *rest]
        self.passive = None

    def _find_subject(self, before: int) -> int:
        """Return the position of the noun phrase that ends before a position, with the phrases that belong to it."""
        at = before
        while at > self.clause_start:
            phrase, governor = self.tokens[at - 1].phrase, self.tokens[at - 1].governor
            while at > self.clause_start and self.tokens[at - 1].phrase == phrase:
                at -= 1
            if not governor:
                break
        return at

    def _set_governor(self, words: Sequence[Piece], meaning: Phrase) -> None:
        """Take note of a preposition or marker, which governs the tokens up to the end of the noun phrase."""
        word = words[-1].lower
        language = self.language
        if meaning.role == "light" and is_unspaced(word) and word in language.done:  # 迁移到了
            return
        if word in language.demonstratives:
            self.pointed = len(self.tokens)
        if word in language.date_articles:
            self.dated = len(self.tokens)
        written = " ".join(piece.lower for piece in words)
        is_request = meaning.role == "light" and len(words) > 1 and written not in language.prepositions
        if is_request and words[0].lower not in language.prepositions:  # "pensez à fermer", "n'oubliez pas de fermer"
            self.governor = ""
        elif meaning.role == "marker" or word in language.prepositions or word in language.participle_prepositions:
            preposition = written if written in language.prepositions else word  # dentro de
            self.governor, self.governed_from = (meaning.key or preposition), len(self.tokens)
        elif word not in self.language.determiners or self.governed_from < len(self.tokens):
            self.governor = ""  # the noun of the preposition has come: "for each order the shop .."

    def _widen_gap(self, words: Sequence[Piece], meaning: Phrase) -> None:
        """Take note of what stands between two tokens."""
        last, language = words[-1].lower, self.language
        size, word = (1, "".join(piece.lower for piece in words)) if is_unspaced(last) else (len(words), last)
        self.frame += [f"{self._classify(word, meaning)} {meaning.key} {meaning.pole}"] * size  # 前 is 之前
        is_link = last in language.prepositions or last in language.participle_prepositions
        self.conjunct += last in language.coordinators
        if meaning.role == "marker" or (is_link and last not in language.genitives):
            self.gap = "link"
        elif last in language.genitives:
            genitive = "s" if last in language.possessives else "of"
            self.gap = genitive if self.gap != "link" else "link"
        elif self.gap in ("tight", "loose"):
            self.gap = "and" if last in language.coordinators else "loose"

    def _classify(self, word: str, meaning: Phrase) -> str:
        """Return the class of a function word, of which another one may stand in its place."""
        if word in self.language.light_verbs:
            return f"{VERB}{self.language.read_word(word)}"
        if (
            meaning.role == "light"
            and (word in self.language.done or word in self.language.floating)
            and is_unspaced(word)
        ):
            return DONE
        if meaning.role == "cue":
            return "cue" if meaning.key != "quantity" else "other"
        if meaning.role == "marker":
            return "link" if meaning.key in PHRASE_MARKERS else "clause"
        if word in self.language.determiners:
            return "determiner"
        if word in self.language.genitives:
            return "other"
        is_link = word in self.language.prepositions or word in self.language.participle_prepositions
        return "link" if is_link else "other"

    def _read_agent(self, pieces: Sequence[Piece], at: int) -> int:
        """Read the agent of a passive clause, and return the position of the piece after it."""
        start = len(self.tokens)
        self.phrase += 1
        self.governor = ""
        while at < len(pieces) and pieces[at].kind not in ("stop", "comma"):
            size, meaning = self.phrases.match(pieces, at)
            if meaning and (meaning.role == "marker" or len(self.tokens) > start):
                break
            if meaning and meaning.role == "cue":
                written = quote(self.text, pieces[at : at + size])
                self.cues.append(Cue(written, meaning.key, meaning.pole, start, self.clause, pieces[at].start))
            elif not meaning or meaning.role in ("synonym", "label"):
                is_phrase = meaning is not None and meaning.role == "synonym"
                size = self._read_content(pieces, at, size if is_phrase else 1, meaning if is_phrase else None, False)
            at += size
        self._end_passive(self.tokens[start:])
        self.clause_start = len(self.tokens)
        self.passive = len(self.tokens)  # "is built by A and tested by B"
        self.phrase += 1
        return at

    def _read_content(self, pieces: Sequence[Piece], at: int, size: int, meaning: Phrase | None, is_first: bool) -> int:
        """Append the token that begins at a piece, and return the number of its pieces."""
        language, piece = self.language, pieces[at]
        lower, kind = piece.lower, "value"
        if meaning:  # a phrase with a synonym
            key, kind = meaning.key, "word"
            if lower in language.prepositions:  # "by accident" may stand anywhere, as any phrase with a preposition
                self.phrase += 1
                self._set_governor([piece], Phrase("light"))
                self.gap = "link"
        elif piece.kind in ("code", "sign"):
            key, kind = piece.key, "code"
        elif piece.kind == "literal":
            key = piece.key
            if key.startswith("identifier:") and piece.text.isalpha() and piece.text[0].isupper():
                key, kind = lower, "name"  # GitHub, Github
            elif written := _ORDINAL.fullmatch(lower):
                key = f"ordinal:{written[1]}"
            elif bare := _NUMBER.fullmatch(key):
                words, number = scale(Decimal(bare[1]), pieces, at, language)
                size, measured = measure(number, pieces, at + words - 1, language)
                size += words - 1
                key = measured if size > 1 else key  # "3.10" may be a version: it is not 3.1
        elif lower in language.numbers:
            words, number = add_numbers(pieces, at, language)
            size, key = measure(number, pieces, at + words - 1, language)
            size += words - 1
        elif lower in language.alternations and (period := self._read_alternation(pieces, at)):
            size, key = period
        elif lower in language.ordinals:
            key = f"ordinal:{language.ordinals[lower]}"
            self.is_adverb = lower in language.order_adverbs and self._stands_alone(pieces, at)
        elif (
            day := language.short_calendar.get(piece.text)
            or language.calendar.get(lower)
            or language.calendar.get(language.stem(lower))
        ):
            key = day
            is_plural = lower not in language.calendar and lower.endswith("s")
            is_plural |= at > 0 and pieces[at - 1].lower in (
                language.generic_articles | language.habitual_articles  # "los viernes"
            )
            if is_plural and not self._has_quantity():  # "on Mondays" may be every Monday
                self.cues.append(Cue(piece.text, "quantity", "any", len(self.tokens), self.clause, piece.start))
        elif _is_name(piece.text, is_first, language.has_noun_capitals) or self._is_used_as_name(pieces, at):
            key, kind = (lower[:-1] if _ACRONYMS.fullmatch(piece.text) else lower), "name"
        else:
            key, kind = language.read_word(lower), "word"
        if language.has_noun_capitals and piece.text[0].islower() and self._ends_phrase(lower):
            self.phrase, self.governor = self.phrase + 1, ""  # "nach zehn Minuten automatisch"
        is_after_word = self.tokens and self.tokens[-1].phrase == self.phrase and self.tokens[-1].kind == "word"
        if kind == "name" and is_after_word and self.governor and not language.has_noun_capitals:
            self.phrase, self.governor = self.phrase + 1, ""  # "during the incident Ann restarted"
        self._append(pieces[at : at + size], key, kind, is_phrase=meaning is not None)
        if meaning and lower in language.prepositions:
            self.phrase, self.governor = self.phrase + 1, ""
        return size

    def _ends_phrase(self, word: str) -> bool:
        """Return True if the last token is the noun of a phrase with a preposition, and no participle follows it."""
        if word in self.language.participles:
            return False
        last = self.tokens[-1] if self.tokens else None
        return (
            last is not None
            and bool(last.governor)
            and last.phrase == self.phrase
            and not last.text[-1:].isdigit()
            and last.text.split()[-1][0].isupper()
            and not last.key.startswith("date:")
        )

    def _has_quantity(self) -> bool:
        """Return True if a quantity stands before the next token: "tous les lundis"."""
        return any((cue.category, cue.place) == ("quantity", len(self.tokens)) for cue in self.cues[-2:])

    def _is_used_as_name(self, pieces: Sequence[Piece], at: int) -> bool:
        """Return True for code, a channel, a word behind "named", and the second of two nouns: "Firma Lange"."""
        piece, language = pieces[at], self.language
        if self.text[piece.start - 1 : piece.start] in ("`", "#"):
            return True
        before = pieces[at - 1] if at else None
        if before is None or before.kind != "word":
            return False
        is_noun = before.text[0].isupper() and (before.lower,) not in language.phrases
        return before.lower in language.naming or (
            language.has_noun_capitals
            and piece.text[0].isupper()
            and is_noun
            and before.lower not in language.time_adverbs
        )

    def _append(self, pieces: Sequence[Piece], key: str, kind: str, *, is_phrase: bool = False) -> None:
        governor = self.governor
        word = " ".join(piece.lower for piece in pieces) if is_phrase else pieces[-1].lower
        if is_time := self.is_adverb or (not governor and self._is_time(word, key)):
            governor, self.gap, self.is_adverb = "time", "link", False
        where = self.clause, self.segment, self.conjunct, self.phrase, governor, self.words_before, self.gap
        self.words_before, self.gap = 0, "loose" if is_time else "tight"
        self.frame += [len(self.tokens)] * (1 if is_phrase else len(pieces))
        self.tokens.append(
            Token(quote(self.text, pieces), in_small_units(key), kind, len(self.tokens), *where, pieces[0].start)
        )

    def _is_time(self, word: str, key: str) -> bool:
        """Return True if the next token tells when, without a preposition: "every morning", "heute"."""
        language = self.language
        if word in language.time_adverbs or _TIMES.fullmatch(key):
            return True
        if self.dated == len(self.tokens) and (word in language.calendar or key.startswith("date:")):  # "el viernes"
            return True
        cue = self.cues[-1] if self.cues else None
        is_said = cue is not None and cue.place == len(self.tokens) and cue.category in ("quantity", "tense", "order")
        if is_said and (word in language.calendar or _DURATION.fullmatch(key)):
            return True
        is_said = is_said or self.pointed == len(self.tokens)  # "this morning"
        if self.tokens and self.tokens[-1].text.lower() in language.time_adverbs and not self.words_before:
            is_said = is_said or language.has_noun_capitals  # "morgen früh"
        is_counted = is_said or (self.tokens and _TIMES.fullmatch(self.tokens[-1].key))  # "twice a year"
        return bool(is_counted) and language.stem(word) in language.times

    def _stands_alone(self, pieces: Sequence[Piece], at: int) -> bool:
        """Return True if a piece opens or ends a clause: "first run it", "run it first", not "the first run"."""
        following = pieces[at + 1] if at + 1 < len(pieces) else None
        is_last = (
            following is None or following.kind in ("stop", "comma") or following.lower in self.language.coordinators
        )
        return is_last or at == 0 or pieces[at - 1].kind in ("stop", "comma")

    def _read_one(self, pieces: Sequence[Piece], at: int) -> bool:
        """Append the token of an article and the unit after it, "within an hour", and return True if they are one."""
        if at == 0 or at + 1 >= len(pieces) or pieces[at + 1].kind != "word":
            return False
        before = self.language.phrases.get((pieces[at - 1].lower,))
        if not before or (before.role != "marker" and pieces[at - 1].lower not in self.language.prepositions):
            return False
        size, key = measure(Decimal(1), pieces, at, self.language)
        if size == 1:
            return False
        self._append(pieces[at : at + 2], key, "word")
        return True

    def _read_alternation(self, pieces: Sequence[Piece], at: int) -> tuple[int, str] | None:
        """Return the size and key of a period at a piece: "every other week" is "every two weeks"."""
        cue = self.cues[-1] if self.cues else None
        if cue is None or (cue.place, cue.category) != (len(self.tokens), "quantity"):
            return None
        size, key = measure(Decimal(2), pieces, at, self.language)
        day = self.language.calendar.get(pieces[at + 1].lower) if at + 1 < len(pieces) else None
        return (2, f"{day} number:2") if day else (size, key) if size > 1 else None


def _is_name(text: str, is_first: bool, has_noun_capitals: bool) -> bool:
    """Return True if a word is written as a name. German writes all nouns with a capital."""
    if not text[1:].islower() and any(letter.isupper() for letter in text[1:]):
        return True
    return text[0].isupper() and not is_first and not has_noun_capitals
