"""Order of phrases in scripts without blanks: the object of 把, the agent of 被, times, and phrases with a particle."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from consolidation_pipeline.core.differences.inflection import has_passive
from consolidation_pipeline.core.differences.language import Language
from consolidation_pipeline.core.differences.reading import Cue, Reading, Token

# Categories of cues that tell when.
TIMES = frozenset(("dayname", "frequency", "weekday", "daytime"))
_ENDINGS = frozenset("polarity modality need stance tense".split())
_AGENTS = frozenset("被由")
_OFTEN = re.compile("(?<![第每这那上下前后首])[0-9一二两三四五六七八九十]+[次遍趟](?![要的日])")
# Behind a word that tells when: 国庆前.
_AROUND = re.compile("(?:之?[前后](?![台端面者来果])|以[前后]|期间)")
_TEMPORAL = re.compile("(?:完成|完)?(?:之?后|以后|时|之?前|的时候|的话)")
_FIRST = re.compile("(?:^|[,，。:：])(?:[这那该此][^,，。]{0,2})?$")
_NUMERAL = re.compile("[0-9一二两三四五六七八九十]")
_LONGEST_THEME = 2
_POINTED_FIRST = re.compile("(?:^|[,，。:：])[这那该此][^,，。]{0,2}$")
_ADVERBIAL = frozenset("在跟和与同用从为按")
_LONGEST_ADVERBIAL = 3
PERSON = re.compile(
    "[我你您他她们人者员户师生客商王李张刘陈猫狗妈爸妻夫儿女队部店行院校]|孩子|公司|平台|法院|政府|总部|国家"
)
_STOP = re.compile(r"[。.!?！？;；\n]")
_COMMA = re.compile(r"[,，、]")
_CLAUSE = re.compile(r"[,，。.;；!?！？\n]")
_CONJUNCTIONS = frozenset(("if", "unless", "because", "although"))
# Clauses of steps.
_SEQUENCE = re.compile("然后|随后|接着|[再先才]|之后|所以|因此")
# What joins the items of a list, and the two of a pair; what may stand behind these.
_JOINT = re.compile("(?:さん|様|氏)?(?:、|[和与及]|以及|と|や|および|及び)")
_JOINT_PAIR = re.compile("[和与と]")
_BEHIND_PAIR = re.compile("(?:さん|様|氏)?(?:[がはをも写书编]|で[書行作話運]|[,，、。的都均负共组各这两三]|$)")
_BEHIND_LIST = re.compile("(?![对给把被比])")
# Words that say that the order of a list counts.
_IN_ORDER = re.compile(
    "依次|分别|先后|顺序|次序|各自|优先|排名|第[一二三1-3]|轮流|順|それぞれ|まず|最初|次に|先に|優先"
)
_PAIR = 2
# Longest part that may change places.
_MOST_MOVED = 6
_PARTICLE = re.compile(
    "(?:さん|様|たち|など|等)?(によって|により|には|では|とは|へは|からは|までに|から|まで|より|だけ|のみ|が|を|に|で|へ|と|は|も|の)"
)
# Particles of one meaning.
_SAME_PARTICLES = {"には": "に", "では": "で", "へ": "に", "へは": "に", "からは": "から", "により": "によって"}
_CORE = frozenset("がをはも")
_COUNTED = re.compile("(?:[0-9０-９]+|[一二三四五六七八九十百]+)[回個つ人名枚本台冊匹件箱袋杯](?!目)")
_INFLECTION = re.compile("[ぁ-ん]")
_VERB = re.compile("[るたうくすつぬぶむぐだてで]$")


class _Item(NamedTuple):
    """A token or cue of a text. ``name`` is equal for those of two texts that say the same.

    ``is_ending``: A cue such as a denial, which ends a verb.
    """

    name: str
    start: int
    end: int
    is_time: bool
    is_ending: bool = False


class _Phrase(NamedTuple):
    """Names of the items of a phrase, and the particle behind it; empty behind a verb or time."""

    names: tuple[str, ...]
    particle: str


def is_rearranged(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> bool:
    """Return True if two texts have the same words, in another order of phrases that changes nothing they claim.

    Args:
        places: Position in ``b`` of each aligned position in ``a``.
    """
    if language.stemmer or not len(a.tokens) == len(b.tokens) == len(places):
        return False
    names = {place: at for at, place in places.items()}
    items = _list_items(a, {at: at for at in places}, language)
    items_there = _list_items(b, names, language)
    if Counter(item.name for item in items) != Counter(item.name for item in items_there):
        return False
    if [item.name for item in items] == [item.name for item in items_there]:
        return False
    if _have_same_lists(a, items, b, items_there):
        return True
    if language.has_late_focus:
        return _have_same_phrases(a, items, b, items_there)
    return (
        _have_turned(a, items, b, items_there, language)
        or _is_passive_of(a, items, b, items_there, language)
        or _is_passive_of(b, items_there, a, items, language)
        or _have_turned_clauses(a, items, b, items_there)
    )


def _list_items(reading: Reading, names: Mapping[int, int], language: Language) -> list[_Item]:
    """Return the tokens and cues of a text as written, but for markers, the voice and what may be missing."""
    found = [_read_token(token, names[at], reading.source, language) for at, token in enumerate(reading.tokens)]
    found += [
        _Item(
            f"{cue.category} {cue.pole}",
            cue.start,
            cue.start + len(cue.text),
            cue.category in TIMES or (cue.category == "time" and not language.has_late_focus),
            cue.category in _ENDINGS,
        )
        for cue in reading.cues
        if cue.category not in ("marker", "voice") and (cue.category, cue.pole) not in language.neutral
    ]
    return sorted(found, key=lambda item: item.start)


def _read_token(token: Token, name: int, source: str, language: Language) -> _Item:
    is_time = token.key.startswith(("date:", "days-")) or token.text in language.time_adverbs
    is_time = is_time or (not language.has_late_focus and _is_count_of_times(token, source))
    is_time = is_time or (
        not language.has_late_focus and _AROUND.match(source, token.start + len(token.text)) is not None
    )
    return _Item(str(name), token.start, token.start + len(token.text), is_time)


def _is_count_of_times(token: Token, source: str) -> bool:
    """Return True for the words of the only number of times of a text: 去过三次上海, 去过上海三次."""
    found = [match.span() for match in _OFTEN.finditer(source)]
    return len(found) == 1 and found[0][0] <= token.start < found[0][1]


def _have_turned(a: Reading, items: Sequence[_Item], b: Reading, there: Sequence[_Item], language: Language) -> bool:
    """Return True if two neighbouring parts changed places that may: object and verb, agent and object, or a time."""
    part, part_there = _find_window(items, there)
    names, names_there = _name(part), _name(part_there)
    if len(part) > 2 * _MOST_MOVED:
        return False
    for size in range(1, len(part)):
        if names_there != names[size:] + names[:size]:
            continue
        rest = len(part) - size
        if _may_turn(a, part[:size], part[size:], b, language) or _may_turn(
            b, part_there[:rest], part_there[rest:], a, language
        ):
            return True
    return False


def _find_window(items: Sequence[_Item], there: Sequence[_Item]) -> tuple[Sequence[_Item], Sequence[_Item]]:
    """Return the part of each text from the first to the last item that stands elsewhere."""
    first = next(at for at, (one, other) in enumerate(zip(items, there, strict=True)) if one.name != other.name)
    last = next(
        len(items) - at
        for at, (one, other) in enumerate(zip(items[::-1], there[::-1], strict=True))
        if one.name != other.name
    )
    return items[first:last], there[first:last]


def _name(items: Sequence[_Item]) -> list[str]:
    return [item.name for item in items]


def _have_same_lists(a: Reading, items: Sequence[_Item], b: Reading, there: Sequence[_Item]) -> bool:
    """Return True if the items of a list stand in another order, and nothing says that it counts: 帐篷、睡袋和头灯."""
    if any(_IN_ORDER.search(one.source) for one in (a, b)):
        return False
    lists = [_split_list(one, part) for one, part in zip((a, b), _find_window(items, there), strict=True)]
    return len(lists[0]) > 1 and sorted(lists[0]) == sorted(lists[1])


def _split_list(reading: Reading, items: Sequence[_Item]) -> list[list[str]]:
    """Return the names of each item of a list, empty if what stands behind it may belong to the last one alone."""
    parts: list[list[str]] = [[]]
    for one, following in zip(items, [*items[1:], None], strict=True):
        parts[-1].append(one.name)
        between = reading.source[one.end : following.start] if following else ""
        if _JOINT.fullmatch(between):
            parts.append([])
        elif between.strip("的小大"):
            return []
    source, end = reading.source, items[-1].end
    is_mutual = len(parts) == _PAIR and _JOINT_PAIR.search(source[items[0].start : end])
    behind = _BEHIND_PAIR if is_mutual else _BEHIND_LIST
    return parts if behind.match(source, end) else []


def _is_passive_of(a: Reading, items: Sequence[_Item], b: Reading, there: Sequence[_Item], language: Language) -> bool:
    """Return True if ``a`` says with 被 what ``b`` says with or without 把: 表昨天被老魏清空了, 老魏昨天把表清空了."""
    agents = [cue for cue in a.cues if cue.text in _AGENTS]
    if len(agents) != 1 or any(cue.text in _AGENTS for cue in b.cues):
        return False
    agent = agents[0].start
    begin = max((match.end() for match in _CLAUSE.finditer(a.source, 0, agent)), default=0)
    end = match.start() if (match := _CLAUSE.search(a.source, agent)) else len(a.source)
    before, behind = sum(one.start < begin for one in items), sum(one.start >= end for one in items)
    last = len(items) - behind
    if _name(items[:before]) != _name(there[:before]) or _name(items[last:]) != _name(there[last:]):
        return False
    clause, clause_there = items[before:last], there[before:last]
    if any(
        _is_attribute(one, item, language)
        for one, part in ((a, clause), (b, clause_there))
        for item in part
        if item.is_time
    ):
        return False
    clause, clause_there = ([item for item in part if not item.is_time] for part in (clause, clause_there))
    subject, rest = ([one for one in clause if (one.start < agent) is side] for side in (True, False))
    objects = [cue.start for cue in b.cues if (cue.category, cue.pole) == ("marker", "object")]
    sizes = [sum(item.start < objects[0] for item in clause_there)] if objects else range(_PAIR, len(rest) + 1)
    return bool(subject) and any(
        0 < size < len(rest) + (not objects)
        and _name(clause_there) == [*_name(rest[:size]), *_name(subject), *_name(rest[size:])]
        for size in sizes
    )


def _is_attribute(reading: Reading, item: _Item, language: Language) -> bool:
    return reading.source[item.end :].startswith(tuple(language.genitives))


def _have_turned_clauses(a: Reading, items: Sequence[_Item], b: Reading, there: Sequence[_Item]) -> bool:
    """Return True if a condition or reason stands on the other side of what it is for: 取消, 如果下雨."""
    halves = [_split_clauses(one, part) for one, part in ((a, items), (b, there))]
    if any(len(half) != _PAIR for half in halves) or any(_SEQUENCE.search(one.source) for one in (a, b)):
        return False
    (first, second), (first_there, second_there) = halves
    is_turned = first[:1] == second_there[:1] and second[:1] == first_there[:1]
    return (
        is_turned and bool(first[1]) != bool(second[1]) and (first[1], second[1]) == (second_there[1], first_there[1])
    )


def _split_clauses(reading: Reading, items: Sequence[_Item]) -> list[tuple[list[str], set[str]]]:
    """Return the names and the conjunctions of each clause of a text."""
    ends = [match.start() for match in _CLAUSE.finditer(reading.source.rstrip("。.!！ \n"))]
    begins = [0, *ends, len(reading.source)]
    return [
        (
            _name([item for item in items if begin <= item.start < end]),
            {cue.pole for cue in reading.cues if cue.pole in _CONJUNCTIONS and begin <= cue.start < end},
        )
        for begin, end in pairwise(begins)
    ]


def _may_turn(
    reading: Reading, left: Sequence[_Item], right: Sequence[_Item], other: Reading, language: Language
) -> bool:
    """Return True if the first part of a text may stand behind the second one in the other text."""
    between = reading.source[left[0].start : right[-1].end]
    if _STOP.search(between):
        return False
    if all(item.is_time for item in (*left, *right)):  # 从九点到五点
        return False
    if any(all(item.is_time for item in part) for part in (left, right)):
        genitives = tuple(language.genitives)
        times = left if all(item.is_time for item in left) else right
        if times[0].name.startswith("time "):  # 五分钟前, 前五分钟
            return False
        written = reading.source[times[0].start : times[-1].end]
        is_attribute = any(f"{written}{genitive}" in one.source for one in (reading, other) for genitive in genitives)
        return not is_attribute and not any(genitive in between for genitive in genitives)
    if _COMMA.search(between):
        return False
    objects = [cue for cue in reading.cues if (cue.category, cue.pole) == ("marker", "object")]
    if any(cue.start < left[0].start and not _stands_between(reading, cue, left[0].start) for cue in objects):
        return True
    # 订单取消后, 取消订单后
    if len(right) == 1 and _TEMPORAL.match(reading.source, right[0].end) and not PERSON.search(between):
        return True
    if all(_is_adverbial(part, reading, other) for part in (left, right)):
        return True
    if _is_fronted(reading, left, right, other):
        return True
    # 不能把数据带出公司, 数据不能带出公司
    is_object = any(
        left[-1].start < cue.start < right[0].start and not _stands_between(reading, cue, right[0].start)
        for cue in objects
    )
    if is_object and all(item.is_ending or item.is_time for item in left):
        return True
    agents = [cue for cue in reading.cues if cue.text in _AGENTS and left[-1].start < cue.start < right[0].start]
    return bool(agents) and not any(cue.text in _AGENTS for cue in other.cues)


def _is_adverbial(part: Sequence[_Item], reading: Reading, other: Reading) -> bool:
    """Return True if a short part has the same preposition before it in both texts: 在会议室跟法务讨论."""
    written = reading.source[part[0].start : part[-1].end]
    preposition = reading.source[: part[0].start][-1:]
    return len(part) <= _LONGEST_ADVERBIAL and preposition in _ADVERBIAL and f"{preposition}{written}" in other.source


def _is_fronted(reading: Reading, part: Sequence[_Item], rest: Sequence[_Item], other: Reading) -> bool:
    """Return True if a part is a thing that is pointed at, and opens its clause: 这份合同我没看过, 我没看过这份合同."""
    before = reading.source[: part[0].start]
    written = reading.source[part[0].start : part[-1].end]
    if PERSON.search(written) or _FIRST.search(before) is None or any(item.is_ending for item in part):
        return False
    is_pointed = _POINTED_FIRST.search(before) is not None
    pointed = "[这那该此][^,，。]{0,2}" if is_pointed else ""
    if not is_pointed and (
        len(part) > _LONGEST_THEME
        or not all(name.isdigit() for name in _name(part))
        or _NUMERAL.search(written)
        or any(cue.text in _AGENTS for cue in (*reading.cues, *other.cues))
        or PERSON.search(reading.source, rest[0].start, rest[-1].end)
    ):
        return False
    return re.search(f"{pointed}{re.escape(written)}(?:了|过)?(?:[,，。.!！会就后时]|之后|$)", other.source) is not None


def _stands_between(reading: Reading, cue: Cue, end: int) -> bool:
    return any(cue.start < token.start < end for token in reading.tokens)


def _have_same_phrases(a: Reading, items: Sequence[_Item], b: Reading, there: Sequence[_Item]) -> bool:
    """Return True if two texts of one clause have the same phrases with the same particles before the same verb."""
    found, found_there = _split_phrases(a, items), _split_phrases(b, there)
    if not found or not found_there or found[-1].names != found_there[-1].names or len(found) != len(found_there):
        return False
    cores, cores_there = _read_cores(found, a), _read_cores(found_there, b)
    if cores.keys() != cores_there.keys() or (len(cores) > 1 and cores != cores_there):
        return False
    rest, rest_there = (
        Counter(one for one in phrases[:-1] if one.names not in cores) for phrases in (found, found_there)
    )
    return rest == rest_there and (len(cores) != 1 or _have_one_case(found, a, found_there, b))


def _have_one_case(found: Sequence[_Phrase], a: Reading, there: Sequence[_Phrase], b: Reading) -> bool:
    """Return True if the only subject or object of two texts is the same: が and は, or が of a passive and を."""
    particle, other = (next(one.particle for one in side if one.particle in _CORE) for side in (found, there))
    is_passive, is_passive_there = (has_passive(one.source) for one in (a, b))
    if is_passive == is_passive_there:
        return {particle, other} != {"が", "を"}
    return (other if is_passive else particle) == "を" and (particle if is_passive else other) != "を"


def _read_cores(phrases: Sequence[_Phrase], reading: Reading) -> dict[tuple[str, ...], str]:
    """Return subject and object, "が" and "を", by their names: は stands for the one that has no particle of its own.

    In the passive, who does it has によって.
    """
    has_subject, has_object = (any(one.particle == particle for one in phrases) for particle in "がを")
    agents = ("によって", "から")
    by = any(one.particle in agents for one in phrases) and has_passive(reading.source)
    cores: dict[tuple[str, ...], str] = {}
    for one in phrases[:-1]:
        if by and one.particle in agents:
            cores[one.names] = "が"
        elif one.particle in _CORE:
            particle = one.particle if one.particle in "がを" else "を" if has_subject else "が"
            particle = (
                f"{particle} {has_subject and has_object}"
                if one.particle in "はも" and has_object and has_subject
                else particle
            )
            cores[one.names] = "を" if by else particle
    return cores


def _is_counted(source: str, one: _Item, following: _Item, items: Sequence[_Item]) -> bool:
    """Return True if the only number of a text, and its counter, end between two items: 2回薬を飲む, 薬を2回飲む."""
    counted = [item for item in items if _COUNTED.match(source, item.start)]
    return (
        len(counted) == 1
        and (match := _COUNTED.match(source, counted[0].start)) is not None
        and (one.end == match.end() <= following.start)
    )


def _split_phrases(reading: Reading, items: Sequence[_Item]) -> list[_Phrase]:
    """Return the phrases of a text of one clause, empty if it has a verb before the last one."""
    phrases: list[_Phrase] = []
    names: list[str] = []
    while items and items[-1].is_ending:
        items = items[:-1]
    source = reading.source
    for one, following in pairwise([*items, None]):
        if one is None:
            break
        names.append(one.name)
        end = following.start if following else len(source)
        rest = source[one.end : end]
        if _STOP.search(rest.rstrip("。.!！ \n")):
            return []
        if following is None:
            return [*phrases, _Phrase(tuple(names), "")]
        if _VERB.search(source, one.start, one.end):
            return []
        match = _PARTICLE.match(rest)
        particle = match[1] if match else source[one.end - 1] if not rest and source[one.end - 1] in "にで" else ""
        if particle == "の" and not _COMMA.search(rest):
            continue
        if not particle and following and _is_counted(source, one, following, items):
            phrases.append(_Phrase(tuple(names), ""))
            names = []
            continue
        if (not rest and source[one.end - 1] == "い") or one.name.startswith("quantity"):  # 新しい料金, すべて削除
            continue
        if not particle and not one.is_time:
            if _INFLECTION.search(source[one.end - 1] + rest.removeprefix("な").removesuffix("お").removesuffix("ご")):
                return []
            continue
        if match and _INFLECTION.search(rest[match.end() :].removesuffix("お").removesuffix("ご")):
            return []
        is_when = one.is_time and len(names) == 1 and particle == "に"
        phrases.append(_Phrase(tuple(names), "" if is_when else _SAME_PARTICLES.get(particle, particle)))
        names = []
    return phrases
