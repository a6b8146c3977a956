"""Main clauses whose verb stands second: what stands before it goes behind the subject.

"Gestern haben wir den Server neu gestartet" is "wir haben gestern den Server neu gestartet", and so is a clause behind
another one: "wenn die Datei fehlt, schlägt der Test fehl" has "der Test schlägt fehl".
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from consolidation_pipeline.core.differences.language import Language
from consolidation_pipeline.core.differences.lexer import PHRASE_MARKERS, Piece

# Words of what stands before the verb: "am Mittwoch um 15 Uhr in der Küche".
_MOST_BEFORE = 12
# Those of the markers before nouns that may open a clause as well.
_CONJUNCTIONS = frozenset(("seit", "bis", "während", "da"))
# Letters of an infinitive with "zu": "abzugeben".
_SHORTEST_INFINITIVE = 5
# A word that may be a name, and is no plural.
_NAME = re.compile(r"(?!\w*(?:en|ern|eln|ung|[^au]s)\Z)[A-ZÄÖÜ][a-zäöüß]{1,7}")
_NOMINATIVE, _OBLIQUE, _OPEN = "subject", "oblique", "open"


def put_subjects_first(pieces: list[Piece], language: Language, text: str) -> list[Piece]:
    """Return the pieces of a text with the subject of each main clause before its verb."""
    found: list[Piece] = []
    parts: dict[int, Piece] = {}  # the last part of a word with a hyphen, by the offset of its first one
    for one, other in reversed(list(pairwise(pieces))):
        if text[one.start + len(one.text) : other.start] == "-" and one.kind == other.kind == "word":
            parts[one.start] = other
    pieces = [piece for piece in pieces if piece not in parts.values()]
    begin, is_behind_clause = 0, False
    for at in range(len(pieces) + 1):
        if at < len(pieces) and pieces[at].kind not in ("stop", "comma"):
            continue
        clause = pieces[begin:at]
        is_sub = bool(clause) and _is_subordinate(clause, language)
        is_question = at < len(pieces) and pieces[at].text == "?"
        if clause and not is_sub and not is_question:
            clause = _turn_behind(clause, language) if is_behind_clause else _turn(clause, language)
        found += [*clause, *pieces[at : at + 1]]
        is_comma = at < len(pieces) and pieces[at].text == ","
        is_behind_clause = is_comma and (is_sub or (is_behind_clause and not clause))
        begin = at + 1
    joined: list[Piece] = []
    for piece in found:
        joined.append(piece)
        while part := parts.get(joined[-1].start):
            joined.append(part)
    return joined


def put_objects_last(pieces: list[Piece], language: Language) -> list[Piece]:
    """Return the pieces with an object that a pronoun names again behind its verb: "la factura la paga Marta"."""
    begin = 0
    for stop in [*(at for at, piece in enumerate(pieces) if piece.kind in ("stop", "comma")), len(pieces)]:
        # "A la gestora la denunció el inquilino"
        article = begin + (begin + 1 < stop and pieces[begin].lower in language.object_markers)
        pronoun = language.object_articles.get(pieces[article].lower) if article < stop else None
        near = range(article + 2, min(article + _MOST_BEFORE, stop - 2))
        at = next((at for at in near if pieces[at].lower == pronoun and _is_plain(pieces[at + 1], language)), 0)
        if at:
            subject = at + 2
            end = subject + (pieces[subject].lower in language.determiners) + 1
            is_noun = end > subject + 1 or pieces[subject].text[0].isupper()
            is_time = language.stem(pieces[end - 1].lower) in language.times if end <= stop else True
            if is_noun and not is_time and pieces[end - 1].lower not in language.calendar:
                first = pieces[begin]._replace(text=pieces[begin].text.lower())
                moved = [*pieces[subject:end], pieces[at + 1], first, *pieces[begin + 1 : at], *pieces[end:]]
                pieces = [*pieces[:begin], *moved]
                return pieces
        begin = stop + 1
    return pieces


def _is_plain(piece: Piece, language: Language) -> bool:
    return piece.kind == "word" and (piece.lower,) not in language.phrases


def read_demands(pieces: list[Piece], language: Language) -> list[Piece]:
    """Return the pieces with a verb of modality for what it stands for.

    "Es ist nicht nötig, ihn zu prüfen" is "man muss ihn nicht prüfen", "er ist zu prüfen" is "er muss prüfen".
    """
    found: list[Piece] = []
    begin = 0
    for stop in [*(at for at, piece in enumerate(pieces) if piece.kind == "stop"), len(pieces)]:
        sentence = pieces[begin:stop]
        found += [
            *(_read_impersonal(sentence, language) or _read_passive(sentence, language)),
            *pieces[stop : stop + 1],
        ]
        begin = stop + 1
    return found


def _read_impersonal(sentence: list[Piece], language: Language) -> list[Piece]:
    """Return a sentence that begins with "es ist nötig, .." in its short form; empty for another one."""
    comma = next((at for at, piece in enumerate(sentence) if piece.text == ","), 0)
    words = [piece.lower for piece in sentence[:comma]]
    modal = language.demands.get(words[-1], "") if words[:2] == ["es", "ist"] else ""
    modal = modal or (language.demands.get(words[2], "") if words[:2] == ["es", "ist"] and len(words) == 3 else "")
    if not modal or len(words) > 4 or any(piece.kind == "comma" for piece in sentence[comma + 1 :]):
        return []
    rest, verb = _cut_infinitive(sentence[comma + 1 :], language)
    if verb is None:
        return []
    first, denial = sentence[0], sentence[2 : comma - 1]
    # "Neu starten" is one verb.
    is_one = bool(rest) and tuple(language.stem(word.lower) for word in (rest[-1], verb)) in language.synonym_phrases
    end = len(rest) - is_one
    return [first._replace(lower="man"), sentence[1]._replace(lower=modal), *rest[:end], *denial, *rest[end:], verb]


def _read_passive(sentence: list[Piece], language: Language) -> list[Piece]:
    """Return a sentence such as "er ist zu prüfen" with a verb of modality, others as they are."""
    comma = next((at for at, piece in enumerate(sentence) if piece.kind == "comma"), len(sentence))
    clause = sentence[:comma]
    be = [at for at, piece in enumerate(clause) if piece.lower in ("ist", "sind")]
    rest, verb = _cut_infinitive(clause, language)
    is_denied = any(piece.lower in language.adverbial_negations for piece in clause)
    if len(be) != 1 or verb is None or is_denied:
        return sentence
    modal = "muss" if language.read_word(verb.lower) not in map(language.read_word, language.sensed) else "kann"
    rest[be[0]] = rest[be[0]]._replace(lower="man" if verb.lower == "finden" else modal)
    return [*rest, verb, *sentence[comma:]]


def _cut_infinitive(words: list[Piece], language: Language) -> tuple[list[Piece], Piece | None]:
    """Return words without the infinitive with "zu" at their end, and the infinitive; None if there is none."""
    if not words or words[-1].kind != "word" or not words[-1].text.islower() or not words[-1].lower.endswith("n"):
        return words, None
    last = words[-1]
    if len(words) > 1 and words[-2].lower in language.infinitive_marks:
        return words[:-2], last
    for particle in language.particles:
        if last.lower.startswith(f"{particle}zu") and len(last.lower) > len(particle) + _SHORTEST_INFINITIVE:
            return words[:-1], last._replace(lower=particle + last.lower[len(particle) + 2 :])
    return words, None


def put_owners_first(pieces: list[Piece], language: Language) -> list[Piece]:
    """Return the pieces with a name before what its owner has: "die Wohnung von Ana" is "Anas Wohnung".

    Not in a passive, where "von" is before who does it.
    """
    if any(piece.lower in language.passives for piece in pieces):
        return pieces
    for at in range(len(pieces) - 2, 0, -1):
        noun, preposition, name = pieces[at - 1 : at + 2]
        following = pieces[at + 2] if at + 2 < len(pieces) else None
        is_last = following is None or not (_is_noun(following, language) or following.lower in language.conjunctions)
        is_name = _is_noun(name, language) and _NAME.fullmatch(name.text) is not None and is_last
        if preposition.lower == "von" and _is_noun(noun, language) and is_name and name.lower not in language.calendar:
            start = at - 1
            while start and _is_adjective(pieces[start - 1], language):
                start -= 1
            first = start - (start > 0 and pieces[start - 1].lower in language.determiners)
            owner = name.lower if name.lower.endswith(("s", "x", "z")) else f"{name.lower}s"
            pieces = [*pieces[:first], name._replace(lower=owner), *pieces[start:at], *pieces[at + 2 :]]
    return pieces


def _is_subordinate(clause: Sequence[Piece], language: Language) -> bool:
    """Return True for a clause that ends with its verb: "if ..", "that ..", unlike "since May the office is closed"."""
    first = clause[0].lower
    phrase = language.phrases.get((first,))
    is_clause = phrase is not None and phrase.role == "marker" and phrase.key not in PHRASE_MARKERS
    if first in language.noun_markers:
        return first in _CONJUNCTIONS and is_clause and _is_verb(clause[-1], language)
    return first in language.complementizers or is_clause


def _turn_behind(clause: list[Piece], language: Language) -> list[Piece]:
    """Return a main clause behind another one with its subject before the verb: "schlägt der Test fehl"."""
    return _put_first(clause, 0, 0, language) if _is_verb(clause[0], language) else clause


def _turn(clause: list[Piece], language: Language) -> list[Piece]:
    """Return a main clause with its subject before the verb, and what stood there behind it."""
    start = int(clause[0].lower in language.conjunctions)
    near = range(start + 1, min(len(clause), start + _MOST_BEFORE + 1))
    verb = next((at for at in near if _is_verb(clause[at], language) and _ends_phrase(clause[start:at], language)), 0)
    return _put_first(clause, start, verb, language) if verb else clause


def _put_first(clause: list[Piece], start: int, verb: int, language: Language) -> list[Piece]:
    """Return a clause with the subject behind its verb at ``start``, and what was there behind the verb."""
    front = clause[start:verb]
    case = _read_case(front, language) if front else _OBLIQUE
    begin = _skip_objects(clause, verb + 1, language)
    end, subject = _read_phrase(clause, begin, language)
    is_sure = subject == _NOMINATIVE if case == _OPEN else subject != _OBLIQUE
    is_sure |= end > 0 and case == subject == _OPEN and _does(front, clause[verb:], clause[begin:end], language)
    if not end or case == _NOMINATIVE or not is_sure:
        return clause
    if (
        clause[verb].lower.endswith("e")
        and not clause[verb].lower.endswith("te")
        and _is_command(clause, verb, begin, language)
    ):
        return clause
    if front and ((front[0].lower,) in language.phrases or front[0].lower in language.time_adverbs):
        front[0] = front[0]._replace(text=front[0].text.lower())
    behind = next((at for at in range(end, len(clause)) if clause[at].lower not in language.weak_objects), len(clause))
    objects = [*clause[verb + 1 : begin], *clause[end:behind]]
    return [*clause[:start], *clause[begin:end], clause[verb], *objects, *front, *clause[behind:]]


def _is_command(clause: Sequence[Piece], verb: int, subject: int, language: Language) -> bool:
    """Return True for a verb such as "führe", which tells what "ich" does or commands."""
    is_plain = (clause[verb].lower,) not in language.phrases and clause[verb].lower not in language.conditional_endings
    return clause[subject].lower != "ich" and is_plain


def _does(things: Sequence[Piece], rest: Sequence[Piece], person: Sequence[Piece], language: Language) -> bool:
    """Return True if a person does with a thing what only persons do: "die Rechnung bezahlt Ana"."""
    is_named = person[0].text[0].isupper() and person[0].kind == "word"
    is_thing = things[-1].lower.endswith(language.thing_endings) and things[0].lower in language.determiners
    first, last = rest[0].lower, rest[-1].lower
    return (
        is_named
        and is_thing
        and any(language.read_word(verb) in language.deeds for verb in (first, last, last + first))
    )


def _is_verb(piece: Piece, language: Language) -> bool:
    """Return True for a finite verb: ist, muss, trinkt."""
    word = piece.lower
    if piece.kind != "word" or piece.text[0].isupper():
        return False
    phrase = language.phrases.get((word,))
    if word in language.passive_auxiliaries | language.light_verbs | language.perfect_auxiliaries:
        return word not in ("sein", "worden")
    if phrase is not None:
        return word in language.modals or (phrase.role == "cue" and language.is_verb(word))
    return word.endswith(("t", "te", "ten", "en", "e", "st")) or word in language.past_forms


def _ends_phrase(before: Sequence[Piece], language: Language) -> bool:
    """Return True if what stands before a word that looks like a verb is whole: it has a noun, or is an adverb."""
    last = before[-1]
    if _is_noun(last, language):
        return True
    opens = before[0].lower in language.determiners | language.prepositions
    if any(_is_noun(word, language) for word in before) or opens or last.lower in language.coordinators:
        return False
    return len(before) == 1 or last.lower in language.time_adverbs


def _skip_objects(clause: Sequence[Piece], at: int, language: Language) -> int:
    """Return the position behind pronouns that are objects, times and phrases: "mir", "diese Woche", "im Raum"."""
    while at < len(clause) and (clause[at].lower in language.weak_objects or clause[at].lower in language.time_adverbs):
        at += 1
    if at < len(clause) and clause[at].lower in language.prepositions | language.noun_markers:
        noun = next((end for end in range(at + 1, len(clause)) if not _leads_to_noun(clause[end], language)), at)
        if noun > at and _is_noun(clause[noun], language):
            return _skip_objects(clause, noun + 1 + _is_noun_at(clause, noun + 1, language), language)
    return _skip_objects(clause, at + 2, language) if _tells_when(clause[at : at + 2], language) else at


def _leads_to_noun(piece: Piece, language: Language) -> bool:
    """Return True for a word between a preposition and its noun."""
    return piece.lower in language.determiners or _is_quantity(piece, language) or _is_adjective(piece, language)


def _is_noun_at(clause: Sequence[Piece], at: int, language: Language) -> bool:
    return at < len(clause) and _is_noun(clause[at], language)


def _tells_when(words: Sequence[Piece], language: Language) -> bool:
    """Return True for a time without a preposition: "diese Woche", "jeden Tag"."""
    if len(words) < 2 or language.stem(words[-1].lower) not in language.times:
        return False
    phrase = language.phrases.get((words[0].lower,))
    is_said = phrase is not None and phrase.key in ("quantity", "tense", "order")
    return is_said or words[0].lower in language.demonstratives


def _read_phrase(clause: Sequence[Piece], start: int, language: Language) -> tuple[int, str]:
    """Return the end of the noun phrase that begins at a piece, 0 if none does, and its case."""
    if start >= len(clause):
        return 0, _OPEN
    first = clause[start]
    if first.lower in language.nominatives:
        return start + 1, _NOMINATIVE
    if first.lower in language.open_pronouns:
        rival = _read_phrase(clause, start + 1, language)
        return (0, _OPEN) if rival[1] == _NOMINATIVE else (start + 1, _OPEN)
    at = start
    while at < len(clause) and (clause[at].lower in language.determiners or _is_quantity(clause[at], language)):
        at += 1
    while at > start and at < len(clause) and _is_adjective(clause[at], language):
        at += 1
    nouns = at
    while at < len(clause) and (_is_noun(clause[at], language) if at == nouns else _is_name_at(clause, at, language)):
        at += 1
    if at == nouns:
        return 0, _OPEN
    case = _read_case(clause[start:at], language)
    if nouns > start and at < len(clause) and clause[at].lower in language.genitives:  # "das Büro der Chefin"
        noun = next((end for end in range(at + 1, len(clause)) if not _leads_to_noun(clause[end], language)), at)
        at = noun + 1 if _is_noun_at(clause, noun, language) else at
    if at + 1 < len(clause) and clause[at].lower in language.conjunctions:  # "Tomaten und Basilikum"
        rest, other = _read_phrase(clause, at + 1, language)
        if rest and other == case and not (rest < len(clause) and _is_verb(clause[rest], language)):
            return rest, case
    return at, case


def _is_name_at(clause: Sequence[Piece], at: int, language: Language) -> bool:
    """Return True for a name behind a noun: "Frau Keller", "der Ordner dist"."""
    piece = clause[at]
    is_plain = _is_adjective(piece, language) and not language.is_verb(piece.lower)
    return clause[at - 1].lower in language.titles and (_is_noun(piece, language) or is_plain)


def _is_quantity(piece: Piece, language: Language) -> bool:
    phrase = language.phrases.get((piece.lower,))
    return piece.lower in language.numbers or (phrase is not None and phrase.key in ("quantity", "restriction"))


def _is_adjective(piece: Piece, language: Language) -> bool:
    return piece.kind == "word" and piece.text[0].islower() and (piece.lower,) not in language.phrases


def _is_noun(piece: Piece, language: Language) -> bool:
    phrase = language.phrases.get((piece.lower,))
    is_word = piece.kind == "word" and piece.text[0].isupper() and (phrase is None or phrase.role == "label")
    return is_word or piece.kind in ("literal", "code")


def _read_case(words: Sequence[Piece], language: Language) -> str:
    """Return the case of a phrase by its first words: oblique for one with a preposition, an adverb and a time."""
    first, phrase = words[0].lower, language.phrases.get((words[0].lower,))
    if first in language.open_pronouns:
        return _OPEN
    if first in language.nominatives:
        return _NOMINATIVE if first != "es" else _OBLIQUE
    if not any(_is_noun(word, language) for word in words) or _tells_when(words, language):
        return _OBLIQUE
    if first in language.prepositions or first in language.time_adverbs:
        return _OBLIQUE
    if phrase is not None and phrase.role == "marker":
        return _OBLIQUE
    if first not in language.determiners:
        return _OPEN
    if first.endswith("ein"):
        return _NOMINATIVE if words[1].lower.endswith("er") and words[1].text[0].islower() else _OPEN
    if first.endswith(("en", "em")):
        return _OBLIQUE
    is_nominative = first in ("der", "dieser", "jeder")
    return _NOMINATIVE if is_nominative else _OBLIQUE if first.endswith("er") and first != "unser" else _OPEN
