"""Signed reports of jobs: what changed and why, what it cost, and which checks hold."""
