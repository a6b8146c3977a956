"""Regular expression that finds literals, and its parts."""

import re

NUMBER_WORDS = tuple("zero one two three four five six seven eight nine ten eleven twelve".split())
MONTHS = tuple("jan feb mar apr may jun jul aug sep oct nov dec".split())
# "may" and "march" are also verbs: these two need their capital.
MONTH = (
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
BLANK = r"[^\S\n]"
# Also what sentence splitting must not cut; see ``sentence_splitter``.
QUOTED = (
    r'"(?<!\w")(?=[^\s"])[^"\n]*(?<=\S)"(?!\w)|“[^“”\n]+”|‘[^‘’\n]+’(?!\w)|«[^«»\n]+»|„[^„“”\n]+[“”]'
    r"|'(?<![\w'’]')(?=[^\s'])[^'\n]*(?<=\S)'(?!\w)"
)
CODE = r"(?<!`)(?P<ticks>`{1,3})(?!`)[^`\n]+(?P=ticks)(?!`)"

_SENTENCE_STARTS = "(?:The|This|It|In|We|I|If|When|And|But|So|A)"  # "failed.The" lacks a blank, it is no name
_NUMBER_WORD = f"(?i:{'|'.join(NUMBER_WORDS)})"
_VERSION_WORD = r"(?i:versions?|ver\.?|release)"


def _telling(words: tuple[str, ...]) -> str:
    """Any of the words, capitalised or not, sorted by first letter: one look at that dismisses nearly all others."""
    rests: dict[str, list[str]] = {}
    for word in words:
        rests.setdefault(word[0], []).append(word[1:])
    return "|".join(f"[{letter}{letter.upper()}](?:{'|'.join(ends)})" for letter, ends in rests.items())


_MONTH_NAMES = tuple(
    "january february march april may june july august september october november december sept".split()
)
# Words that may be part of a literal; all other words of plain letters are passed over.
_TELLING = _telling((*NUMBER_WORDS, *MONTHS, *_MONTH_NAMES, "ver", "version", "versions", "release"))
_PLAIN_WORD = (
    rf"(?<!\w)(?:(?!(?:{_TELLING})\b)[A-Z]?[a-z]++(?:['’][a-z]{{1,2}}+)?+|(?!(?i:{_TELLING})\b)[A-Z]++)"
    r"(?=[\s,;)!?]|[.:](?:\s|$)|$)"
)
_AFTER_WORD = rf"(?:[,;)!?]|[.:](?=\s|$))*+{BLANK}*+"

# One alternation, most specific first: a stretch of text is claimed once. The first lines are there for speed, and
# because the number of a list's item says nothing. No part may start inside what it can itself run over, else a long
# row of "a-a-a-" takes quadratic time: hence the length of a scheme and the characters before an address.
LITERAL = re.compile(
    rf"""
    (?:{_PLAIN_WORD}{_AFTER_WORD})++
    |[^\w\n"“‘'«„`~/.@+−$€£¥-]++
    |\n\s*+(?:\d{{1,3}}[.)](?=\s|$))?+|\A\s*+\d{{1,3}}[.)](?=\s|$)
    |(?P<url>(?=[A-Za-z])(?<!\w)(?:[A-Za-z][A-Za-z0-9+.-]{{1,19}}://|www\.)[^\s<>"`“”‘’«»„]*[^\s<>"`“”‘’«»„.,;:!?)\]}}'*_~|])
    |(?P<code>{CODE})
    |(?P<quoted>{QUOTED})
    |(?P<iso_date>\d(?<![\w.].)\d{{3}}(?P<dash>[-/])(?:0?[1-9]|1[0-2])(?P=dash)(?:[0-2]?\d|3[01])(?=T\d|(?![\w-]))
        |\d(?<![\w.].)\d{{3}}-(?:0[1-9]|1[0-2])(?![\w-]))
    |(?P<numeric_date>\d(?<![\w.].)\d?(?P<dot>[./])\d{{1,2}}(?P=dot)(?:19|20)\d\d(?!\w))
    |(?P<worded_date>(?<![\w.])(?:
        {MONTH}{BLANK}+\d{{1,2}}(?:st|nd|rd|th)?(?:,?{BLANK}+(?:19|20)\d\d)?(?![\w:])
        |{MONTH}{BLANK}+(?:19|20)\d\d(?!\w)
        |\d{{1,2}}(?:st|nd|rd|th)?{BLANK}+(?:of{BLANK}+)?{MONTH}(?:,?{BLANK}+(?:19|20)\d\d)?(?!\w)))
    |(?P<time>\d(?:(?<=\dT.)|(?<![\w:.].))\d?:\d\d(?::\d\d(?:[.,]\d+)?)?(?:{BLANK}?[aApP]\.?[mM]\b)?
        (?:Z|[+-]\d\d:?\d\d)?(?![\w:])
        |(?<![\w:.$€£¥])(?:1[0-2]|0?[1-9]){BLANK}?(?:[aApP][mM]\b|[aApP]\.[mM]\.))
    |(?P<path>(?<![\w./\\<~-])(?:~?/|\.{{1,2}}/)[\w.@+~%{{}}$*-]*[\w}}*](?:/[\w.@+~%{{}}$*-]*[\w}}*])*/?
        |(?<!\w)[A-Za-z]:[\\/][^\s"'`<>|?*:“”‘’«»„]*[\w\\/]
        |(?<![\w./\\-])\.?[\w-]+(?:\.[\w-]+)*\.{_EXTENSION}(?![\w/])(?!\.\w))
    |(?P<slashed>[\w@.+-](?<![\w./\\<@+-].)[\w.+-]*+(?<=\w)(?:/[\w.@+-]*\w)+/?|[\w.-](?<![\w./\\<@+-].)[\w.-]*+(?<=\w)/(?!\S*\w))
    |(?P<address>[\w.+-](?<![\w.+-].)[\w.+-]*+(?<=\w)@[\w-]+(?:\.[\w-]+)+)
    |(?P<flag>(?<![^\s`"'(\[,=])(?:--[A-Za-z][\w-]*|-[A-Za-z]{{1,2}}(?![\w-])|-[XD][A-Za-z][\w.:]*))
    |(?P<version>\b{_VERSION_WORD}{BLANK}+v?\d+(?:\.\d+)*(?:\.[xX*])?{_RELEASE}*(?!\w)
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
    |(?P<number>(?:[$€£¥]{BLANK}?)?(?:(?<![\w)\]])[-−+])?(?<!\d)(?<!\d\.)
        (?:\d{{1,3}}(?:,\d{{3}})+(?!\d)|\d{{1,3}}(?:_\d{{3}})+(?!\w)|\d+)(?:\.\d+)?(?:[eE][-+]?\d{{1,3}}(?!\w))?
        |(?<![\w.])\.\d+)
    |(?P<number_word>(?<![\w-]){_NUMBER_WORD}(?=(?:{BLANK}|-){_COUNTED}(?!\w)))
    |[^\W\d]++|-++(?!\d)
    """,
    re.VERBOSE | re.MULTILINE,
)
