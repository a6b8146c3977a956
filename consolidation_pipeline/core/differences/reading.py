"""Readings of texts: their tokens in a canonical order, and the cues that change what is claimed."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from consolidation_pipeline.core.differences.language import WORD, is_unspaced, split_words
from consolidation_pipeline.core.differences.language_loader import load_language
from consolidation_pipeline.core.memories.memories import normalize_text

# Beginning of the class of a light verb.
VERB = "verb-"
# Class of words such as 了, which may stand anywhere behind a verb.
DONE = "done"
# Class of other words that say nothing.
_OTHER = "other  "
# Beginning of the keys of paths.
PATH = "path:"
# A title has at least this many words of four letters or more with a capital, and this share of them.
_FEWEST_CAPITALS, _TITLE_SHARE = 3, 0.8
_LONG_WORD = re.compile(r"[^\W\d_]{4,}")
# The word that opens a sentence of four words or more behind a colon.
_BEHIND_COLON = re.compile(r":\s+(\w+)(?=(?:\s+[^\s.!?]+){3})")
# Kinds of tokens that stand for a value or name; the others are words.
VALUE_KINDS = ("value", "name", "code")


class Token(NamedTuple):
    """One word, name, value or code token with a meaning of its own.

    Attributes:
        key: Tokens are equal by it: the stem of a word, the normal form of a value.
        kind: word, name, value or code.
        place: Position among the tokens as written. A passive clause is put into the order of the active one.
        clause: Number of the clause. Clauses end at punctuation.
        segment: Number of the segment. Segments are clauses that also end at conjunctions.
        conjunct: Number of the conjunct. Conjuncts are clauses that also end at words such as "and".
        phrase: Number of the phrase. Phrases also end at function words.
        governor: Preposition or class of the marker that opens the phrase; empty if none does.
        words_before: Number of function words and cues since the token before, as written.
        gap: What these are: tight (there are none), link (a preposition or marker), a genitive (of, or s behind the
            owner), and, or loose (others).
        start: Offset in the text. ``text`` is as long as what is written there.
    """

    text: str
    key: str
    kind: str
    place: int
    clause: int
    segment: int
    conjunct: int
    phrase: int
    governor: str
    words_before: int
    gap: str
    start: int


class Cue(NamedTuple):
    """A word that changes what is claimed, that asks (``question``), or that governs what follows it (``marker``).

    Attributes:
        place: Place of the next token.
        start: Offset in the text. ``text`` is as long as what is written there.
    """

    text: str
    category: str
    pole: str
    place: int
    clause: int
    start: int


@dataclass(frozen=True)
class Reading:
    """Tokens and cues of a text.

    Attributes:
        language: None if it is not known.
        frame: The words as written: the place of a token, the class and meaning of any other word.
        ends: End of each sentence: in the text, in ``tokens``, in ``cues`` and in ``frame``.
        agents: Places of the tokens that are agents of a passive: "by Ann".
        whole: Of a sentence, the text that it is in, in which offsets count; else empty.
        begin: Offset of the sentence in it.
    """

    text: str
    language: str | None
    tokens: tuple[Token, ...]
    cues: tuple[Cue, ...]
    frame: tuple[int | str, ...] = ()
    ends: tuple[tuple[int, int, int, int], ...] = ()
    agents: frozenset[int] = frozenset()
    whole: str = ""
    begin: int = 0

    @property
    def source(self) -> str:
        """The text in which offsets count."""
        return self.whole or self.text

    def find_sentence(self, offset: int) -> tuple[int, int]:
        """Return where the sentence with an offset begins and ends."""
        ends = [self.begin + end for end, *_ in self.ends] or [self.begin + len(self.text)]
        begin = max((end for end in ends if end <= offset), default=self.begin)
        return begin, next((end for end in ends if end > offset), ends[-1])

    # A text is compared with many: what does not depend on the other one is kept.
    @cached_property
    def normalized(self) -> str:
        """The text in its normal form."""
        return normalize_text(self.text)

    @cached_property
    def words(self) -> frozenset[str]:
        """The different words in lower case."""
        return frozenset(split_words(self.text))

    @cached_property
    def keys(self) -> list[str]:
        """The keys of the tokens."""
        return [token.key for token in self.tokens]

    @cached_property
    def key_set(self) -> frozenset[str]:
        """The different keys of the tokens."""
        return frozenset(self.keys)

    @cached_property
    def names(self) -> int:
        """Number of the tokens that are names."""
        return sum(token.kind == "name" for token in self.tokens)

    @cached_property
    def light_verbs(self) -> frozenset[str]:
        """The keys of the light verbs: has, do."""
        words = (word.split()[0] for word in self.frame if isinstance(word, str))
        return frozenset(word.removeprefix(VERB) for word in words if word.startswith(VERB))

    @cached_property
    def predicates(self) -> frozenset[int]:
        """Positions of the tokens after a form of "be"."""
        at = {token.place: at for at, token in enumerate(self.tokens)}
        language = load_language(self.language or "en")
        copulas = {f"{VERB}{language.read_word(word)}" for word in language.copulas}
        return frozenset(
            at[word]
            for before, word in pairwise(self.frame)
            if isinstance(word, int) and isinstance(before, str) and before.partition(" ")[0] in copulas
        )

    @cached_property
    def has_agent(self) -> bool:
        """True if some word is an agent, or might be one: "by Ann"."""
        return any(isinstance(word, str) and word.startswith("link by") for word in self.frame)

    @cached_property
    def plain_words(self) -> frozenset[str]:
        """The different words that are written in lower case."""
        return frozenset(word for word in WORD.findall(self.text) if word.islower())

    @cached_property
    def _opening_capitals(self) -> frozenset[int]:
        """Offsets of the words of titles, "Rapid Incident Response", and of first words behind a colon."""
        found = [self.begin + match.start(1) for match in _BEHIND_COLON.finditer(self.text)]
        begin = 0
        for end in [end for end, *_ in self.ends] or [len(self.text)]:
            words = list(_LONG_WORD.finditer(self.text, begin, end))
            capitals = sum(word[0][0].isupper() for word in words)
            if capitals >= max(_FEWEST_CAPITALS, _TITLE_SHARE * len(words)):
                found += [self.begin + word.start() for word in words]
            begin = end
        return frozenset(found)

    def select_sure(self, tokens: Sequence[Token], other: "Reading") -> list[Token]:
        """Return ``tokens`` of this text without words that may have their capital from a title or as a first word.

        So may a word that ``other`` or this text writes in lower case too.
        """
        plain = self.plain_words | other.plain_words
        return [
            token
            for token in tokens
            if token.kind != "name"
            or not token.text.istitle()
            or (token.start not in self._opening_capitals and token.text.lower() not in plain)
        ]

    def has_light_verb(self, key: str) -> bool:
        """Return True if the text has a light verb for which the word of a key may stand: has, owns."""
        language = load_language(self.language or "en")
        return any(language.may_replace(verb, key) for verb in self.light_verbs)

    @cached_property
    def partial(self) -> list[int]:
        """Positions of the tokens that may tell a part of what another one does: paths and dates."""
        return [at for at, key in enumerate(self.keys) if key.startswith((PATH, "date:"))]

    @cached_property
    def sentences(self) -> list["Reading"]:
        """The sentences that have tokens, as readings of their own. Offsets and places are those of the text."""
        found: list[Reading] = []
        begin, token, cue, word = 0, 0, 0, 0
        for end, next_token, next_cue, next_word in self.ends:
            if next_token > token:
                tokens, cues, frame = self.tokens[token:next_token], self.cues[cue:next_cue], self.frame[word:next_word]
                sentence = self.text[begin:end]
                found.append(Reading(sentence, self.language, tokens, cues, frame, (), self.agents, self.text, begin))
            begin, token, cue, word = end, next_token, next_cue, next_word
        return found

    @cached_property
    def bare_claims(self) -> list[tuple[str, str]]:
        """The cues of the sentences that have no tokens, by category and pole."""
        begins = [(0, 0), *((tokens, cues) for _, tokens, cues, _ in self.ends)]
        empty = [(start, end) for (before, start), (after, end) in pairwise(begins) if before == after]
        return sorted((cue.category, cue.pole) for start, end in empty for cue in self.cues[start:end])

    @cached_property
    def claims(self) -> list[str]:
        """The words that a text of no tokens has, but for those that say nothing in any text: 今天是星期五."""
        language = load_language(self.language or "en")
        neutral = {f"cue {category} {pole}" for category, pole in language.neutral}
        words = (str(entry) for entry in self.frame)
        return [word for word in words if word not in neutral and word not in (f"{DONE}  ", _OTHER)]

    @cached_property
    def scopes(self) -> list[list[int]]:
        """Positions of the tokens next to each cue.

        Next to a marker is the phrase after it, next to another cue are the two tokens after it. At the end of a clause
        it is the two tokens before it.
        """
        clauses = defaultdict[int, list[int]](list)
        for at, token in enumerate(self.tokens):
            clauses[token.clause].append(at)
        language = load_language(self.language or "en")
        is_late, behind = language.has_late_focus, language.late_negations
        return [
            _find_scope(cue, self.tokens, clauses[cue.clause], is_late, cue.text.lower() in behind) for cue in self.cues
        ]


def _find_scope(cue: Cue, tokens: Sequence[Token], clause: Sequence[int], is_late: bool, is_behind: bool) -> list[int]:
    distance = {at: tokens[at].place - cue.place for at in clause}
    if is_behind and cue.category == "polarity":
        near = [at for at in distance if -1 <= distance[at] < 2]
        return near or [at for at in distance if -2 <= distance[at] < 0]
    if is_late and cue.category in ("marker", "time") and any(place < 0 for place in distance.values()):
        return [at for at in distance if -2 <= distance[at] < 0]
    if cue.category == "marker":
        heads = {tokens[at].phrase for at in distance if distance[at] == 0}
        if heads or any(place >= 0 for place in distance.values()):
            return [at for at in distance if distance[at] >= 0 and tokens[at].phrase in heads]
    first = next((tokens[at] for at in distance if distance[at] == 0), None)
    size = 1 if first and is_unspaced(first.text) and len(first.text) > 1 else 2
    return [at for at in distance if 0 <= distance[at] < size] or [at for at in distance if -2 <= distance[at] < 0]


def sort_as_written(tokens: Sequence[Token]) -> list[int]:
    """Return the positions of tokens in the order in which they are written."""
    return sorted(range(len(tokens)), key=lambda at: tokens[at].place)
