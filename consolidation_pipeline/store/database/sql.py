"""Builder of the few SQL statements that vary.

A statement is a named constant that can be pasted into psql as it stands. What varies is a comment in it,
``/* filters */``, which this module replaces by SQL of the code's own. Values are always bound, never put in.
"""

from __future__ import annotations


def compose(statement: str, **parts: str) -> str:
    """Return ``statement`` with each comment ``/* name */`` replaced by the part of that name.

    Args:
        statement: SQL that is valid without its parts.
        parts: SQL for each comment. An empty part removes the comment.

    Raises:
        KeyError: ``statement`` has no comment of that name.
    """
    for name, part in parts.items():
        comment = f"/* {name} */"
        if comment not in statement:
            raise KeyError(f"the statement has no comment {comment}")
        statement = statement.replace(comment, part)
    return statement


def conditions(*filters: str | None) -> str:
    """Return `` AND (filter)`` for each filter that is given, to follow another condition; None is left out."""
    return "".join(f" AND ({condition})" for condition in filters if condition)


def quote_literal(value: str) -> str:
    """Return a text as SQL, for statements that take no bound values, such as CREATE INDEX.

    Backslashes need no quoting: ``standard_conforming_strings`` is on in every supported Postgres.
    """
    return "'{}'".format(value.replace("'", "''"))
