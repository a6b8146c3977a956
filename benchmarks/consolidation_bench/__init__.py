"""Benchmark of memory consolidation for any system. README.md tells how to run it and how to add a system."""
