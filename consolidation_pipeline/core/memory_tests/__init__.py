"""Memory tests: what a user expects of a project's memories, as data."""
