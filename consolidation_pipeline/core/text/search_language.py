"""Text search configuration of Postgres for the language that a text is written in."""

from consolidation_pipeline.core.differences.language_detection import detect_language

_CONFIGURATIONS = {"en": "english", "de": "german", "es": "spanish", "fr": "french", "zh": "simple", "ja": "simple"}
# Characters of a text that are read: the language of a longer one is told by its beginning.
_READ_CHARS = 400


def detect_configuration(text: str) -> str:
    """Return the text search configuration of the language of a text.

    Of an unknown language it is ``english`` if the text has no other letters than English has, else ``simple``.
    """
    text = text[:_READ_CHARS]
    code = detect_language(text)
    return _CONFIGURATIONS[code] if code else "english" if text.isascii() else "simple"
