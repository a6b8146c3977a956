"""Outline of a Markdown text: its sections and their lists by line numbers, from a CommonMark parser."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from markdown_it import MarkdownIt
from markdown_it.token import Token

_COMMENT = re.compile(r"<!--.*?-->", re.S)
_YAML_KEY = re.compile(r"[\w.-]+:(\s|$)")
_YAML_MORE = re.compile(r"[\w.-]+:(\s|$)|[ \t#-]|$")


@dataclass(frozen=True)
class ListBlock:
    """A top-level list, by lines. ``lead``: a paragraph before it that ends in ``:``."""

    ordered: bool
    lines: range
    items: tuple[range, ...]
    lead: range


@dataclass
class Section:
    """A heading and the text below it. ``own``: its lines up to the next heading; lines count from 0."""

    title: str
    level: int
    line: int
    own: range
    listings: list[ListBlock] = field(default_factory=list)
    children: list[Section] = field(default_factory=list)

    @property
    def whole(self) -> range:
        """The lines of the section and of all sections below it."""
        return range(self.own.start, self.children[-1].whole.stop if self.children else self.own.stop)


@dataclass(frozen=True)
class Outline:
    """Outline of a text.

    ``root``: section of level 0 without a title, with the text before the first heading. ``lines``: all lines; those
    of front matter, comments and rules are blank. ``code``: lines of code blocks. ``unclosed``: line of a comment that
    is never closed and hides the rest.
    """

    root: Section
    lines: list[str]
    code: frozenset[int]
    unclosed: int | None


def parse_outline(text: str) -> Outline:
    """Return the outline of ``text``, whose lines end in line feeds."""
    lines = text.split("\n")
    _clear_lines(lines, range(_count_front_matter(lines)))
    tokens = MarkdownIt("commonmark").parse("\n".join(lines))
    root = _parse_sections(tokens, len(lines))
    unclosed = _remove_comments(lines, tokens)
    for token in tokens:
        if token.type == "hr":
            _clear_lines(lines, _token_lines(token))
    code = frozenset(line for token in tokens if token.type in ("fence", "code_block") for line in _token_lines(token))
    return Outline(root, lines, code, unclosed)


def _count_front_matter(lines: list[str]) -> int:
    """Return the number of lines of YAML front matter; 0 if the ``---`` at the start is only a rule."""
    if len(lines) < 2 or lines[0].rstrip() != "---" or not _YAML_KEY.match(lines[1]):
        return 0
    for number, line in enumerate(lines[1:], start=2):
        if line.rstrip() in ("---", "..."):
            return number
        if not _YAML_MORE.match(line):
            return 0
    return 0


def _parse_sections(tokens: list[Token], count: int) -> Section:
    stack = [Section("", 0, 0, range(count))]
    for index, token in enumerate(tokens):
        if token.level or not token.map:
            continue
        if token.type == "heading_open":
            stack[-1].own = range(stack[-1].own.start, token.map[0])
            level = int(token.tag[1])
            while stack[-1].level >= level:
                stack.pop()
            title = " ".join(_COMMENT.sub("", tokens[index + 1].content).split()).strip("* ")
            stack[-1].children.append(Section(title, level, token.map[0], range(token.map[1], count)))
            stack.append(stack[-1].children[-1])
        elif token.type in ("bullet_list_open", "ordered_list_open"):
            stack[-1].listings.append(_parse_list(tokens, index))
    return stack[0]


def _parse_list(tokens: list[Token], index: int) -> ListBlock:
    return ListBlock(
        ordered=tokens[index].type == "ordered_list_open",
        lines=_token_lines(tokens[index]),
        items=tuple(_token_lines(token) for token in _list_items(tokens, index)),
        lead=_lead_lines(tokens[max(index - 3, 0) : index]),
    )


def _list_items(tokens: list[Token], index: int) -> Iterator[Token]:
    # By index: a slice would copy the rest of the document for each list.
    for number in range(index + 1, len(tokens)):
        token = tokens[number]
        if token.level == 0:
            return
        if token.level == 1 and token.type == "list_item_open":
            yield token


def _lead_lines(before: list[Token]) -> range:
    """Return the lines of the paragraph that the three tokens before a list are, if it ends in a colon."""
    is_paragraph = len(before) == 3 and before[0].type == "paragraph_open" and before[0].level == 0
    introduces = is_paragraph and before[1].content.rstrip("*_ ").endswith(":")
    return _token_lines(before[0]) if introduces else range(0)


def _token_lines(token: Token) -> range:
    return range(*(token.map or (0, 0)))


def _clear_lines(lines: list[str], numbers: Iterable[int]) -> None:
    for number in numbers:
        lines[number] = ""


def _remove_comments(lines: list[str], tokens: list[Token]) -> int | None:
    """Blank the comments in ``lines``; return the line of one that is never closed, or None."""
    unclosed = None
    for token in tokens:
        comments = [child.content for child in token.children or () if child.content.startswith("<!--")]
        if token.type == "html_block" and token.content.lstrip().startswith("<!--"):
            if "-->" not in token.content:
                unclosed = _token_lines(token).start
                _clear_lines(lines, _token_lines(token))
            comments = _COMMENT.findall("\n".join(lines[number] for number in _token_lines(token)))
        for comment in comments:
            _remove_comment(lines, _token_lines(token), comment)
    return unclosed


def _remove_comment(lines: list[str], numbers: range, comment: str) -> None:
    # The line feeds of the comment stay, as sections and lists are found by their line numbers.
    text = "\n".join(lines[number] for number in numbers)
    rest = text.replace(comment, "\n" * comment.count("\n"), 1).split("\n")
    for number, line in zip(numbers, rest, strict=True):
        lines[number] = line.rstrip() if line.strip() else ""
