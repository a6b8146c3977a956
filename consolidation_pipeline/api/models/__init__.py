"""Pydantic models of request and response bodies."""
