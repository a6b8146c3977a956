"""Words for what runs do, as ``consolidation run`` and the page of a run report tell it."""

from __future__ import annotations

# By the rule of a group of changes, its operation in the ledger, or the playbook.
RUN_WORDS = {
    "merge": "merged",
    "pattern": "patterns",
    "principle": "principles",
    "playbook": "playbook",
    "review": "suggestions",
    "supersedes": "newer wins",
    "summary": "summaries",
    "procedural": "profiles",
    "summarize": "summaries",
    "archive": "archived",
    "associate": "relations added",
}


def name_changes(operation: str, rule: str, table: str) -> str:
    """Return the word for a group of changes that a run made to rows of ``table``; others have their operation."""
    subject = "playbook" if table == "playbook_entries" else rule
    return RUN_WORDS.get(subject) or RUN_WORDS.get(operation, operation)
