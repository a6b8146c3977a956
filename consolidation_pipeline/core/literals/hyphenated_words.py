"""Hyphenated words: tells everyday language from names."""

import re
from collections.abc import Sequence

# Parts of everyday compounds, which are not names of packages.
_EVERYDAY = frozenset(
    """
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
    """.split()
)
# What is named by a compound whatever comes first, unless that only says what kind of thing it is.
_THINGS = frozenset(
    """
    api app backend cli client common core exporter frontend gateway module operator plugin project proxy scheduler sdk
    server service sql tools ui utils worker
    """.split()
)
_QUALIFIERS = frozenset(
    """
    client co cross double dual full inter intra micro mid multi native non open own per re self single sub super third
    web
    """.split()
)
_JOINING = frozenset("a an and as at by for from in of off on or out the to up with".split())
_EVERYDAY_ENDING = re.compile(r"(?:ing|ed|ly|able|ible|ive|ent|ant|al|ous|ful|ness|tion|ary)$")


def is_everyday(parts: Sequence[str]) -> bool:
    """Return True if a compound (its lower-case parts) is everyday language: ``well-known``, not ``hadoop-tools``."""
    if parts[-1] in _THINGS and _JOINING.isdisjoint(parts):
        return parts[0] in _QUALIFIERS
    ends = (parts[0], parts[-1])
    if not _EVERYDAY.isdisjoint(ends) or not _JOINING.isdisjoint(parts):
        return True
    return any(_EVERYDAY_ENDING.search(part) for part in ends)
