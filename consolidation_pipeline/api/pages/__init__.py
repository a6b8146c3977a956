"""Web pages for people: review suggestions, browse a project's knowledge, undo. Server-rendered; no build step."""
