"""How ``core.literals`` reads texts: literals and clauses, what contradicts what, for a pair and for millions."""
