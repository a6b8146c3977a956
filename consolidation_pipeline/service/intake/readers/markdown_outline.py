"""The outline of a Markdown text: its sections with their lists, by line, read by a CommonMark parser."""

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
class Listing:
    """A list that stands in no other block: the lines of each item, and of a paragraph ending in ``:`` before it."""

    ordered: bool
    lines: range
    items: tuple[range, ...]
    lead: range


@dataclass
class Section:
    """A heading and what is under it: ``own`` are its lines up to the next heading, lines counting from 0."""

    title: str
    level: int
    line: int
    own: range
    listings: list[Listing] = field(default_factory=list)
    children: list[Section] = field(default_factory=list)

    @property
    def whole(self) -> range:
        """Its own lines and those of all headings below it."""
        return range(self.own.start, self.children[-1].whole.stop if self.children else self.own.stop)


@dataclass(frozen=True)
class Outline:
    """``root`` has level 0, no title, and what stands before the first heading.

    ``lines`` are without front matter, comments and rules, which are blank there; ``code``: lines of code blocks;
    ``unclosed``: the line of a comment that never ends and swallows the rest.
    """

    root: Section
    lines: list[str]
    code: frozenset[int]
    unclosed: int | None


def outline(text: str) -> Outline:
    """The outline of ``text``, whose lines end in line feeds."""
    lines = text.split("\n")
    _blank(lines, range(_front_matter(lines)))
    tokens = MarkdownIt("commonmark").parse("\n".join(lines))
    root = _sections(tokens, len(lines))
    unclosed = _drop_comments(lines, tokens)
    for token in tokens:
        if token.type == "hr":
            _blank(lines, _lines(token))
    code = frozenset(line for token in tokens if token.type in ("fence", "code_block") for line in _lines(token))
    return Outline(root, lines, code, unclosed)


def _front_matter(lines: list[str]) -> int:
    """How many lines at the start are YAML between ``---``; a rule there is not taken for it."""
    if len(lines) < 2 or lines[0].rstrip() != "---" or not _YAML_KEY.match(lines[1]):
        return 0
    for number, line in enumerate(lines[1:], start=2):
        if line.rstrip() in ("---", "..."):
            return number
        if not _YAML_MORE.match(line):
            return 0
    return 0


def _sections(tokens: list[Token], count: int) -> Section:
    stack = [Section("", 0, 0, range(count))]
    for index, token in enumerate(tokens):
        if token.level or not token.map:
            continue
        if token.type == "heading_open":
            _close(stack[-1], token.map[0])
            level = int(token.tag[1])
            while stack[-1].level >= level:
                stack.pop()
            title = " ".join(_COMMENT.sub("", tokens[index + 1].content).split()).strip("* ")
            stack[-1].children.append(Section(title, level, token.map[0], range(token.map[1], count)))
            stack.append(stack[-1].children[-1])
        elif token.type in ("bullet_list_open", "ordered_list_open"):
            stack[-1].listings.append(_listing(tokens, index))
    return stack[0]


def _close(section: Section, line: int) -> None:
    section.own = range(section.own.start, line)


def _listing(tokens: list[Token], index: int) -> Listing:
    opened = tokens[index]
    return Listing(
        ordered=opened.type == "ordered_list_open",
        lines=_lines(opened),
        items=tuple(_lines(token) for token in _inside(tokens, index) if token.type == "list_item_open"),
        lead=_lead(tokens[max(index - 3, 0) : index]),
    )


def _inside(tokens: list[Token], index: int) -> Iterator[Token]:
    # By index: a slice would copy all the rest of the document for each list.
    for number in range(index + 1, len(tokens)):
        token = tokens[number]
        if token.level == 0:
            return
        if token.level == 1:
            yield token


def _lead(before: list[Token]) -> range:
    is_paragraph = len(before) == 3 and before[0].type == "paragraph_open" and before[0].level == 0
    introduces = is_paragraph and before[1].content.rstrip("*_ ").endswith(":")
    return _lines(before[0]) if introduces else range(0)


def _lines(token: Token) -> range:
    return range(*(token.map or (0, 0)))


def _blank(lines: list[str], numbers: Iterable[int]) -> None:
    for number in numbers:
        lines[number] = ""


def _drop_comments(lines: list[str], tokens: list[Token]) -> int | None:
    unclosed = None
    for token in tokens:
        comments = [child.content for child in token.children or () if child.content.startswith("<!--")]
        if token.type == "html_block" and token.content.lstrip().startswith("<!--"):
            if "-->" not in token.content:
                unclosed = _lines(token).start
                _blank(lines, _lines(token))
            comments = _COMMENT.findall("\n".join(lines[number] for number in _lines(token)))
        for comment in comments:
            _cut(lines, _lines(token), comment)
    return unclosed


def _cut(lines: list[str], numbers: range, comment: str) -> None:
    # As many lines as before: all else is found by its line.
    text = "\n".join(lines[number] for number in numbers)
    rest = text.replace(comment, "\n" * comment.count("\n"), 1).split("\n")
    for number, line in zip(numbers, rest, strict=True):
        lines[number] = line.rstrip() if line.strip() else ""
