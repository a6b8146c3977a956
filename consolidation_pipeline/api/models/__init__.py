"""What goes in and comes out: one Pydantic model for every body."""
