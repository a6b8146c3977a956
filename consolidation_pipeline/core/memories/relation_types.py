"""Types and statuses of relations between memories."""

ASSOCIATION_TYPES = ("contradicts", "explains", "shares_theme", "parallel_context")
# From the newer memory to the older one; `core/knowledge/supersession.py` finds it.
SUPERSEDES = "supersedes"
# How the reason of a relation begins that no longer follows from the memories, and may come back if it does again.
WITHDRAWN = "withdrawn: "
RELATION_TYPES = (*ASSOCIATION_TYPES, SUPERSEDES)
# Relations that a person must confirm: dissimilar decisions need not contradict, one week need not be one context.
CANDIDATE_TYPES = ("contradicts", "parallel_context")
RELATION_STATUSES = ("candidate", "confirmed", "rejected")
