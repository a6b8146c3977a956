"""Particles of scripts without blanks by which two texts of the same words claim other things: 全員が, 全員は; 门开着, 门开了."""

import re
from collections.abc import Callable, Iterator, Mapping

from consolidation_pipeline.core.differences.language import Language
from consolidation_pipeline.core.differences.order import Reordered
from consolidation_pipeline.core.differences.reading import Cue, Reading, Token

_KANJI = "々一-龯ァ-ヶー"
# Words of which something else holds as well, unless words beside them tell that it holds of all or of none.
_ALSO = {
    "ja": re.compile(
        rf"(?<=[{_KANJI}A-Za-z])(?<!何)(?<!誰)(?<!人)(?<!つ)(?<!回)(?<!度)(?<!最)(?<!今)(?:に|で|と|から|まで|へ)?"
        r"も(?![うしのっとちらぐなやれ])(?![^、。]{0,6}も)"
    ),
    "zh": re.compile(r"(?<!再)(?<!点)(?<!谁)(?<!么)(?<!个)也(?!许|就是|是如此)"),
}
_NOT_ALSO = {
    "ja": re.compile("ても|でも|とも|も.*も"),
    "zh": re.compile("即使|即便|哪怕|就算|无论|不管|不论|虽|尽管|连|宁|一.也|任何|所有|不但|不仅|同时|并"),
}
# Two nouns of which one is enough.
_EITHER = {
    "ja": re.compile(
        rf"(?:(?<=[{_KANJI}])|(?<=さん))(?<![何誰確静僅豊遥微愚])か(?=[{_KANJI}A-Za-z0-9])(?![月国所年])|または|又は|もしくは|あるいは|或いは|それとも"
    ),
    "zh": re.compile("(?<!还)或(?!许|以上|以下|多|少|更)|(?<=[^,.。，])还是(?=[^很没不要会在有])"),
}
# The end of a verb before a noun.
_PRENOMINAL = {
    "ja": re.compile(rf"(?:[るす]|(?<!ま)た|(?<=[{_KANJI}])[うつくぬぶむぐ]|ない|んだ|いだ)(?=[{_KANJI}])(?![時前後際場間中頃度点方])"),
    "zh": re.compile(
        "(?:[到过了写做买卖发送开拍修改说讲看听用吃喝来去走坐给付交提收寄订选挂存装洗画建]|完成|发现|使用|购买|提交)(?:好|完|出|来|过|到|了)?"
        r"的(?!时候|话|情况|[,，.。]|$)"
    ),
}
# Markers of an object or agent, which may stand on any side of a verb before a noun.
_VERB_MARKERS = frozenset("把将被由")
_CONJUNCTIONS = ("because", "although", "if")
# Where an amount is a change without に and the result with it: 5%下がる, 5%に下がる.
_CHANGE = re.compile(r"[^に、。]{0,3}?(に)?(?:まで)?(?:[上下増減伸縮]|引き[上下]げ)")
# What happened in one text and lasts in the other: 门开了, 门开着.
_LASTS = re.compile(r"(\w)着")
_WILL = re.compile("(?<![议机社])会(?![议员话计场])")
_SOON = re.compile("(?<![需重主必只不])要(?=[^,.，。求]{1,6}了)")
_COMING = re.compile("要|快|将|会")
_AGENTS, _PATIENTS = frozenset("由被让"), frozenset("把将对")
_PERSON = re.compile("[人员者户师生客王李张刘陈赵周吴孙朱]|孩子|老板|经理|司机|医生|护士")


