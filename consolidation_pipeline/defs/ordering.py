"""In what order those assets of a run come that do not depend on each other: the highest priority first, 0 by default.

So they need no dependency that would skip the later one when the earlier one fails.
"""

# Summaries need nothing but memories and vectors; merging and patterns come first, and have the budget first.
AFTER_PATTERNS = {"dagster/priority": "-1"}
# What was made by the run is scored by the run.
AFTER_SUMMARIES = {"dagster/priority": "-2"}
