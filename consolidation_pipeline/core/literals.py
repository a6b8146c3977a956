"""The facts of a text that must not be blurred, and when two texts contradict each other in them.

A literal is a number with its unit, a version, a date, a path, a URL, an identifier, an error code, a quotation or a
negation. Every literal lies on one line and inside one sentence, so the literals of a text are those of its sentences.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache

from consolidation_pipeline.core.memories import normalize_text


@dataclass(frozen=True)
class Literal:
    """One fact: ``value`` is normalised, ``text`` as written, ``start`` its offset. Equal by kind and value alone."""

    kind: str
    value: str
    text: str = field(default="", compare=False)
    start: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Conflict:
    """What stands against each other: values that only ``a`` has, and values of that kind that only ``b`` has."""

    kind: str
    a: tuple[str, ...]
    b: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}: {', '.join(self.a)} / {', '.join(self.b)}"


# --- where literals are ------------------------------------------------------------------------------------------


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_NUMBER_WORDS = _words("zero one two three four five six seven eight nine ten eleven twelve")
_MONTHS = _words("jan feb mar apr may jun jul aug sep oct nov dec")
# "may" and "march" are also verbs: these two need their capital.
_MONTH = (
    r"(?:(?i:jan(?:uary)?|feb(?:ruary)?|apr(?:il)?|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?"
    r"|dec(?:ember)?)|Mar(?:ch)?|May)\b\.?"
)
_EXTENSION = (
    "(?:pyi?|ipynb|[cm]?jsx?|tsx?|jsonl?|ya?ml|toml|ini|cfg|conf|env|md|rst|txt|[ct]sv|parquet|sql|db|sqlite3?|html?|s?css"
    "|xml|java|kt|scala|go|rs|rb|php|[ch]|cc|[ch]pp|cs|swift|sh|bash|zsh|ps1|bat|cmd|exe|dll|so|jar|war|zip|tar|t?gz|whl"
    "|log|lock|pem|key|crt|png|jpe?g|gif|svg|pdf|docx?|xlsx?|proto|tf|vue|svelte|properties|gradle|mod|patch|diff|bak)"
)
# Counted things that make a number word a number: "three retries" is 3, "one of them" is not 1.
_COUNTED = (
    r"(?:(?:milli|micro|nano)?seconds?|minutes?|hours?|days?|weeks?|months?|years?|bytes?|bits?|percent|times|attempts?"
    r"|retr(?:y|ies)|tries|steps?|items?|rows?|lines?|files?|users?|requests?|connections?|threads?|workers?|replicas?"
    r"|process(?:es)?|instances?|nodes?|cores?|pages?|char(?:acter)?s?|tokens?|words?|levels?|points?|digits?)"
)
_RELEASE = r"(?:[-.+]?(?i:rc|alpha|beta|snapshot|final|release|ga|dev|post|pre|preview|lts|sp|cr|hotfix)[-.]?\d*)"
_BLANK = r"[^\S\n]"
# Also what sentence splitting must not cut; see merging.split_sentences.
QUOTED = r'(?<!\w)"(?=[^\s"])[^"\n]*(?<=\S)"(?!\w)|“[^“”\n]+”|‘[^‘’\n]+’(?!\w)|«[^«»\n]+»|„[^„“”\n]+[“”]'
CODE = r"(?<!`)(?P<ticks>`{1,3})(?!`)[^`\n]+(?P=ticks)(?!`)"

_SENTENCE_STARTS = "(?:The|This|It|In|We|I|If|When|And|But|So|A)"  # "failed.The" lacks a blank, it is no name
_NUMBER_WORD = f"(?i:{'|'.join(_NUMBER_WORDS)})"
_VERSION_WORD = r"(?i:versions?|ver\.?|release)"
_WORDY = f"(?:{_NUMBER_WORD}|{_VERSION_WORD})"

# One alternation, most specific first: a stretch of text is claimed once. The first line is there for speed, the second
# because the number of a list's item says nothing. No part may start inside what it can itself run over, else a long
# row of "a-a-a-" takes quadratic time: hence the length of a scheme and the characters before an address.
_LITERAL = re.compile(
    rf"""
    (?<!\w)(?!{_WORDY}\b|{_MONTH})[A-Z]?[a-z]++(?=[\s,;)!?]|[.:](?:\s|$)|$)|\s++
    |^{_BLANK}*\d{{1,3}}[.)](?=\s|$)
    |(?P<url>(?<!\w)(?:[A-Za-z][A-Za-z0-9+.-]{{1,19}}://|www\.)[^\s<>"`“”‘’«»„]*[^\s<>"`“”‘’«»„.,;:!?)\]}}'*_~|])
    |(?P<code>{CODE})
    |(?P<quoted>{QUOTED})
    |(?P<iso_date>(?<![\w.])\d{{4}}(?P<dash>[-/])(?:0?[1-9]|1[0-2])(?P=dash)(?:[0-2]?\d|3[01])(?=T\d|(?![\w-]))
        |(?<![\w.])\d{{4}}-(?:0[1-9]|1[0-2])(?![\w-]))
    |(?P<numeric_date>(?<![\w.])\d{{1,2}}(?P<dot>[./])\d{{1,2}}(?P=dot)(?:19|20)\d\d(?!\w))
    |(?P<worded_date>(?<![\w.])(?:
        {_MONTH}{_BLANK}+\d{{1,2}}(?:st|nd|rd|th)?(?:,?{_BLANK}+(?:19|20)\d\d)?(?![\w:])
        |{_MONTH}{_BLANK}+(?:19|20)\d\d(?!\w)
        |\d{{1,2}}(?:st|nd|rd|th)?{_BLANK}+(?:of{_BLANK}+)?{_MONTH}(?:,?{_BLANK}+(?:19|20)\d\d)?(?!\w)))
    |(?P<time>(?:(?<=\dT)|(?<![\w:.]))\d{{1,2}}:\d\d(?::\d\d(?:[.,]\d+)?)?(?:{_BLANK}?[aApP]\.?[mM]\b)?
        (?:Z|[+-]\d\d:?\d\d)?(?![\w:]))
    |(?P<path>(?<![\w./\\<~-])(?:~?/|\.{{1,2}}/)[\w.@+~%{{}}$*-]*[\w}}*](?:/[\w.@+~%{{}}$*-]*[\w}}*])*/?
        |(?<!\w)[A-Za-z]:[\\/][^\s"'`<>|?*:“”‘’«»„]*[\w\\/]
        |(?<![\w./\\-])\.?[\w-]+(?:\.[\w-]+)*\.{_EXTENSION}(?![\w/])(?!\.\w))
    |(?P<slashed>(?<![\w./\\<@+-])@?[\w.+-]*\w(?:/[\w.@+-]*\w)+/?|(?<![\w./\\<@+-])[\w.-]*\w/(?!\S*\w))
    |(?P<address>(?<![\w.+-])[\w.+-]*\w@[\w-]+(?:\.[\w-]+)+)
    |(?P<flag>(?<![^\s`"'(\[,=])(?:--[A-Za-z][\w-]*|-[A-Za-z]{{1,2}}(?![\w-])|-[XD][A-Za-z][\w.:]*))
    |(?P<version>\b{_VERSION_WORD}{_BLANK}+v?\d+(?:\.\d+)*(?:\.[xX*])?{_RELEASE}*(?!\w)
        |(?<![\w.])[vV]\d+(?:\.\d+)*(?:\.[xX*])?{_RELEASE}*(?!\w)
        |(?<![\d.])\d+(?:\.\d+)*\.[xX*](?!\w)
        |(?<![\d.])\d+(?:\.\d+){{2,}}(?:_\d+)?(?:{_RELEASE}+|[a-z])?(?!\w)
        |(?<![\d.])\d+\.\d+(?:{_RELEASE}+|[ab]\d+)(?!\w))
    |(?P<hexadecimal>(?<!\w)0[xX][0-9a-fA-F]+(?!\w))
    |(?P<hash>(?<![\w-])[0-9a-fA-F]{{8}}(?:-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}}(?![\w-])
        |(?<!\w)(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{{7,64}}(?!\w)
        |(?<![\w-])(?:(?i:CVE-\d{{4}}-\d+)|[A-Z][A-Z0-9]+-\d{{3,}})(?!\w))
    |(?P<error_code>(?<![\w-])[A-Z]{{1,2}}\d{{3,6}}(?![\w-]))
    |(?P<identifier>(?<![\w.-])(?:
            [A-Za-z_][\w.]*\(\)
            |(?!(?:[A-Za-z]\.)+[A-Za-z](?!\w))[A-Za-z_][\w-]*(?:\.(?!{_SENTENCE_STARTS}\b)[A-Za-z_]\w*)+)
        |(?<!\w)(?:
            \$\{{?[A-Za-z_]\w*\}}?
            |(?=[\d_]*[A-Za-z])\w*[^\W_]_+[^\W_]\w*|__[a-z]\w*__
            |[A-Za-z0-9]*[a-z][0-9]*[A-Z]\w*|[A-Z]{{3,}}[a-z]{{3,}}\w*
            |[A-Za-z]+\d+[A-Za-z]\w*))
    |(?P<package>(?<![\w/.@-])[a-z][a-z0-9]*(?:-[a-z][a-z0-9]*)+(?![\w/]|-[A-Za-z]))
    |(?P<number>(?:[$€£¥]{_BLANK}?)?(?:(?<![\w)\]])[-−+])?(?<!\d)(?<!\d\.)
        (?:\d{{1,3}}(?:,\d{{3}})+(?!\d)|\d{{1,3}}(?:_\d{{3}})+(?!\w)|\d+)(?:\.\d+)?(?:[eE][-+]?\d{{1,3}}(?!\w))?
        |(?<![\w.])\.\d+)
    |(?P<number_word>(?<![\w-]){_NUMBER_WORD}(?=(?:{_BLANK}|-){_COUNTED}(?!\w)))
    """,
    re.VERBOSE | re.MULTILINE,
)

# --- what they say -----------------------------------------------------------------------------------------------

_UNIT_NAMES = """
    ns nanosecond nanoseconds; us µs μs microsecond microseconds; ms msec msecs millis millisecond milliseconds
    s sec secs second seconds; min m mins minute minutes; h hr hrs hour hours; d day days; w week weeks
    month months; year years yr yrs; % percent pct; x times; px pixel pixels; ° deg degrees; hz; khz; mhz; ghz
    b byte bytes; bit bits; kb; mb; gb; tb; kib; mib; gib; tib; kbps; mbps; gbps
    $ usd dollar dollars; € eur euro euros; £ gbp
"""
_UNITS = {name: names.split()[0] for names in re.split("[;\n]", _UNIT_NAMES) for name in names.split()}
_SECONDS = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "min": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
    "w": Decimal(604800),
}
_THOUSANDS = {"k": Decimal(1000), "K": Decimal(1000), "M": Decimal(1_000_000)}
_ORDINALS = ("st", "nd", "rd", "th")
_AFTER_NUMBER = re.compile(rf"(?P<gap>(?:{_BLANK}|-)?)(?P<name>[^\W\d_]\w{{0,14}}(?!\w)|[%°])")
_BARE_DECIMAL = re.compile(r"\d+\.\d+")
_BARE_NUMBER = re.compile(r"[\d.]+")
# A bare decimal is a version after "branch-", "python", "==", or a name with a capital.
_VERSIONED = re.compile(
    r"(?:[A-Za-z][-_@]?|[=~><!]=|[A-Z]\w*[ ]|\b(?:python|java|node|jdk|ruby|go|rust|php|postgres|mysql|spark)[ ])\Z"
)
# Parts of everyday compounds, which are not names of packages.
_EVERYDAY = frozenset(
    _words("""
    able add agent all already and app as auto aware back base based best bit block bottom built bug by call case
    catch check client co code command core cost counter cross cut data date day de dead deep default depth digit
    double down drop dual e edge element email empty end error even ever fact fail fall family fast file fine first
    fit fix float follow for free friendly full future gap hand hard head heap heavy high hit hot if image in inner
    input issue item key kind known last late layer left length less letter level life like line list live load
    local lock log long look low machine mail main make man mean memory micro mid mini mis mixed mode more multi n
    name nested new next no node non null odd of off old on one only op open or out outer output over pair part
    party pass per place plain plan point poor pop post pre prime pro problem process quality query quick re read
    real reply right root round row run safe schema screen second secret self semi sensitive server set shared short
    shot side sign single size small so some source space specific stage stand start state status step store string
    sub super task term test text the thin third thread three through tie time to token tool top trade trial turn
    two type un under unit up user value version via walk way web well wide wise word work world wrap write yet zero
    """)
)
_JOINING = frozenset(_words("a an and as at by for from in of off on or out the to up with"))
_EVERYDAY_ENDING = re.compile(r"(?:ing|ed|ly|able|ible|ive|ent|ant|al|ous|ful|ness|tion|ary)$")
_ROOTS = frozenset(
    _words("src lib libs test tests docs doc app apps bin pkg cmd etc usr var opt scripts config packages")
)
_SUFFIXED = re.compile(r"\.[A-Za-z]\w*$")


def literals(text: str) -> frozenset[Literal]:
    """All literals of ``text``.

    Kinds: number, version, date, path, url, identifier, error_code, quoted, negation. Units are normalised (``30 s`` =
    ``30 seconds`` = ``30s``, ``1,000`` = ``1000``, ``24 hours`` = ``1 day``), dates are ISO where they are unambiguous,
    letter case counts for nothing. A bare name and integer (``CentOS 8``) is a number; an ordinal is its number. ``not
    only``, ``don't forget`` and their like are no negations.
    """
    return frozenset((*_scan(text), *_negations(text)))


_literals = lru_cache(maxsize=1024)(literals)


def _scan(text: str, base: int = 0) -> Iterator[Literal]:
    for match in _LITERAL.finditer(text):
        if match.lastgroup:
            yield from _READERS[match.lastgroup](match, base)


def _made(kind: str, value: str, match: re.Match[str], base: int) -> Literal:
    return Literal(kind, value, match[0], base + match.start())


def _read_url(match: re.Match[str], base: int) -> Iterator[Literal]:
    yield _made("url", match[0].casefold().rstrip("/"), match, base)


def _read_wrapped(match: re.Match[str], base: int) -> Iterator[Literal]:
    """Code and quotations: the wrapping adds nothing to what is a literal by itself, else both count."""
    code = match.lastgroup == "code"
    width = len(match["ticks"]) if code else 1
    inner = match[0][width:-width]
    found = list(_scan(inner, base + match.start() + width))
    if not (len(found) == 1 and found[0].text == inner.strip()):
        yield _made("identifier" if code else "quoted", normalize_text(inner), match, base)
    yield from found


def _read_iso_date(match: re.Match[str], base: int) -> Iterator[Literal]:
    yield _made("date", "-".join(part.zfill(2) for part in re.split("[-/]", match[0])), match, base)


def _read_numeric_date(match: re.Match[str], base: int) -> Iterator[Literal]:
    """``05.03.2024`` and ``13/3/2024`` are read, ``3/5/2024`` is one day in Europe and another in America."""
    day, month, year = re.split("[./]", match[0])
    if "/" in match[0] and int(month) > 12:
        day, month = month, day
    ambiguous = "/" in match[0] and int(day) <= 12
    yield _made("date", match[0] if ambiguous else f"{year}-{month:0>2}-{day:0>2}", match, base)


def _read_worded_date(match: re.Match[str], base: int) -> Iterator[Literal]:
    name = re.search(_MONTH, match[0])
    month = _MONTHS.index(name[0][:3].lower()) + 1 if name else 0
    numbers = sorted(re.findall(r"\d+", match[0]), key=len, reverse=True)
    year = [number for number in numbers if len(number) == 4]
    day = [f"{number:0>2}" for number in numbers if len(number) < 4]
    yield _made("date", "-".join((*year, f"{month:02}", *day)), match, base)


def _read_time(match: re.Match[str], base: int) -> Iterator[Literal]:
    clock = re.sub(r"\s|z$|(?<=[ap])\.", "", match[0].casefold())
    yield _made("date", "0" + clock if clock[1] == ":" else clock, match, base)


def _read_path(match: re.Match[str], base: int) -> Iterator[Literal]:
    path = match[0].replace("\\", "/").casefold().removeprefix("./")
    yield _made("path", path.rstrip("/") or path, match, base)


def _read_slashed(match: re.Match[str], base: int) -> Iterator[Literal]:
    """``src/store/rows`` is a path, ``add/remove`` and ``30s/60s`` are alternatives."""
    parts = match[0].split("/")
    is_path = parts[0].casefold() in _ROOTS or not parts[-1] or _SUFFIXED.search(parts[-1]) or parts[0].startswith("@")
    if (is_path or len(parts) > 2) and re.search("[A-Za-z]", match[0]):
        yield from _read_path(match, base)
        return
    start = base + match.start()
    for part in parts:
        yield from _scan(part, start)
        start += len(part) + 1


def _read_flag(match: re.Match[str], base: int) -> Iterator[Literal]:
    # -v and -V are two switches, --Flag and --flag hardly are.
    yield _made("identifier", match[0].casefold() if match[0].startswith("--") else match[0], match, base)


def _read_version(match: re.Match[str], base: int) -> Iterator[Literal]:
    version = re.sub(r"^\D*", "", match[0].casefold()).replace("*", "x")
    yield _made("version", re.sub(r"[-_.+]+(?=[a-wyz])|(?<=^\d)\.0$", "", version), match, base)


def _read_identifier(match: re.Match[str], base: int) -> Iterator[Literal]:
    value = match[0].casefold().strip("_${}").removesuffix("()")
    if value not in _UNITS:
        yield _made("identifier", value, match, base)


def _read_package(match: re.Match[str], base: int) -> Iterator[Literal]:
    first, *_, last = parts = match[0].split("-")
    everyday = {first, last} & _EVERYDAY or set(parts) & _JOINING
    if not everyday and not any(_EVERYDAY_ENDING.search(part) for part in (first, last)):
        yield _made("identifier", match[0], match, base)


def _read_error_code(match: re.Match[str], base: int) -> Iterator[Literal]:
    yield _made("error_code", match[0].casefold(), match, base)


def _read_hexadecimal(match: re.Match[str], base: int) -> Iterator[Literal]:
    yield _made("number", f"0x{int(match[0], 16):x}", match, base)


def _read_number(match: re.Match[str], base: int) -> Iterator[Literal]:
    written = re.sub(r"[\s,_]", "", match[0]).replace("−", "-")
    if written[0] in "$€£¥":
        yield _made("number", f"{_plain(Decimal(written[1:]))} {written[0]}", match, base)
    else:
        yield _measured(written, match, base)


def _read_number_word(match: re.Match[str], base: int) -> Iterator[Literal]:
    yield _measured(str(_NUMBER_WORDS.index(match[0].casefold())), match, base)


def _measured(written: str, match: re.Match[str], base: int) -> Literal:
    """The number with the unit that follows it, if one does."""
    text, start, end = match.string, match.start(), match.end()
    after = _AFTER_NUMBER.match(text, end)
    value = _with_unit(Decimal(written), after["gap"], after["name"]) if after else None
    if after and value:
        return Literal("number", value, text[start : after.end()], base + start)
    versioned = _BARE_DECIMAL.fullmatch(written) and _VERSIONED.search(text[max(0, start - 24) : start])
    return _made("version" if versioned else "number", _unitless(written), match, base)


def _unitless(written: str) -> str:
    """``2.0`` is 2 and ``0.50`` is 0.5, but ``9.10`` may be a version that nothing marks and is not 9.1."""
    whole, _, fraction = written.partition(".")
    keeps_zeros = whole.strip("+-0") and fraction.strip("0") and fraction.isdigit()
    return written if keeps_zeros else _plain(Decimal(written))


def _with_unit(number: Decimal, gap: str, name: str) -> str | None:
    unit = _UNITS.get(name) or _UNITS.get(name.casefold() if len(name) > 1 else "")
    if unit:
        return _quantity(number, unit)
    if gap:
        return None
    if name in _THOUSANDS:
        return _plain(number * _THOUSANDS[name])
    return _plain(number) + ("" if name.casefold() in _ORDINALS else name.casefold())


def _quantity(number: Decimal, unit: str) -> str:
    """Durations in seconds, from two minutes on in the largest unit that they fill a whole number of times."""
    if unit not in _SECONDS:
        return f"{_plain(number)} {unit}"
    seconds = number * _SECONDS[unit]
    larger = (name for name in ("d", "h", "min") if abs(seconds) >= 120 and seconds % _SECONDS[name] == 0)
    unit = next(larger, "s")
    return f"{_plain(seconds / _SECONDS[unit])} {unit}"


def _plain(number: Decimal) -> str:
    # Beyond 28 digits the context would round, and two long numbers would become one.
    return str(number) if len(number.as_tuple().digits) > 28 else format(number.normalize(), "f")


_READERS: dict[str, Callable[[re.Match[str], int], Iterable[Literal]]] = {
    "url": _read_url,
    "code": _read_wrapped,
    "quoted": _read_wrapped,
    "iso_date": _read_iso_date,
    "numeric_date": _read_numeric_date,
    "worded_date": _read_worded_date,
    "time": _read_time,
    "path": _read_path,
    "slashed": _read_slashed,
    "address": _read_identifier,
    "flag": _read_flag,
    "version": _read_version,
    "hexadecimal": _read_hexadecimal,
    "hash": _read_identifier,
    "error_code": _read_error_code,
    "identifier": _read_identifier,
    "package": _read_package,
    "number": _read_number,
    "number_word": _read_number_word,
}


# --- what is denied ----------------------------------------------------------------------------------------------

_NEGATION = re.compile(
    rf"""(?<![\w-])(?:
        (?P<neutral>
            (?:do|does|did|must|should|can)(?:{_BLANK}?not|n['’]?t){_BLANK}(?:forget|hesitate)
            |(?:never|cannot){_BLANK}(?:forget|hesitate)
            |not{_BLANK}(?:only|just|merely|simply)
            |(?:whether{_BLANK}or|why){_BLANK}not
            |or{_BLANK}not(?={_BLANK}*(?:[.,;:!?)]|$))
            |not?{_BLANK}(?:more|less|fewer|later|earlier|longer|sooner){_BLANK}than
            |(?:do|does|did)(?:{_BLANK}?not|n['’]?t){_BLANK}know{_BLANK}(?:if|how|what|whether|why)
            |no{_BLANK}(?:doubt|problem|matter|wonder)
            |nothing{_BLANK}but)
        |not|never|none|nothing|nobody|nowhere|neither|cannot|without|no(?!\.?{_BLANK}?\d)
        |(?:do|does|did|is|are|was|were|has|have|had|ca|wo|should|would|could|must|need|might)n['’]?t
        |(?:unable|yet){_BLANK}to|fail(?:s|ed|ing|ure)?{_BLANK}to|refus(?:es?|ed|ing){_BLANK}to
        |avoid(?:s|ed|ing)?|lack(?:s|ed|ing)?|instead{_BLANK}of|rather{_BLANK}than
        |stop(?:s|ped|ping)?(?={_BLANK}\w+ing\b)
    )(?![\w-])|(?<![\w-])non-(?=\w)""",
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)


def _negations(text: str) -> Iterator[Literal]:
    for match in _NEGATION.finditer(text):
        if not match["neutral"]:
            yield Literal("negation", "not", match[0], match.start())


# Each line is a scale: words of one end / words of the other.
_OPPOSITES = """
    work succeed pass success / fail break failure
    enable activate / disable deactivate
    add insert / remove delete drop removal
    include / exclude
    increase raise grow / decrease reduce lower shrink
    allow permit accept / deny forbid reject block prevent disallow
    before / after
    above / below
    more / less fewer
    faster / slower
    higher / lower
    start / stop
    open / close
    up / down
    true / false
    first / last
    read / write
    left / right
    top / bottom
    old / new
    inside / outside
    show / hide
    lock / unlock
    install / uninstall
    connect / disconnect
    upload / download
    import / export
    encode / decode
    encrypt / decrypt
    upgrade / downgrade
    minimum / maximum
    valid / invalid
    correct correctly / incorrect incorrectly wrong wrongly
    safe / unsafe
    support supported / unsupported
    available / unavailable
    possible / impossible
    required necessary mandatory / optional unnecessary
    stable / unstable
    synchronous sync / asynchronous async
    public / private
    ascending / descending
"""

_UNREMARKABLE = frozenset(
    _words("""
    a about again all also always am an and any are as at be because been being both but by can could did do does
    doing each ever few for from further had has have having he her here him his how i if in into is it its itself
    just longer may me might most must my of only or other our over own same shall she should so some such than that
    the their them then there these they this those to too us very via was we were what when
    where which while who why will with would you your
    """)
)
_CLAUSE_END = re.compile(
    r"[.!?;:,](?=\s|$)|[()\n—–]|\s-+\s|(?=\b(?:instead of|rather than)\b)"
    r"|\b(?:and|but|because|while|whereas|although|though|so|then|which|since|or|if|when)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_](?:[\w.'’+-]*[^\W_])?")
# "turn caching off" and "turn off caching": the only uses of on and off that are opposites.
_SWITCH = re.compile(r"\b(?:turn|switch)(?:s|es|ed|ing)?((?:\s+\w+){0,3}?)\s+(on|off)\b", re.IGNORECASE)
# Dice overlap from which two clauses speak of the same: near-misses share nearly all, other clauses about a half.
_SAME_TOPIC = 0.65
# A word in more clauses than this finds no pairs, or two pasted logs would make millions.
_RARE = 30
_ENDING = re.compile(r"(?<=\w{3})(?:ing|ed|es|s|e)$")
_DOUBLED = re.compile(r"(\w)\1$")


@dataclass(frozen=True)
class _Clause:
    """Part of a sentence: its words by their stems, where opposites are one word, and which of them it denies."""

    text: str = field(compare=False)
    words: frozenset[str]
    denied: bool
    low: frozenset[str]
    high: frozenset[str]

    def denies(self, shared: frozenset[str]) -> bool:
        """Whether negations and the low ends of the scales in ``shared`` add up to a denial."""
        return (self.denied + len((self.low - self.high) & shared)) % 2 == 1


def _stem(word: str) -> str:
    if word in ("uses", "used", "using"):
        return "use"
    stem = _DOUBLED.sub(r"\1", _ENDING.sub("", word))
    return stem[:-1] + "i" if len(stem) > 3 and stem.endswith("y") else stem


def _scales() -> dict[str, tuple[str, bool]]:
    ends = [line.split("/") for line in _OPPOSITES.strip().splitlines()]
    return {
        _stem(word): (high.split()[0], side is low)
        for high, low in ends
        for side in (high, low)
        for word in side.split()
    }


_SCALES = _scales()


@lru_cache(maxsize=1024)
def _clauses(text: str) -> tuple[_Clause, ...]:
    clauses = dict.fromkeys(_clause(part) for part in _CLAUSE_END.split(text))
    return tuple(clause for clause in clauses if clause.words)


def _clause(text: str) -> _Clause:
    denied = sum(not match["neutral"] for match in _NEGATION.finditer(text)) % 2 == 1
    plain = _SWITCH.sub(lambda match: match[1] + (" enable" if match[2].casefold() == "on" else " disable"), text)
    words = (word.casefold() for word in _WORD.findall(_NEGATION.sub(" ", plain)))
    stems = {_stem(word) for word in words if word not in _UNREMARKABLE}
    ends = {_SCALES[stem] for stem in stems if stem in _SCALES}
    low = frozenset(scale for scale, is_low in ends if is_low)
    high = frozenset(scale for scale, is_low in ends if not is_low)
    return _Clause(text.strip(), frozenset(stems - _SCALES.keys()) | low | high, denied, low, high)


def _polarity_conflicts(a: str, b: str) -> Iterator[Conflict]:
    """Clauses that are each other's best match and of which one denies what the other says."""
    ours, theirs = _clauses(a), _clauses(b)
    if not any(clause.denied or clause.low for clause in (*ours, *theirs)):
        return
    matched = _matched(ours, theirs)
    disputed = [(x, y) for x, y in matched if _differ(ours[x], theirs[y])]
    agreed = set(matched) - set(disputed)
    settled = {x for x, _ in agreed}, {y for _, y in agreed}
    for x, y in disputed:
        if x not in settled[0] and y not in settled[1]:
            yield Conflict("polarity", (ours[x].text,), (theirs[y].text,))


def _differ(a: _Clause, b: _Clause) -> bool:
    shared = a.words & b.words
    return a.denies(shared) != b.denies(shared)


def _matched(ours: tuple[_Clause, ...], theirs: tuple[_Clause, ...]) -> list[tuple[int, int]]:
    """Pairs of positions whose Dice overlap is at least _SAME_TOPIC and, for both, the best they have."""
    # One shared word says little, except about texts that have no more.
    enough = min(2, *(len(frozenset().union(*(clause.words for clause in side))) for side in (ours, theirs)))
    overlap: dict[tuple[int, int], float] = {}
    for x, y in sorted(_candidates(ours, theirs)):
        shared = len(ours[x].words & theirs[y].words)
        dice = 2 * shared / (len(ours[x].words) + len(theirs[y].words))
        if shared >= enough and dice >= _SAME_TOPIC:
            overlap[x, y] = dice
    best_ours: dict[int, float] = {}
    best_theirs: dict[int, float] = {}
    for (x, y), dice in overlap.items():
        best_ours[x] = max(dice, best_ours.get(x, 0.0))
        best_theirs[y] = max(dice, best_theirs.get(y, 0.0))
    return [(x, y) for (x, y), dice in overlap.items() if dice == best_ours[x] == best_theirs[y]]


def _candidates(ours: tuple[_Clause, ...], theirs: tuple[_Clause, ...]) -> set[tuple[int, int]]:
    """Pairs of positions whose clauses share a word that is rare on both sides."""
    places = _places(ours), _places(theirs)
    rare = (word for word in places[0].keys() & places[1].keys() if all(len(side[word]) <= _RARE for side in places))
    return {(x, y) for word in rare for x in places[0][word] for y in places[1][word]}


def _places(clauses: tuple[_Clause, ...]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for position, clause in enumerate(clauses):
        for word in clause.words:
            places.setdefault(word, []).append(position)
    return places


# --- what contradicts --------------------------------------------------------------------------------------------

_KINDS = ("number", "version", "date", "path", "url", "identifier", "error_code", "quoted")
_WORDED_KINDS = frozenset(("path", "url", "identifier", "error_code", "quoted"))


def stands_in(literal: Literal, text: str) -> bool:
    """Whether ``text`` holds the literal, be it marked up differently: ``a.py`` stands in "see src/a.py"."""
    if literal.kind == "negation":
        return literal in _literals(text)
    values = _values(text)
    if literal.value in values:
        return True
    if literal.kind == "date":
        return any(value.endswith("-" + literal.value) for value in values)
    if literal.kind not in _WORDED_KINDS or literal.value not in _normalized(text):
        return False
    return re.search(rf"(?<![\w-]){re.escape(literal.value)}(?![\w-]|[./:]\w)", _normalized(text)) is not None


def conflicts(a: str, b: str) -> tuple[Conflict, ...]:
    """Why two texts must not become one without a person; empty if nothing speaks against it.

    A kind conflicts when each text has a literal of it that does not stand in the other: what only one side adds is no
    contradiction. Polarity conflicts when matching clauses differ in the parity of their negations, or in which of two
    opposites (enable, disable) they name. Symmetric but for the sides' order.
    """
    ours, theirs = _lacking(a, b), _lacking(b, a)
    found = [Conflict(kind, ours[kind], theirs[kind]) for kind in _KINDS if kind in ours and kind in theirs]
    return (*(found or _version_against_number(ours, theirs)), *_polarity_conflicts(a, b))


def _lacking(a: str, b: str) -> dict[str, tuple[str, ...]]:
    """By kind, the sorted values of ``a`` that do not stand in ``b``."""
    found: dict[str, list[str]] = {}
    for literal in sorted(_literals(a), key=lambda literal: literal.value):
        if literal.kind in _KINDS and not stands_in(literal, b):
            found.setdefault(literal.kind, []).append(literal.value)
    return {kind: tuple(values) for kind, values in found.items()}


def _version_against_number(ours: dict[str, tuple[str, ...]], theirs: dict[str, tuple[str, ...]]) -> list[Conflict]:
    """``CentOS 7.9`` and ``CentOS 8``: the second does not look like a version until one sees the first."""
    sides = [
        (side.get("version", ()), tuple(filter(_BARE_NUMBER.fullmatch, side.get("number", ()))))
        for side in (ours, theirs)
    ]
    (our_versions, our_numbers), (their_versions, their_numbers) = sides
    if (our_versions and their_numbers) or (our_numbers and their_versions):
        return [Conflict("version", our_versions or our_numbers, their_versions or their_numbers)]
    return []


@lru_cache(maxsize=1024)
def _values(text: str) -> frozenset[str]:
    return frozenset(literal.value for literal in _literals(text))


_normalized = lru_cache(maxsize=1024)(normalize_text)
