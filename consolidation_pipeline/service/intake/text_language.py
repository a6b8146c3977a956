"""Language of a new memory that names none: that of the project, or the one that its text is written in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from consolidation_pipeline.core.differences.language import detect_language
from consolidation_pipeline.options import parse_options

_CONFIGURATIONS = {"en": "english", "de": "german", "es": "spanish", "fr": "french", "zh": "simple", "ja": "simple"}
# Characters of a text that are read: the language of a longer one is told by its beginning.
_READ_CHARS = 400


def choose_language(config: Mapping[str, Any]) -> Callable[[str], str]:
    """Return the function that tells the text search configuration of a text by a project's option ``language``."""
    option = parse_options(config).language
    return detect_configuration if option == "auto" else partial(_take, option)


def detect_configuration(text: str) -> str:
    """Return the text search configuration of the language of a text.

    Of an unknown language it is ``english`` if the text has no other letters than English has, else ``simple``.
    """
    text = text[:_READ_CHARS]
    code = detect_language(text)
    return _CONFIGURATIONS[code] if code else "english" if text.isascii() else "simple"


def _take(language: str, _text: str) -> str:
    return language
