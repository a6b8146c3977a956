"""Words that both texts have in another role: "by Friday", "on Friday"; "is blocking", "is blocked"."""

import re
from collections.abc import Mapping, Sequence, Set
from itertools import islice

from consolidation_pipeline.core.differences.alignment import OF_COMPOUNDS
from consolidation_pipeline.core.differences.inflection import has_passive
from consolidation_pipeline.core.differences.language import Language
from consolidation_pipeline.core.differences.order import Reordered
from consolidation_pipeline.core.differences.persons import differ_in_person
from consolidation_pipeline.core.differences.reading import VERB, Reading, Token, sort_as_written

_TIME = re.compile(r"date:.*|days-\d+|months-\d+|number:[\d.]+ (?:s|min|h|d|month|year)")
# Classes of markers that no other preposition stands for before a time.
_BOUNDS = frozenset(("by", "from", "above"))
# A particle, behind a title: 田中さんが.
_PARTICLE = re.compile("(?:さん|様|君|くん|ちゃん|氏)?(より|によって|により|[がを]|に(?!よる|ついて|関|対))")
# Persons, who may be able to do something themselves.
_PERSON = re.compile("(?:[者人客員様君彼女私親母父娘妻夫師犬猫社課部]|さん|ユーザー?|息子|子供|生徒|学生|先生|チーム)$")
# What is possible, liked or wanted, behind its particle.
_FELT = re.compile(
    "[がを](?:[^、。がをはにで]{0,6}?(?:でき|出来|られ(?:な|ま|る)|好き|嫌い|怖|こわ|欲し|ほし|必要|苦手|得意|分か|わか|見え|聞こえ|たい)"
    "|[使書読話買飲乗歩泳送直消押戻取移試選運頼扱][えけげせてねべめれ][なまる])"
)
_LONGEST_VERB = 12
_FAILS = re.compile("[がに](?:失敗|成功|合格)|[がを](?:過ぎ|越え|超え)")
# Verbs of which one tells what changes, and one what somebody changes: 変わる, 変える; others by accident: 壊れる.
_CHANGES = re.compile("が([変始終決続延集増減上下]つ?)[わまかがさ][るっり]")
_CHANGED = re.compile("を([変始終決続延集増減上下]つ?)[えめけげせ][るたてま]")
# A verb in the passive.
_DONE_TO = re.compile("[がを][^、。がをはに]{0,8}?(?:(?:れ|られ)[るてたま]|にな[るりっ])")
# Characters before a word among which its article or preposition is.
_LONGEST_ARTICLE = 16
# Classes of markers of which one is the way back of the other.
_DIRECTIONS = {"from", "to"}
# Classes of markers of limits of which one includes its number: "over six", "from six".
_LIMITS = ({"above", "from"}, {"below", "to"}, {"below", "until"})
# Beginning of the frame entries of "have".
_HAVE = f"{VERB}have"
# The comma between a noun and a relative pronoun.
_BEHIND_NOUN = re.compile(r"[A-ZÄÖÜ0-9][\w-]*,\s*\Z")
_WORD_BEFORE = re.compile(r"(\w+)\W+\Z")


