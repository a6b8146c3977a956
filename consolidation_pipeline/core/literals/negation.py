"""Negations in a text."""

import re
from collections.abc import Iterator

from consolidation_pipeline.core.case_blind import ignore_case
from consolidation_pipeline.core.literals.literal_patterns import BLANK

_NEGATION = ignore_case(
    rf"""(?<![\w-])(?:
        (?P<neutral>
            (?:do|does|did|must|should|can)(?:{BLANK}?not|n['’]?t){BLANK}(?:forget|hesitate)
            |(?:never|cannot){BLANK}(?:forget|hesitate)
            |not{BLANK}(?:only|just|merely|simply)
            |(?:whether{BLANK}or|why){BLANK}not
            |or{BLANK}not(?={BLANK}*(?:[.,;:!?)]|$))
            |not?{BLANK}(?:more|less|fewer|later|earlier|longer|sooner){BLANK}than
            |(?:do|does|did)(?:{BLANK}?not|n['’]?t){BLANK}know{BLANK}(?:if|how|what|whether|why)
            |can(?:{BLANK}?not|n?['’]?t){BLANK}figure{BLANK}out
            |no{BLANK}(?:doubt|problem|matter|wonder)
            |nothing{BLANK}but
            |(?:to{BLANK})?(?:avoid(?:s|ed|ing)?|without){BLANK}(?:(?:this|the|these|such|that|any|an|a){BLANK})?
                (?:issue|error|problem|bug|mistake|failure|exception|trouble)s?\b(?!-))
        |(?P<purpose>to{BLANK}(?:avoid|prevent))
        |(?P<contrast>instead{BLANK}of|rather{BLANK}than)
        |not|never|none|nothing|nobody|nowhere|neither|cannot|without|unless|no(?!\.?{BLANK}?\d)
        |(?:do|does|did|is|are|was|were|has|have|had|ca|wo|should|would|could|must|need|might)n['’]?t
        |(?:unable|yet){BLANK}to|fail(?:s|ed|ing|ure)?{BLANK}to|refus(?:es?|ed|ing){BLANK}to
        |avoid(?:s|ed|ing)?|lack(?:s|ed|ing)?
        |stop(?:s|ped|ping)?(?={BLANK}\w+ing\b)
    )(?![\w-])|(?<![\w-])non-(?=\w)""",
    re.VERBOSE | re.MULTILINE,
)


def negations(text: str) -> Iterator[re.Match[str]]:
    """Find the negations in ``text``; ``not only``, ``don't forget`` and their like deny nothing."""
    return (match for match in _NEGATION.finditer(text) if not match["neutral"])
