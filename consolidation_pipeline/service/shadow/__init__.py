"""Shadows: runs of another policy on a copy of a project, with a report, and their promotion.

A shadow is a database of its own beside the live one, with the same ids. No live row knows of it, and its ledger is the
record of what a promotion would change.
"""
