"""In what order those assets of a run come that do not depend on each other: the highest priority first, 0 by default.

So they need no dependency that would skip the later one when the earlier one fails.
"""

# Suggestions need the groups and what was merged of them; patterns come first, and have the budget first.
AFTER_PATTERNS = {"dagster/priority": "-1"}
# Summaries need nothing but memories and vectors.
AFTER_SUGGESTIONS = {"dagster/priority": "-2"}
# What was made by the run is scored by the run.
AFTER_SUMMARIES = {"dagster/priority": "-3"}
