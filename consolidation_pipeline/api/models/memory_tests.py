"""Bodies of the routes for memory tests."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from consolidation_pipeline.api.models.base import Body, Reply, Text, with_examples
from consolidation_pipeline.core.memory_tests.memory_test import MAX_NAME_CHARS, MAX_TEXT_CHARS

_Text = Annotated[Text, Field(min_length=1, max_length=MAX_TEXT_CHARS)]
_Kind = Literal["must_find", "must_not_merge", "must_merge", "must_remember", "must_not_say", "playbook_has"]


class AddMemoryTestRequest(Body):
    """A memory test, with the fields that its kind needs."""

    model_config = with_examples(
        {"name": "deploys", "kind": "must_remember", "text": "Run the migrations before deploying."}
    )

    name: Text | None = Field(None, max_length=MAX_NAME_CHARS, description="Replaces the test of this name.")
    kind: _Kind = Field(description="What is tested.")
    text: _Text | None = Field(None, description="Of must_remember, must_not_say and playbook_has.")
    query: _Text | None = Field(None, description="Of must_find: what is searched for.")
    says: _Text | None = Field(None, description="Of must_find: what one of the memories found has to say.")
    within: int | None = Field(None, description="Of must_find: among how many, 5 by default.")
    a: _Text | None = Field(None, description="Of must_merge and must_not_merge: text or id of a raw memory.")
    b: _Text | None = Field(None, description="The other one.")

    def to_value(self) -> Any:
        """Return what a file has under the kind."""
        if self.kind == "must_find":
            given = {"query": self.query, "says": self.says, "within": self.within}
            return {name: value for name, value in given.items() if value is not None}
        return [self.a, self.b] if self.kind.endswith("_merge") else self.text


class MemoryTestItem(Reply):
    """A memory test and its last result."""

    name: str
    kind: str
    body: dict[str, Any] = Field(description="Texts or ids of the test.")
    source: str = Field(description="yaml, cli, http or page: where it came from.")
    enabled: bool
    created_at: datetime
    checked_at: datetime | None
    passed: bool | None = Field(description="null = it was not run yet.")
    failure: str | None
    absent: str | None = Field(description="The memories that it names and that do not exist; null = all do.")


class MemoryTestsReply(Reply):
    """The memory tests of a project."""

    project: str
    tests: list[MemoryTestItem]


class MemoryTestOutcome(Reply):
    """Result of a memory test."""

    name: str
    kind: str
    passed: bool
    reason: str | None


class RunMemoryTestsReply(Reply):
    """Results of the memory tests of a project."""

    project: str
    passed: int
    failed: int
    tests: list[MemoryTestOutcome]