def find_new_particle(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return the words of two texts of which a particle makes other claims; None if there are none.

    Args:
        places: Position in ``b`` of each aligned position in ``a``.
    """
    if language.stemmer or not places:
        return None
    code = language.code
    if (
        differ_in_particles(a, b, language)
        or _find_across_verb(a, b, places, code)
        or _find_turned_clauses(a, b, places, code)
        or (code == "ja" and _has_other_amount(a, b, places))
    ):
        at = min(places)
        return [a.tokens[at]], [b.tokens[places[at]]]
    return None


def differ_in_particles(a: Reading, b: Reading, language: Language) -> bool:
    """Return True if a particle of one text alone makes it claim another thing, whatever the words beside it."""
    code = language.code
    return code in _ALSO and any(differ(a, b, code) or differ(b, a, code) for differ in _DIFFER)


def _says_also(one: Reading, other: Reading, code: str) -> bool:
    """Return True if one text alone says that something else holds as well: 土曜も営業する, 他也同意."""
    if _ALSO[code].search(one.source) is None or _NOT_ALSO[code].search(one.source):
        return False
    return _ALSO[code].search(other.source) is None and _NOT_ALSO[code].search(other.source) is None


def _says_either(one: Reading, other: Reading, code: str) -> bool:
    """Return True if one of two is enough in one text alone: 田中さんか鈴木さん, 小王或小李."""
    return _EITHER[code].search(one.source) is not None and _EITHER[code].search(other.source) is None


def _contrasts_quantity(one: Reading, other: Reading, code: str) -> bool:
    """Return True if one text alone denies a quantity, not all of it: 全員は来ない, 毎日は掃除しない."""
    if code != "ja" or not all(any(cue.category == "polarity" for cue in side.cues) for side in (one, other)):
        return False
    found, found_there = ({cue.pole for cue in _list_quantities(side) if _is_topic(side, cue)} for side in (one, other))
    there = {cue.pole for cue in _list_quantities(other)}
    return bool((found - found_there) & there)


def _list_quantities(reading: Reading) -> Iterator[Cue]:
    return (cue for cue in reading.cues if cue.category in ("quantity", "frequency"))


def _is_topic(reading: Reading, cue: Cue) -> bool:
    return reading.source.startswith("は", cue.start + len(cue.text))


def _lasts(one: Reading, other: Reading, code: str) -> bool:
    """Return True if what lasts in one text happened in the other one."""
    if code != "zh":
        return False
    return any(
        f"{verb}着" not in other.source and f"{verb}了" in other.source and f"{verb}了" not in one.source
        for verb in _LASTS.findall(one.source)
    )


def _comes(one: Reading, other: Reading, code: str) -> bool:
    """Return True if one text tells of the future what the other one tells as done: 会迁移, 迁移了; 要下雨了, 下雨了."""
    if code != "zh":
        return False
    if _SOON.search(one.source) and _COMING.search(other.source) is None and "了" in other.source:
        return True
    is_done = other.source.count("了") > one.source.count("了") or "正在" in other.source
    return is_done and _WILL.search(one.source) is not None and _WILL.search(other.source) is None


_DIFFER: tuple[Callable[[Reading, Reading, str], bool], ...] = (
    _says_also,
    _says_either,
    _contrasts_quantity,
    _lasts,
    _comes,
)


def _find_across_verb(a: Reading, b: Reading, places: Mapping[int, int], code: str) -> bool:
    """Return True if a word stands before a verb that tells of a noun in one text alone: 昨日届いた荷物, 届いた荷物を昨日.

    A word before a comma belongs to the verb at the end in any place.
    """
    ends = [match.end() if (match := _PRENOMINAL[code].search(one.source, one.begin)) else None for one in (a, b)]
    if ends[0] is None or ends[1] is None or any(cue.text in _VERB_MARKERS for cue in (*a.cues, *b.cues)):
        return False
    return any(
        (one.start < ends[0]) != (other.start < ends[1])
        and not _opens(a, one, ends[0])
        and not _opens(b, other, ends[1])
        for one, other in _pair_words(a, b, places)
    )


def _pair_words(a: Reading, b: Reading, places: Mapping[int, int]) -> list[tuple[Token | Cue, Token | Cue]]:
    """Return the tokens and cues of both texts."""
    pairs: list[tuple[Token | Cue, Token | Cue]] = [(a.tokens[at], b.tokens[there]) for at, there in places.items()]
    cues = {(cue.category, cue.pole): cue for cue in b.cues if cue.category != "marker"}
    return [*pairs, *((cue, cues[cue.category, cue.pole]) for cue in a.cues if (cue.category, cue.pole) in cues)]


def _find_turned_clauses(a: Reading, b: Reading, places: Mapping[int, int], code: str) -> bool:
    """Return True if the clauses on the sides of one conjunction changed places: 熱があるから休んだ, 休んだから熱がある."""
    for pole in _CONJUNCTIONS if code == "ja" else ():
        markers = [[cue.start for cue in one.cues if (cue.category, cue.pole) == ("marker", pole)] for one in (a, b)]
        if len(markers[0]) == len(markers[1]) == 1:
            sides = {
                (one.start < markers[0][0], other.start < markers[1][0]) for one, other in _pair_words(a, b, places)
            }
            if {(True, False), (False, True)} <= sides:
                return True
    return False


def _opens(reading: Reading, word: Token | Cue, end: int) -> bool:
    """Return True if a word before a relative clause has a comma behind it."""
    return word.start < end and re.search("[,，、]", reading.source[word.start : end]) is not None


def _has_other_amount(a: Reading, b: Reading, places: Mapping[int, int]) -> bool:
    """Return True if an amount is a change in one text and the result in the other one."""
    for at, there in places.items():
        if a.tokens[at].kind == "value":
            found = [
                _CHANGE.match(one.source, token.start + len(token.text))
                for one, token in ((a, a.tokens[at]), (b, b.tokens[there]))
            ]
            if found[0] and found[1] and bool(found[0][1]) != bool(found[1][1]):
                return True
    return False


def find_turned_person(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return who does it in one text and is the object of the other one: 由小王审核, 审核小王; 学生批评, 批评学生.

    Args:
        places: as in ``find_new_particle``.
    """
    if language.code != "zh":
        return None
    order, order_there = (sorted(one.tokens, key=lambda token: token.start) for one in (a, b))
    for at, there in places.items():
        one, other = a.tokens[at], b.tokens[there]
        roles = _read_role(a, one), _read_role(b, other)
        if {*roles} == {"agent", "patient"} or (
            _PERSON.search(one.text)
            and "patient" not in roles
            and (_follows(order, one, order_there, other) or _follows(order_there, other, order, one))
        ):
            return [one], [other]
    return None


def _follows(order: list[Token], word: Token, order_there: list[Token], there: Token) -> bool:
    """Return True if a word stands directly before one that it stands directly behind in the other text."""
    behind, before = _find_near(order, word, 1), _find_near(order_there, there, -1)
    return behind is not None and before is not None and behind.key == before.key != word.key


def _read_role(reading: Reading, word: Token) -> str:
    """Return "agent" or "patient" by the marker before a word, empty if there is none."""
    before = reading.source[: word.start].rstrip("小老阿")[-1:]
    return "agent" if before in _AGENTS else "patient" if before in _PATIENTS else ""


def _find_near(order: list[Token], word: Token, step: int) -> Token | None:
    at = order.index(word) + step
    return order[at] if 0 <= at < len(order) and order[at].clause == word.clause else None
