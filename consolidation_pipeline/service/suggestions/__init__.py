"""Merges that are proposed to a person: what is proposed, how it is shown, and what becomes of it."""

from consolidation_pipeline.service.suggestions.deciding import (
    Bulk,
    Decided,
    approve_suggestion,
    decide_all,
    decide_each,
    reject_suggestion,
    select_pending,
    withdraw_suggestion,
)
from consolidation_pipeline.service.suggestions.proposing import Proposed, propose_merges
from consolidation_pipeline.service.suggestions.reading import (
    Disagreement,
    Original,
    Suggestion,
    SuggestionPage,
    find_projects_without_model,
    get_suggestion,
    list_suggestions,
)

__all__ = [
    "Bulk",
    "Decided",
    "Disagreement",
    "Original",
    "Proposed",
    "Suggestion",
    "SuggestionPage",
    "approve_suggestion",
    "decide_all",
    "decide_each",
    "find_projects_without_model",
    "get_suggestion",
    "list_suggestions",
    "propose_merges",
    "reject_suggestion",
    "select_pending",
    "withdraw_suggestion",
]
