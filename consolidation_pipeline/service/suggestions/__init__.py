"""Merges that are proposed to a person: what is proposed, how it is shown, and what becomes of it."""

from consolidation_pipeline.service.suggestions.deciding import (
    Bulk,
    Decided,
    approve_suggestion,
    decide_all,
    reject_suggestion,
)
from consolidation_pipeline.service.suggestions.reading import (
    Disagreement,
    Original,
    Suggestion,
    SuggestionPage,
    get_suggestion,
    list_suggestions,
)

__all__ = [
    "Bulk",
    "Decided",
    "Disagreement",
    "Original",
    "Suggestion",
    "SuggestionPage",
    "approve_suggestion",
    "decide_all",
    "get_suggestion",
    "list_suggestions",
    "reject_suggestion",
]
