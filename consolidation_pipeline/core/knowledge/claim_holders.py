"""Holders of parts: who leads, maintains or approves something."""

from __future__ import annotations

from consolidation_pipeline.core.differences.reading import Token
from consolidation_pipeline.core.knowledge.change_words import find_roles
from consolidation_pipeline.core.knowledge.claims import Claim

# Most words of a holder: "Dr. Ann Lee".
_LONGEST = 4


def list_role_words(claim: Claim) -> list[Token]:
    """Return the words that say what somebody has: "leads"."""
    return claim.inside(*(span for span, _ in find_roles(claim.text, claim.language)))


def find_holders(claim: Claim) -> list[list[Token]]:
    """Return the words of those who have parts: "Ann Lee leads", "led by Ann Lee", without more than four words."""
    found = []
    told = claim.inside(*(change.cue for change in claim.changes if change.form == "back"))
    roles = sorted(find_roles(claim.text, claim.language))
    for (start, end), is_behind in roles:
        behind = [token for token in claim.tokens if token.start >= end]
        ahead = [token for token in claim.tokens if token.start < start]
        if is_behind:
            holder = [token for token in behind if token.phrase == behind[0].phrase]
        else:
            holder = [token for token in ahead if token.clause == (behind or ahead)[0].clause and token not in told]
        if 0 < len(holder) <= _LONGEST:
            found.append(holder)
    return found
