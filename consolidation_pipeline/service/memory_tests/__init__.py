"""Memory tests: run them, keep a run from breaking them, add, list and propose them."""
