"""Pages for people: review suggestions, look at what a project has learned, undo. Rendered here; no build step."""
