"""Particles by which two texts of the same words claim other things, in scripts without blanks: 全員は, 门开着."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import pairwise

from consolidation_pipeline.core.differences.cue_differences import GRAMMAR
from consolidation_pipeline.core.differences.inflection import has_passive
from consolidation_pipeline.core.differences.language import Language
from consolidation_pipeline.core.differences.language_loader import load_language
from consolidation_pipeline.core.differences.order import Reordered
from consolidation_pipeline.core.differences.phrase_order import TIMES
from consolidation_pipeline.core.differences.reading import Cue, Reading, Token

_KANJI = "々一-龯ァ-ヶー"
# Words of which something else holds as well, unless words beside them tell that it holds of all or of none.
_ALSO = {
    "ja": re.compile(
        rf"(?<=[{_KANJI}A-Za-z])(?<!何)(?<!誰)(?<!人)(?<!つ)(?<!回)(?<!度)(?<!最)(?<!今)(?:に|で|と|から|まで|へ)?"
        r"も(?![うしのっとちらぐなやれりるろ])(?![^、。]{0,6}も)"
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
_ZH_VERBS = (
    "[到过了写做买卖发送开拍修改说讲看听用吃喝来去走坐给付交提收寄订选挂存装洗画建加成定删印贴擦录移传转退换]|[查批审拿带拆借租学教问找填签扔丢坏堵断掉错]"
    "|完成|发现|使用|购买|提交|付款|登录|注册|参加|离职|请假|迟到|报名|缺席|[上下]班|审批"
)
_PRENOMINAL = {
    "ja": re.compile(
        rf"(?:[るす]|(?<!ま)た|(?<=[{_KANJI}])[うつくぬぶむぐ]|ない|んだ|いだ)(?=[{_KANJI}])(?![時前後際場間中頃度点方])"
    ),
    "zh": re.compile(rf"(?:{_ZH_VERBS})(?:好|完|出|来|过|到|了)?的(?!时候|话|情况|[,，.。]|$)"),
}
# Markers of an object or agent, which may stand on any side of a verb before a noun.
_VERB_MARKERS = frozenset("把将被由")
# Cues that tell of one verb even beside such a marker.
_OF_VERBS = TIMES | {"polarity"}
# Cues behind the clause that they are of.
_IN_TIME = (("time", "before"), ("time", "after"))
_CONJUNCTIONS = {
    "ja": (*(("marker", pole) for pole in ("because", "although", "if")), *_IN_TIME),
    "zh": _IN_TIME,
}
# What a denial denies in part, behind its quantity.
_TOPIC = re.compile(rf"(?:の?[{_KANJI}]{{1,8}})?(?:に|で|と|から|へ)?は")
# What parts two clauses of Chinese.
_PARTS_CLAUSES = re.compile("[就才则再后时,，]")
# Where an amount is a change without に and the result with it: 5%下がる, 5%に下がる.
_CHANGE = re.compile(r"[^に、。]{0,3}?(に)?(?:まで)?(?:[上下増減伸縮]|引き[上下]げ)")
# What happened in one text and lasts in the other: 门开了, 门开着.
_LASTS = re.compile(r"(\w)着")
_DOER = re.compile(rf"(?:[{_KANJI}]+(?:さん|様|君|くん|氏)|[{_KANJI}]*[者人客員母父親弟妹兄姉長師生彼私女])[はがも]")
# By phone and nothing else, phone alone is enough; has just done it, is about to do it.
_OPPOSED = (
    (re.compile("(?:だけ|のみ)で"), re.compile("で(?:だけ|のみ|しか)")),
    (re.compile("[ただ]ところ[だで]"), re.compile("[るうくすつぬぶむぐ]ところ[だで]")),
)
# Particles of which one tells of another role than the other, and verbs beside which it does not.
_ROLE = re.compile("(?:さん|様|君|たち)?(から|まで|と|が|を|に|へ|で)(?![はもきのこい])")
_OTHER_ROLES = {frozenset(pair) for pair in (*(("から", other) for other in "にへでを"), ("と", "が"), ("と", "を"))}
_OF_ONE_ROLE = re.compile("もら|借り|習|聞|教わ|いただ|受け|始ま|始め|開始|スタート|れ[るたまて]|届|着")
_REASONS = frozenset(("if", "because"))
_ORDINAL = re.compile("第([0-9]+|[一二三四五六七八九十]+)(?![回次])")
_WILL = re.compile("(?<![议机社])会(?![议员话计场])")
_SOON = re.compile("(?<=[他她我你们])该(?=[^,.，。]{1,4}了)|(?<![需重主必只不])要(?=[^,.，。求]{1,6}了)")
_GOES_ON = re.compile("正在|(?<![存所现正实])在(?=[开做写吃看修改说走跑睡听学玩打洗煮查])")
# "Besides Ben, others come", "all but Ben come".
_BESIDES, _ALL_BUT = re.compile("除[^。]*?[还也又]"), re.compile("除[^。]*?(?:都|全|均|一律|每)")
_COMING = re.compile("[要快将会该]")
_ROLES = {"agent": "由被让", "patient": "把将对", "receiver": "给替帮"}
_PERSON = re.compile("[人员者户师生客王李张刘陈赵周吴孙朱]|孩子|老板|孩|经理|司机|医生|护士")


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
        or (code == "ja" and (_has_other_amount(a, b, places) or _has_other_role(a, b, places)))
        or (code == "zh" and _governs_other(a, b, places))
    ):
        at = min(places)
        return [a.tokens[at]], [b.tokens[places[at]]]
    return None


def differ_in_particles(a: Reading, b: Reading, language: Language) -> bool:
    """Return True if a particle of one text alone makes it claim another thing, whatever the words beside it."""
    code = language.code
    if code not in _ALSO:
        return False
    persons, persons_there = (_list_persons(one, language) for one in (a, b))
    is_turned = persons != persons_there and min(len({*persons}), len({*persons_there})) > 1
    return is_turned or any(differ(a, b, code) or differ(b, a, code) for differ in _DIFFER)


def _list_persons(reading: Reading, language: Language) -> list[str]:
    """Return the persons of the pronouns of a text in order, each once in a row."""
    found = [language.subjects[match[0]] for match in _compile_pronouns(language.code).finditer(reading.source)]
    return [who for before, who in pairwise(["", *found]) if who != before]


@cache
def _compile_pronouns(code: str) -> re.Pattern[str]:
    return re.compile("|".join(sorted(load_language(code).subjects, key=len, reverse=True)))


def _says_also(one: Reading, other: Reading, code: str) -> bool:
    """Return True if one text alone says that something else holds as well: 土曜も営業する, 他也同意."""
    if _ALSO[code].search(one.source) is None or _NOT_ALSO[code].search(one.source):
        return False
    return _ALSO[code].search(other.source) is None and _NOT_ALSO[code].search(other.source) is None


def _tells_besides(one: Reading, other: Reading, code: str) -> bool:
    """Return True if one text adds others to what stands behind 除了, and the other one excepts it from all."""
    if code != "zh" or _BESIDES.search(one.source) is None:
        return False
    return _BESIDES.search(other.source) is None and _ALL_BUT.search(other.source) is not None


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
    return _TOPIC.match(reading.source, cue.start + len(cue.text)) is not None


def _lasts(one: Reading, other: Reading, code: str) -> bool:
    """Return True if what lasts in one text happened in the other one."""
    if code != "zh":
        return False
    return any(
        f"{verb}着" not in other.source and f"{verb}了" in other.source and f"{verb}了" not in one.source
        for verb in _LASTS.findall(one.source)
    )


def _comes(one: Reading, other: Reading, code: str) -> bool:
    """Return True if one text tells of the future what the other one tells as done: 会迁移, 迁移了."""
    if code != "zh":
        return False
    if _SOON.search(one.source) and _COMING.search(other.source) is None and "了" in other.source:
        return True
    is_done = other.source.count("了") > one.source.count("了") or _GOES_ON.search(other.source) is not None
    return is_done and _WILL.search(one.source) is not None and _WILL.search(other.source) is None


def _has_other_end(one: Reading, other: Reading, code: str) -> bool:
    """Return True if a particle of Japanese stands in the place of one that means another thing: だけで, でだけ."""
    if code != "ja":
        return False
    return any(x.search(one.source) and y.search(other.source) and not x.search(other.source) for x, y in _OPPOSED)


def _concedes(one: Reading, other: Reading, _code: str) -> bool:
    """Return True if a condition or reason of one text holds in spite of it in the other one: 降れば, 降っても."""
    poles, poles_there = ({cue.pole for cue in side.cues if cue.category == "marker"} for side in (one, other))
    return (
        bool(poles & _REASONS)
        and "although" not in poles
        and "although" in poles_there
        and poles_there.isdisjoint(_REASONS)
    )


def _counts_in_order(one: Reading, other: Reading, _code: str) -> bool:
    """Return True if a number is the place of a thing in one text, and how many there are in the other: 第五页."""
    found = _ORDINAL.findall(one.source)
    return any(
        re.search(f"(?<!第){number}(?![目番])", other.source) and f"第{number}" not in other.source for number in found
    )


def _is_done_to_person(one: Reading, other: Reading, code: str) -> bool:
    """Return True if a person does in one text what is done to the person in the other one: 母が送られた."""
    if code != "ja" or not has_passive(one.source) or has_passive(other.source):
        return False
    return any(doer in other.source for doer in _DOER.findall(one.source))


_DIFFER: tuple[Callable[[Reading, Reading, str], bool], ...] = (
    _says_also,
    _says_either,
    _contrasts_quantity,
    _lasts,
    _comes,
    _is_done_to_person,
    _has_other_end,
    _concedes,
    _counts_in_order,
    _tells_besides,
)


def _find_across_verb(a: Reading, b: Reading, places: Mapping[int, int], code: str) -> bool:
    """Return True if a word stands before a verb that tells of a noun in one text alone: 昨日届いた荷物.

    A word before a comma belongs to the verb at the end in any place.
    """
    ends = [match.end() if (match := _PRENOMINAL[code].search(one.source, one.begin)) else None for one in (a, b)]
    if ends[0] is None or ends[1] is None:
        return False
    has_markers = any(cue.text in _VERB_MARKERS for cue in (*a.cues, *b.cues))
    return any(
        (one.start < ends[0]) != (other.start < ends[1])
        and not _opens(a, one, ends[0])
        and not _opens(b, other, ends[1])
        for one, other in _pair_words(a, b, places)
        if not has_markers or (isinstance(one, Cue) and one.category in _OF_VERBS)
    )


def _pair_words(a: Reading, b: Reading, places: Mapping[int, int]) -> list[tuple[Token | Cue, Token | Cue]]:
    """Return the tokens and cues of both texts."""
    pairs: list[tuple[Token | Cue, Token | Cue]] = [(a.tokens[at], b.tokens[there]) for at, there in places.items()]
    cues = {(cue.category, cue.pole): cue for cue in b.cues if cue.category != "marker"}
    return [*pairs, *((cue, cues[cue.category, cue.pole]) for cue in a.cues if (cue.category, cue.pole) in cues)]


def _find_turned_clauses(a: Reading, b: Reading, places: Mapping[int, int], code: str) -> bool:
    """Return True if the clauses on the sides of one conjunction changed places: 休んだから熱がある."""
    for category, pole in _CONJUNCTIONS[code]:
        markers = [[cue.start for cue in one.cues if (cue.category, cue.pole) == (category, pole)] for one in (a, b)]
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


def _has_other_role(a: Reading, b: Reading, places: Mapping[int, int]) -> bool:
    """Return True if the particle behind a word tells of another role: 5月から, 5月に; 田中さんと, 田中さんが."""
    if any(_OF_ONE_ROLE.search(one.source) for one in (a, b)):
        return False
    for one, other in _pair_words(a, b, places):
        found = [_ROLE.match(reading.source, word.start + len(word.text)) for reading, word in ((a, one), (b, other))]
        particles = frozenset(match[1] for match in found if match)
        # An item of a list may change places with the last one: 中村さんと岡田さんが.
        is_listed = "と" in particles and a.source.count("と") == b.source.count("と")
        if None not in found and particles in _OTHER_ROLES and not is_listed:
            return True
    return False


def _governs_other(a: Reading, b: Reading, places: Mapping[int, int]) -> bool:
    """Return True if "only" or a denial of Chinese is of another word: 仅管理员可以删除, 管理员仅可以删除."""
    names = {there: at for at, there in places.items()}
    items = [
        sorted([(token.start, str(own.get(at, "-"))) for at, token in enumerate(one.tokens)] + _list_content(one))
        for one, own in ((a, {at: at for at in places}), (b, names))
    ]
    for category in ("restriction", "polarity"):
        cues = [[cue for cue in one.cues if cue.category == category] for one in (a, b)]
        if any(len(found) != 1 for found in cues) or cues[0][0].pole != cues[1][0].pole:
            continue
        if category == "restriction" and cues[0][0].pole != "only":
            continue
        here, there = (
            next((item for item in side if item[0] > found[0].start), None)
            for side, found in zip(items, cues, strict=True)
        )
        if here is None or there is None or here[1] == there[1]:
            continue
        place = next((item[0] for item in items[0] if item[1] == there[1]), None)
        if place is None or here[1] not in [name for _, name in items[1]]:
            continue
        between = a.source[min(here[0], place) : max(here[0], place)]
        if category == "restriction" or _PARTS_CLAUSES.search(between):
            return True
    return False


def _list_content(reading: Reading) -> list[tuple[int, str]]:
    """Return where the cues of a text stand that are words of a content, and their names."""
    return [(cue.start, f"{cue.category} {cue.pole}") for cue in reading.cues if cue.category not in GRAMMAR]


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
    order, order_there = (sorted(one.tokens, key=lambda token: token.place) for one in (a, b))
    for at, there in places.items():
        one, other = a.tokens[at], b.tokens[there]
        roles = _read_role(a, one), _read_role(b, other)
        opens = [_opens_text(reading, token) for reading, token in ((a, one), (b, other))]
        is_receiver = (roles[0] == "receiver" and opens[1]) or (roles[1] == "receiver" and opens[0])
        if {*roles} == {"agent", "patient"} or (
            _PERSON.search(one.text)
            and (
                is_receiver
                or _is_object_of(order, one, roles[0], order_there, other, roles[1])
                or _is_object_of(order_there, other, roles[1], order, one, roles[0])
            )
        ):
            return [one], [other]
    return None


def _is_object_of(
    order: list[Token], word: Token, role: str, order_there: list[Token], there: Token, role_there: str
) -> bool:
    """Return True if a word is the object of a verb that it stands before in the other text, without such a marker."""
    verb = _find_near(order_there, there, 1)
    if verb is None or role_there == "patient" or verb.key == word.key:
        return False
    near = [_find_near(order, word, step) for step in ((-1, 1) if role == "patient" else (-1,))]
    return any(one is not None and one.key == verb.key for one in near)


def _read_role(reading: Reading, word: Token) -> str:
    """Return the role of a word by the marker before it: agent, patient or receiver; empty if there is none."""
    before = reading.source[: word.start].rstrip("小老阿")[-1:]
    return next((role for role, markers in _ROLES.items() if before in markers and before), "")


def _opens_text(reading: Reading, word: Token) -> bool:
    return not reading.source[reading.begin : word.start].strip("小老阿 ")


def _find_near(order: list[Token], word: Token, step: int) -> Token | None:
    at = order.index(word) + step
    return order[at] if 0 <= at < len(order) and order[at].clause == word.clause else None