def find_new_role(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return a word of both texts, with the one before it, that has another role; None if there is none.

    Args:
        places: Position in ``b`` of each aligned position in ``a``.
    """
    if steps := _find_new_step(a, b, places, language):
        return steps
    if (
        _differ_in_copula(a, b, language)
        or differ_in_person(a, b, places, language)
        or _differ_in_gender(a, b, language)
        or _differ_in_distribution(a, b, language)
        or _differ_in_distribution(b, a, language)
    ):
        found: Sequence[int] = list(places)[:1]
    else:
        found = list(islice((at for at in places if _has_new_role(a, b, at, places, language)), 1))
    found = found or _find_new_cases(a, b, places, language) or _find_exchanged_governors(a, b, places, language)
    found = found or _find_new_receiver(a, b, places, language)
    if not found:
        return None
    return (
        [_with_word_before(a.source, a.tokens[at]) for at in found],
        [_with_word_before(b.source, b.tokens[places[at]]) for at in found],
    )


def _has_new_role(a: Reading, b: Reading, at: int, places: Mapping[int, int], language: Language) -> bool:
    """Return True if the word at a position in ``a`` has another role in ``b``, whatever the other words have."""
    one, other = a.tokens[at], b.tokens[places[at]]
    return (
        frozenset((one.governor, other.governor)) in language.opposed_prepositions
        or _differ_in_place(one, other, language)
        or ({one.governor, other.governor} == _DIRECTIONS and len(a.frame) == len(b.frame))
        or _differ_in_time(one, other, language)
        or _differ_in_amount(one, other, language)
        or _differ_in_voice(a, b, at, places[at], language)
        or _differ_in_agent(a, b, one, other, language)
        or _differ_in_subject(a, b, at, places[at], language)
        or _differ_in_owner(a, b, one, other, language)
        or _differ_in_possessor(a, b, at, places, language)
        or _differ_in_joining(a, b, at, places)
        or _differ_in_host(a, b, at, places[at], places, language)
        or _differ_in_cause(a, b, at, places, language)
        or _differ_in_day(a, b, one, other, language)
        or _differ_in_aim(a, b, at, places[at], language)
    )


def _find_new_step(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return two words of steps that stand in the other order: "drain it, then stop it", "stop it, then drain it"."""
    if any(language.sequence_words.isdisjoint(one.words) for one in (a, b)):
        return None
    steps = sorted((a.tokens[at].conjunct, b.tokens[there].conjunct, at) for at, there in places.items())
    last = (-1, -1, -1)
    for step in steps:
        if step[1] < last[1] and step[0] > last[0]:
            words = [last[2], step[2]]
            return [a.tokens[at] for at in words], [b.tokens[places[at]] for at in words]
        last = max(last, step, key=lambda one: one[1])
    return None


def _differ_in_copula(a: Reading, b: Reading, language: Language) -> bool:
    """Return True if the texts have other verbs for "be": "es callado", "está callado"."""
    if not language.copula_kinds:
        return False
    kinds = [{language.copula_kinds[word] for word in one.words & language.copula_kinds.keys()} for one in (a, b)]
    return all(kinds) and kinds[0].isdisjoint(kinds[1])


def _differ_in_gender(a: Reading, b: Reading, language: Language) -> bool:
    """Return True if the persons of one text are "he", and those of the other one "she"."""
    genders = [{language.genders[word] for word in one.words & language.genders.keys()} for one in (a, b)]
    return all(genders) and genders[0].isdisjoint(genders[1])


def _differ_in_distribution(a: Reading, b: Reading, language: Language) -> bool:
    """Return True if each of several has one thing in ``a``, and all of them have it in ``b``: "one for each"."""
    has_one = not language.singles.isdisjoint(a.words & b.words)
    has_each, has_each_there = (not language.distributives.isdisjoint(one.words) for one in (a, b))
    return has_one and has_each and not has_each_there and any(cue.pole == "all" for cue in b.cues)


def _differ_in_time(one: Token, other: Token, language: Language) -> bool:
    """Return True if two prepositions before a time tell other things of it: by and on, for and in."""
    governors = {one.governor, other.governor} - {"", "time"}
    if len(governors) < 2 or not _TIME.fullmatch(one.key):
        return False
    spans = governors & language.spans
    return not governors.isdisjoint(_BOUNDS) or (len(spans) == 1 and governors - spans <= language.prepositions)


def _differ_in_place(one: Token, other: Token, language: Language) -> bool:
    """Return True if a thing holds another one in another place: "in the box", "on the box"."""
    return one.key in language.holders and frozenset((one.governor, other.governor)) in language.opposed_places


def _differ_in_amount(one: Token, other: Token, language: Language) -> bool:
    """Return True if a number is a change, "um 5 %", and its result, "auf 5 %", or if one limit includes it."""
    if not one.key.startswith("number:"):
        return False
    amounts = language.amounts.get(one.governor), language.amounts.get(other.governor)
    return (all(amounts) and amounts[0] != amounts[1]) or {one.governor, other.governor} in _LIMITS


def _differ_in_owner(a: Reading, b: Reading, one: Token, other: Token, language: Language) -> bool:
    """Return True if a thing has another owner: "his car", "her car"."""
    if not language.owners:
        return False
    owners = [language.owners.get(read_before(reading, word)) for reading, word in ((a, one), (b, other))]
    return None not in owners and owners[0] != owners[1]


def _differ_in_possessor(a: Reading, b: Reading, at: int, places: Mapping[int, int], language: Language) -> bool:
    """Return True if two owners of both texts exchanged what they have: "her sister's key", "Ann's key".

    Or if the owner has it in one text alone: "the judge's clerk called", "the judge called the clerk".
    """
    there = places[at]
    is_owned, is_owned_there = a.tokens[at].gap == "s", b.tokens[there].gap == "s"
    owner, other = _find_before(a, at), _find_before(b, there)
    if is_owned and is_owned_there:
        return owner in places and other in places.values() and places[owner] != other
    if is_owned == is_owned_there or not language.stemmer:
        return False
    if is_owned:
        return owner in places and _is_apart(a, owner, b, (places[owner], there), {*places.values()}, language)
    origins = {place: origin for origin, place in places.items()}
    return other in origins and _is_apart(b, other, a, (origins[other], at), {*places}, language)


def _differ_in_joining(a: Reading, b: Reading, at: int, places: Mapping[int, int]) -> bool:
    """Return True if "and" joins a word and its genitive in one text: "Ann's brother calls", "Ann and her brother"."""
    before = _find_before(a, at)
    if before not in places:
        return False
    pairs = (a.tokens[before], a.tokens[at]), (b.tokens[places[before]], b.tokens[places[at]])
    is_joined = [one.clause == other.clause and one.conjunct != other.conjunct for one, other in pairs]
    is_near = [abs(one.place - other.place) == 1 for one, other in pairs]
    is_owned = [other.gap in ("of", "s") for _, other in pairs]
    return all(is_near) and is_joined[0] != is_joined[1] and is_owned[is_joined[0]]


def _is_apart(
    reading: Reading, owner: int, other: Reading, pair: tuple[int, int], shared: Set[int], language: Language
) -> bool:
    """Return True if an owner of one text is none in the other one, as words of both stand between it and the thing.

    Args:
        pair: Positions of the owner and the thing in ``other``.
        shared: Positions in ``other`` of the words of both texts.
    """
    place, owned = pair
    tokens = other.tokens
    if reading.tokens[owner].governor == "time" or reading.tokens[owner].kind == "value":
        return False  # "today's meeting"
    if any(token.gap == "of" for token in tokens if token.phrase == tokens[place].phrase):
        return False  # "the laptop charger of Olga"
    first, last = tokens[place].place, tokens[owned].place
    if first > last or (_is_owned(other, owned, language) and not tokens[owned].governor):
        return False  # "Ann leads her own team"
    is_between = any(first < tokens[at].place < last for at in shared)
    return is_between or tokens[owned].gap in ("link", "and")


def _is_owned(reading: Reading, at: int, language: Language) -> bool:
    """Return True if a possessive stands before a word that owns nothing itself: "her video", not "her son's key"."""
    is_owner = any(token.gap == "s" and _find_before(reading, i) == at for i, token in enumerate(reading.tokens))
    return not is_owner and read_before(reading, reading.tokens[at]) in language.owners


def _find_before(reading: Reading, at: int) -> int:
    """Return the position of the token before another one as written, -1 if there is none."""
    written = sort_as_written(reading.tokens)
    place = written.index(at)
    return written[place - 1] if place else -1


def _differ_in_voice(a: Reading, b: Reading, at: int, there: int, language: Language) -> bool:
    """Return True if a verb after "be" is active in one text, "is blocking", and passive in the other, "is blocked"."""
    if at not in a.predicates or there not in b.predicates or not language.gerund_endings:
        return False
    words = [reading.tokens[place].text.lower() for reading, place in ((a, at), (b, there))]
    is_active = [word.endswith(language.gerund_endings) for word in words]
    return is_active[0] != is_active[1] and language.is_participle(words[is_active[0]])


def _differ_in_agent(a: Reading, b: Reading, one: Token, other: Token, language: Language) -> bool:
    """Return True if a word is the agent of one text, "by the team", and in another phrase in the other one."""
    is_agent = one.place in a.agents, other.place in b.agents
    governor = other.governor if is_agent[0] else one.governor
    is_other = governor not in ("", "time") and governor not in language.agents | language.genitives
    return is_agent[0] != is_agent[1] and is_other


def _differ_in_subject(a: Reading, b: Reading, at: int, there: int, language: Language) -> bool:
    """Return True if a pronoun does in one text what a noun of both does in the other: "we pay", "the customer pays".

    Only where the subject precedes its verb in every clause.
    """
    if language.cases or (language.subjects.keys() & a.words).isdisjoint(language.subjects.keys() & b.words):
        return False
    texts = ((a, at), (b, there))
    is_pronoun = [read_before(reading, reading.tokens[place]) in language.subjects for reading, place in texts]
    if is_pronoun[0] == is_pronoun[1]:
        return False
    (own, of_pronoun), (reading, verb) = texts if is_pronoun[0] else texts[::-1]
    subject = _find_before(reading, verb)
    if subject < 0 or own.tokens[of_pronoun].governor or reading.tokens[subject].governor:
        return False
    noun = reading.tokens[subject]
    is_adjacent = not reading.source[noun.start + len(noun.text) : reading.tokens[verb].start].strip()
    return is_adjacent and any(token.key == noun.key for token in own.tokens)


def _differ_in_host(a: Reading, b: Reading, at: int, there: int, places: Mapping[int, int], language: Language) -> bool:
    """Return True if a phrase tells of another noun: "the man with a key calls Ann", "the man calls Ann with a key"."""
    if a.tokens[at].governor not in language.attributes or a.tokens[at].governor != b.tokens[there].governor:
        return False
    (one, is_inside), (other, is_inside_there) = _find_host(a, at), _find_host(b, there)
    if one is None or other is None or one not in places:
        return False
    return (is_inside or is_inside_there) and places[one] != other


def _find_host(reading: Reading, at: int) -> tuple[int | None, bool]:
    """Return the position of the last word before a phrase that is in none, and True if another one follows it."""
    word = reading.tokens[at]
    free = {
        one.place: i
        for i, one in enumerate(reading.tokens)
        if one.conjunct == word.conjunct and not one.governor and one.place not in reading.agents
    }
    before = max((place for place in free if place < word.place), default=None)
    return None if before is None else free[before], any(place > word.place for place in free)


def _differ_in_cause(a: Reading, b: Reading, at: int, places: Mapping[int, int], language: Language) -> bool:
    """Return True if others do it in one text: "had the roof repaired", "had repaired the roof"."""
    if not language.perfects or language.has_late_participles:
        return False
    if not language.is_participle(a.tokens[at].text.lower().partition(" ")[0]):
        return False
    found = _is_behind_have(a, a.tokens[at]), _is_behind_have(b, b.tokens[places[at]])
    return {True, False} == set(found)


def _is_behind_have(reading: Reading, word: Token) -> bool | None:
    """Return True if a token stands directly behind "have", False if others stand between, None without "have"."""
    frame = reading.frame[: reading.frame.index(word.place)]
    have = max((at for at, entry in enumerate(frame) if str(entry).startswith(_HAVE)), default=None)
    if have is None:
        return None
    between = {entry for entry in frame[have + 1 :] if isinstance(entry, int)}
    clauses = {token.segment for token in reading.tokens if token.place in between}
    return None if clauses - {word.segment} else not between


def _differ_in_aim(a: Reading, b: Reading, at: int, there: int, language: Language) -> bool:
    """Return True if a verb is the aim of one text and done in the other one: "to win", "and won"."""
    is_aim = [_is_infinitive(reading.tokens[place], language) for reading, place in ((a, at), (b, there))]
    if is_aim[0] == is_aim[1]:
        return False
    (aim, of_aim), (done, of_done) = ((a, at), (b, there)) if is_aim[0] else ((b, there), (a, at))
    if language.code != "en" and any(cue.category == "modality" for cue in done.cues):
        return False  # "es ist nötig, sie zu prüfen", "sie müssen geprüft werden"
    words = [reading.tokens[place].text.lower() for reading, place in ((aim, of_aim), (done, of_done))]
    return not language.is_past(words[0]) and language.is_past(words[1]) and of_done not in done.predicates


def _is_infinitive(word: Token, language: Language) -> bool:
    """Return True for a verb behind "to", or with "zu" in it: "to win", "zu gewinnen", "abzugeben"."""
    form = word.text.lower()
    is_joined = language.has_prefixes and form.startswith(tuple(language.particles)) and "zu" in form[2:-2]
    is_marked = word.governor in language.infinitive_marks or form.endswith(language.infinitive_endings)
    return word.governor == "to" or is_joined or (bool(word.governor) and is_marked and form == word.text)


def _differ_in_day(a: Reading, b: Reading, one: Token, other: Token, language: Language) -> bool:
    """Return True if a day is one day in one text and each in the other one: "ce samedi", "le samedi"."""
    if not one.key.startswith("days-"):
        return False
    words = [read_before(reading, day) for reading, day in ((a, one), (b, other))]
    is_this = [word in language.demonstratives for word in words]
    return is_this[0] != is_this[1] and words[is_this[0]] in language.date_articles


def _find_new_receiver(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Sequence[int]:
    """Return the receiver of one text that gives in the other one: 给客户发短信, 客户给我们发短信.

    For a language whose words for persons may all be light ones, and whose markers stand before their words.
    """
    if language.stemmer or language.has_late_focus:
        return ()
    givings, givings_there = ([cue.place for cue in one.cues if cue.pole == "to"] for one in (a, b))
    if len(givings) != 1 or len(givings_there) != 1:
        return ()
    for at, there in places.items():
        place, place_there = a.tokens[at].place - givings[0], b.tokens[there].place - givings_there[0]
        if (place == 0 and place_there < 0) or (place_there == 0 and place < 0):
            return [at]
    return ()


def _find_exchanged_governors(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Sequence[int]:
    """Return two words of which one lost the preposition that the other one gained: "Rosa llamó a Diego"."""
    lost: dict[str, int] = {}
    gained: dict[str, int] = {}
    for at, there in places.items():
        one, other = a.tokens[at], b.tokens[there]
        if bool(one.governor) != bool(other.governor) and one.place not in a.agents and other.place not in b.agents:
            (lost if one.governor else gained)[one.governor or other.governor] = at
    both = lost.keys() & gained.keys() - {"time"} - language.genitives - OF_COMPOUNDS
    return [lost[min(both)], gained[min(both)]] if both else ()


def _find_new_cases(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Sequence[int]:
    """Return the words that exchanged their cases: "der Job ruft den Worker", "den Job ruft der Worker".

    One word is enough in clauses of one form, where particles mark the cases, and behind a relative pronoun.
    """
    changed: dict[tuple[str, str], int] = {}
    for at, there in places.items() if language.cases else ():
        cases = _find_case(a, a.tokens[at], language), _find_case(b, b.tokens[there], language)
        if {*cases} == {"subject", "agent"} and has_passive(a.source) != has_passive(b.source):
            continue  # 部が作成した, 部によって作成された
        if language.has_late_focus and _have_one_role((a, a.tokens[at]), (b, b.tokens[there])):
            continue
        is_same_form = len(a.frame) == len(b.frame) or "relative" in cases[0] + cases[1]
        is_known = all(cases) and (language.has_late_focus or is_same_form)
        if {*cases} == {"subject", "object"} and _is_impersonal(a, language) != _is_impersonal(b, language):
            continue  # "den Chef muss man fragen", "der Chef muss gefragt werden"
        if cases[0] != cases[1] and (is_known or "than" in cases):
            return [at]
        if all(cases) and cases[0] != cases[1]:
            changed[cases] = at
    pair = next((pair for pair in changed if pair[::-1] in changed), None)
    return [changed[pair], changed[pair[::-1]]] if pair else ()


def _is_impersonal(reading: Reading, language: Language) -> bool:
    """Return True if a text does not name who does it: "es gibt", "wird gelesen"."""
    words = reading.words
    is_passive = not words.isdisjoint(language.passives) and any(
        language.is_participle(token.text.lower()) for token in reading.tokens
    )
    return is_passive or {"es", "gibt"} <= words


def _find_case(reading: Reading, word: Token, language: Language) -> str:
    """Return the case of a word by its article, relative pronoun or particle, "" = not known."""
    if language.has_late_focus:
        found = _PARTICLE.match(reading.source, word.start + len(word.text))
        if found and found[1] == "より" and word.kind == "value":  # 10MBより大きい
            return ""
        return language.cases.get(found[1], "") if found else ""
    found = _match_before(reading.source, word)
    case = language.cases.get(found[1].lower(), "") if found and word.text[0].isupper() else ""
    return f"relative {case}" if case and found and _BEHIND_NOUN.search(reading.source, 0, found.start()) else case


def _have_one_role(one: tuple[Reading, Token], other: tuple[Reading, Token]) -> bool:
    """Return True if が in one text marks what を does in the other: 番号が変わる, 番号を変える; 費用が含まれる."""
    if _is_felt(*one) and _is_felt(*other):
        return True
    if all(_FAILS.match(reading.source, word.start + len(word.text)) for reading, word in (one, other)):
        return True
    behind = sorted(reading.source[word.start + len(word.text) :][:_LONGEST_VERB] for reading, word in (one, other))
    if not (behind[0].startswith("が") and behind[1].startswith("を")):
        return False
    changes, changed = _CHANGES.match(behind[0]), _CHANGED.match(behind[1])
    is_change = changes is not None and changed is not None and changes[1] == changed[1]
    return is_change or (_DONE_TO.match(behind[0]) is not None and _DONE_TO.match(behind[1]) is None)


def _is_felt(reading: Reading, word: Token) -> bool:
    """Return True if が marks what is possible, liked or wanted, as を does: 卵が食べられない, 英語が好き."""
    end = word.start + len(word.text)
    return not _PERSON.search(word.text) and _FELT.match(reading.source, end) is not None


def _match_before(text: str, word: Token) -> re.Match[str] | None:
    """Return the match of the word before a token, with what is between them."""
    return _WORD_BEFORE.search(text, max(0, word.start - _LONGEST_ARTICLE), word.start)


def read_before(reading: Reading, word: Token) -> str:
    """Return the word before a token in lower case, "" if there is none."""
    found = _match_before(reading.source, word)
    return found[1].lower() if found else ""


def _with_word_before(text: str, word: Token) -> Token:
    """Return a token with the word before it."""
    found = _match_before(text, word)
    start = found.start() if found else word.start
    return word._replace(text=text[start : word.start + len(word.text)], start=start)
