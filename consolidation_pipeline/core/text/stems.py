"""Stems of English words."""

import re

_ENDING = re.compile(r"(?<=\w{3})(?:ing|ed|es|s|e)$")
_DOUBLED = re.compile(r"(\w)\1$")


def stem(word: str) -> str:
    """Return ``word``, in lower case, without its ending: ``enabled`` and ``enables`` become one."""
    if word in ("uses", "used", "using"):
        return "use"
    bare = _DOUBLED.sub(r"\1", _ENDING.sub("", word))
    return bare[:-1] + "i" if len(bare) > 3 and bare.endswith("y") else bare
