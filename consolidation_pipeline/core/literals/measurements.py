"""Numbers and their units in one spelling: ``30 s`` = ``30 seconds``, ``24 hours`` = ``1 d``, ``1,000`` = ``1000``."""

import re
from decimal import Decimal

from consolidation_pipeline.core.literals.literal_patterns import BLANK

_UNIT_NAMES = """
    ns nanosecond nanoseconds; us µs μs microsecond microseconds; ms msec msecs millis millisecond milliseconds
    s sec secs second seconds; min m mins minute minutes; h hr hrs hour hours; d day days; w week weeks
    month months; year years yr yrs; % percent pct; x times; px pixel pixels; ° deg degrees
    hz hertz; khz kilohertz; mhz megahertz; ghz gigahertz; watt watts W; kw kilowatt kilowatts; volt volts V
    b byte bytes; bit bits; kb kilobyte kilobytes; mb megabyte megabytes; gb gigabyte gigabytes; tb terabyte terabytes
    kib; mib; gib; tib; kbps; mbps; gbps; $ usd dollar dollars; € eur euro euros; £ gbp pound pounds
    nm nanometre nanometres nanometer nanometers; mm millimetre millimetres millimeter millimeters
    cm centimetre centimetres centimeter centimeters; metre metres meter meters
    km kilometre kilometres kilometer kilometers; mile miles mi; foot feet ft; inch inches
    mg milligram milligrams; gram grams gramme grammes g; kg kilogram kilograms kilo kilos; lb lbs; ounce ounces oz
    tonne tonnes t; ml millilitre millilitres milliliter milliliters; litre litres liter liters l L
"""
UNITS = {"per cent": "%"} | {
    name: names.split()[0] for names in re.split("[;\n]", _UNIT_NAMES) for name in names.split()
}
_BITS = {"Kb": "kbit", "Mb": "mbit", "Gb": "gbit"}  # 40 Mb are 5 MB
_TEMPERATURE = r"(?i:(?:°|(?:degrees?|grad)\b){BLANK}?(?P<scale>c|f|celsius|fahrenheit)\b)".replace("{BLANK}", BLANK)
# The unit of which an amount is for each one: "60 km/h", "5 litres a minute".
_EACH = re.compile(
    rf"/(?P<unit>[^\W\d_²³]{{1,9}})(?P<power>[²³23]?)(?![\w/])"
    rf"|{BLANK}(?:per|an?){BLANK}(?P<time>second|minute|hour)\b(?! time)"
)
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
_POWERS = str.maketrans("23", "²³")
_COUNTS = frozenset("x % $ € £".split())
_SIZES = frozenset("b kb mb gb tb kib mib gib tib".split())
THOUSANDS = {"k": Decimal(1000), "K": Decimal(1000), "M": Decimal(1_000_000)}
_ORDINALS = ("st", "nd", "rd", "th")
# Letters of scripts without blanks: the word after "30天后" is not known to be a unit.
_UNSPACED = "\u3005-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
AFTER_NUMBER = re.compile(
    rf"(?P<gap>(?:{BLANK}|-)?)"
    rf"(?P<name>per cent\b|{_TEMPERATURE}|[^\W\d_{_UNSPACED}][^\W{_UNSPACED}]{{0,14}}(?![^\W{_UNSPACED}])|[%°]"
    r"|[€£$](?![\w{(]))"
)


def unitless(written: str) -> str:
    """``2.0`` is 2 and ``0.50`` is 0.5, but ``9.10`` may be a version that nothing marks and is not 9.1."""
    whole, _, fraction = written.partition(".")
    keeps_zeros = whole.strip("+-0") and fraction.strip("0") and fraction.isdigit()
    return written if keeps_zeros else plain(Decimal(written))


def name_quantity(unit: str) -> str:
    """Return what a unit measures: ``time`` or ``data``, or the unit itself."""
    return "time" if unit in _SECONDS else "data" if unit in _SIZES else unit


def with_unit(number: Decimal, gap: str, name: str) -> str | None:
    """Return the number with its unit, or None if ``name`` is the next word, behind a ``gap``."""
    if temperature := re.fullmatch(_TEMPERATURE, name):
        return f"{plain(number)} °{temperature['scale'][0].casefold()}"
    unit = "metre" if name == "m" and gap else _find_unit(name)
    if unit:
        return _quantity(number, unit)
    if gap:
        return None
    if name in THOUSANDS:
        return plain(number * THOUSANDS[name])
    return plain(number) + ("" if name.casefold() in _ORDINALS else name.casefold())


def read_rate(measured: str, text: str, end: int) -> tuple[str, int]:
    """Return an amount that ends at ``end`` with the unit of which it is for each one, and where that ends: 60 km/h.

    What costs "30 € a day" or takes "2 hours a day" is told with words.
    """
    unit, each = measured.rpartition(" ")[2], _EACH.match(text, end)
    if not each or unit in _COUNTS or (each["time"] and name_quantity(unit) == "time"):
        return measured, end
    name = each["time"] or each["unit"]
    of = "metre" if name == "m" else _find_unit(name)
    return (f"{measured}/{of}{(each['power'] or '').translate(_POWERS)}", each.end()) if of else (measured, end)


def _find_unit(name: str) -> str | None:
    return _BITS.get(name) or UNITS.get(name) or UNITS.get(name.casefold() if len(name) > 1 else "")


def _quantity(number: Decimal, unit: str) -> str:
    """Durations in seconds, from two minutes on in the largest unit that they fill a whole number of times."""
    if unit not in _SECONDS:
        return f"{plain(number)} {unit}"
    seconds = number * _SECONDS[unit]
    larger = (name for name in ("d", "h", "min") if abs(seconds) >= 120 and seconds % _SECONDS[name] == 0)
    unit = next(larger, "s")
    return f"{plain(seconds / _SECONDS[unit])} {unit}"


def plain(number: Decimal) -> str:
    """Return the number without exponent and closing zeros."""
    # Beyond 28 digits the context would round, and two long numbers would become one.
    return str(number) if len(number.as_tuple().digits) > 28 else format(number.normalize(), "f")
