"""Conflicts between two texts: literals, clauses and negations that keep similar memories apart."""
