"""Words that one text adds and that restrict what both claim: "never restart it", "never restart it on weekdays"."""

from collections.abc import Mapping, Sequence

from consolidation_pipeline.core.differences.language import Language, split_words
from consolidation_pipeline.core.differences.reading import Cue, Reading, Token, sort_as_written
from consolidation_pipeline.core.differences.verb_times import tell_time

# Cues under which an added phrase makes the claim a narrower one.
_NARROWED = {
    *(("modality", pole) for pole in ("able", "permitted", "possible", "uncertain")),
    ("polarity", "negative"),
    ("restriction", "only"),
}
# Cues of rules, which an added condition makes narrower ones.
_RULES = _NARROWED | {("modality", "required")}
# Markers of conditions.
_CONDITIONS = frozenset("if unless before after until once during".split())
# Markers of clauses that restrict nothing.
_REASONS = frozenset(("because", "result", "although"))
# Words of a clause that say all of a claim which a phrase more makes a narrower one.
_SHORT_CLAUSE = 6
# Governors of words that are in no phrase with a preposition.
_NO_PHRASES = frozenset(("", "time", "if", "unless", "once", "instead", *_REASONS))


def find_restriction(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> list[Token]:
    """Return a word that ``a`` adds to a clause of both, and that restricts it; empty if there is none.

    It stands in a phrase of a clause that denies, permits, or claims something of all, or right behind the subject:
    "customers in France get it". Or it is a place or time that has an opposite: "in staging", "on weekends".

    Args:
        places: Positions of the tokens of ``a`` that ``b`` has too.
    """
    tokens, written = a.tokens, sort_as_written(a.tokens)
    shared = {tokens[at].segment for at in places}
    is_pure = len(places) == len(b.tokens)
    cues = [cue for cue in a.cues if _has(b, cue)]
    for before, at in zip([-1, *written], written, strict=False):
        one = tokens[at]
        if at in places or one.key in b.key_set:
            continue
        if one.segment not in shared:
            is_beside = before < 0 or before in places
            if _is_condition(a, at, places, cues, language, is_beside) or _opens_claim(a, at, places, cues, language):
                return [one]
            continue
        is_phrase = one.governor not in _NO_PHRASES or one.kind == "value" or not language.stemmer
        beside = [cue for cue in cues if _stands_beside(cue, one, tokens)]
        is_narrowed = any((cue.category, cue.pole) in _NARROWED for cue in beside)
        if is_phrase and (is_narrowed or _is_always(a, b, language) or _has_opposite(one, tokens, language)):
            return [one]
        if _tells_when(a, one, language):
            return [one]
        is_span = one.kind == "value" and one.governor in language.spans  # "it waits for 30 s"
        is_new = is_pure and before in places and one.gap == "link" and not is_span
        if is_new and _is_general(a, one, places, language):
            return [one]
        if before not in places or not (is_phrase or _opens_relative(a, before, at, language)):
            continue
        if any(cue.pole == "all" and cue.place == tokens[before].place for cue in beside):
            return [tokens[before], one]
        if _is_generic(a, before, language) and _is_subject(a, before, at, places):
            return [tokens[before], one]
    return []


def _has(reading: Reading, cue: Cue) -> bool:
    return any((one.category, one.pole) == (cue.category, cue.pole) for one in reading.cues)


def _is_always(a: Reading, b: Reading, language: Language) -> bool:
    """Return True if both texts have a word such as "always"."""
    return not language.openings.isdisjoint(a.words & b.words)


def _stands_beside(cue: Cue, word: Token, tokens: Sequence[Token]) -> bool:
    """Return True if a cue is of the segment and conjunct of a word."""
    clause = sorted((token for token in tokens if token.clause == cue.clause), key=lambda token: token.place)
    near = next((token for token in clause if token.place >= cue.place), clause[-1] if clause else None)
    return near is not None and (near.segment, near.conjunct) == (word.segment, word.conjunct)


def _has_opposite(word: Token, tokens: Sequence[Token], language: Language) -> bool:
    """Return True for a word that is a phrase such as "in staging", and has an opposite."""
    is_alone = sum(other.phrase == word.phrase for other in tokens) == 1
    return is_alone and word.governor in language.circumstances and bool(language.opposites.get(word.key))


def _is_condition(
    a: Reading, at: int, places: Mapping[int, int], cues: Sequence[Cue], language: Language, is_beside: bool
) -> bool:
    """Return True if a word stands in a condition right before or behind a rule or short claim of both texts.

    ``is_beside``: no word that ``a`` adds is before it.
    """
    word, shared = a.tokens[at], {a.tokens[place].segment for place in places}
    first = min(token.place for token in a.tokens if token.segment == word.segment)
    markers = (cue for cue in a.cues if cue.category == "marker" and cue.pole in _CONDITIONS)
    if all((cue.place, cue.clause) != (first, word.clause) for cue in markers):
        return False
    segments = sorted({token.segment for token in a.tokens})
    place = segments.index(word.segment)
    near = shared.intersection(segments[max(0, place - 1) : place + 2])
    clauses = {token.clause for token in a.tokens if token.segment in near}
    is_rule = any((cue.category, cue.pole) in _RULES and cue.clause in clauses for cue in cues)
    is_rule = is_rule or (bool(near) and not language.openings.isdisjoint(a.words))
    is_rule = is_rule or any(_tells_rule(a, segment, language) for segment in near)
    # "The limit is 3; when the last try fails, the job is dropped"
    is_beside = is_beside and shared.issuperset(segments[place + 1 : place + 2])
    return is_rule or (
        is_beside and any(token.segment in near and _is_general(a, token, places, language) for token in a.tokens)
    )


def _tells_rule(a: Reading, segment: int, language: Language) -> bool:
    """Return True if a segment gives an order or tells of all of a kind, not of what was: "drain it", "lambs need"."""
    words = sorted((token.place, at) for at, token in enumerate(a.tokens) if token.segment == segment)
    first = a.tokens[words[0][1]]
    if first.kind != "word" or first.governor or not _is_generic(a, words[0][1], language):
        return False
    # "Shut the valve" is an order as well.
    is_same_form = first.text.lower() in language.participles - language.past_forms
    verbs = words[1:] if is_same_form and _has_determiner_behind(a, first) else words
    return not any(_is_over(a, a.tokens[at], language) for _, at in verbs)


def _tells_when(a: Reading, word: Token, language: Language) -> bool:
    """Return True if a phrase tells when or where to do as told: "drain it in an emergency", "jobs stop during audits".

    Only an order has a phrase such as "in ward 9" for a condition: a claim on all of a kind may have it as a detail.
    """
    is_time = word.governor in _CONDITIONS
    if not (is_time or word.governor in language.circumstances) or not _tells_rule(a, word.segment, language):
        return False
    first = min((token for token in a.tokens if token.segment == word.segment), key=lambda token: token.place)
    return is_time or _has_determiner_behind(a, first)


def _has_determiner_behind(a: Reading, word: Token) -> bool:
    following = a.frame[a.frame.index(word.place) + 1 :][:1]
    return any(str(entry).startswith("determiner") for entry in following)


def _is_over(a: Reading, word: Token, language: Language) -> bool:
    """Return True if a word is a verb that tells what was, or stands behind an auxiliary that does."""
    tenses = {cue.pole for cue in a.cues if (cue.category, cue.place) == ("tense", word.place)}
    before = split_words(a.source[: word.start])[-1:]
    is_noun = not language.determiners.isdisjoint(before)
    # "L'accès est ouvert"
    is_noun |= not language.copulas.isdisjoint(before) and not tenses and word.text.lower() in language.participles
    return "past" in tenses or (language.is_past(word.text.lower()) and "present" not in tenses and not is_noun)


def _opens_claim(a: Reading, at: int, places: Mapping[int, int], cues: Sequence[Cue], language: Language) -> bool:
    """Return True if a word is in a phrase before a rule or a claim on all of a kind: "on macOS, tests need"."""
    word = a.tokens[at]
    if any(token.governor in ("", "time") for token in a.tokens if token.clause == word.clause):
        return False
    if any(cue.category == "marker" and cue.pole in _REASONS and cue.clause == word.clause for cue in a.cues):
        return False
    behind = [i for i in places if a.tokens[i].clause == word.clause + 1]
    if not behind:
        return False
    first = min(behind, key=lambda i: a.tokens[i].place)
    is_rule = any((cue.category, cue.pole) in _RULES and cue.clause == word.clause + 1 for cue in cues)
    return is_rule or (a.tokens[first].kind == "word" and _is_generic(a, first, language))


def _opens_relative(a: Reading, before: int, at: int, language: Language) -> bool:
    """Return True if a relative pronoun stands between two words: "all who work there"."""
    between = a.source[a.tokens[before].start : a.tokens[at].start]
    return not language.relatives.isdisjoint(split_words(between))


def _is_generic(a: Reading, at: int, language: Language) -> bool:
    """Return True if a noun may stand for all of its kind: it has no article, or one such as "les"."""
    before = split_words(a.source[: a.tokens[at].start])[-1:]
    return not before or before[0] not in language.determiners or before[0] in language.generic_articles


def _is_subject(a: Reading, at: int, added: int, places: Mapping[int, int]) -> bool:
    """Return True if a word opens its clause, and what it claims follows behind the ``added`` phrase."""
    word, phrase = a.tokens[at], a.tokens[added].phrase
    clause = [(token.place, i) for i, token in enumerate(a.tokens) if token.clause == word.clause]
    is_first = all(place >= word.place for place, _ in clause)
    behind = (a.tokens[i] for place, i in clause if place > a.tokens[added].place and i in places)
    return is_first and not word.governor and any(one.phrase != phrase or one.words_before for one in behind)


def _is_general(a: Reading, word: Token, places: Mapping[int, int], language: Language) -> bool:
    """Return True if a short clause tells what holds, not what was: "the museum is free for students"."""
    clause = [token for token in a.tokens if token.clause == word.clause]
    if not language.stemmer or sum(a.tokens[at].clause == word.clause for at in places) > _SHORT_CLAUSE:
        return False
    if any(_is_over(a, token, language) for token in clause):
        return False
    cues = {(cue.category, cue.pole) for cue in a.cues if cue.clause == word.clause}
    holds = ("tense", "present") in cues or not cues.isdisjoint(_RULES)
    holds = holds or not (language.copulas | language.possession.keys()).isdisjoint(a.words)
    return holds or any(tell_time(a, token, language) == "present" for token in clause)
