"""The page of the stores: its commands run as they stand."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Callable

import pytest

from consolidation_pipeline.settings import PROJECT_ROOT
from consolidation_pipeline_tests.cli.conftest import Cli
from consolidation_pipeline_tests.service.sources.conftest import make_store as make_store
from consolidation_pipeline_tests.service.sources.conftest import store_url as store_url
from consolidation_pipeline_tests.service.sources.stores import FACTS, KINDS, USERS, Kind, Store

SECTIONS = re.findall(
    r"```sh\n(consolidation connect (\w+) .*?)```", (PROJECT_ROOT / "docs/stores.md").read_text(), re.S
)


def test_every_kind_has_a_section() -> None:
    assert [kind for _, kind in SECTIONS] == [
        "mem0",
        "langgraph",
        "agno",
        "llamaindex",
        "claude_mem",
        "letta",
        "table",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("commands", "kind"), SECTIONS, ids=[kind for _, kind in SECTIONS])
def test_commands_of_a_store_run_as_they_stand(
    commands: str,
    kind: str,
    make_store: Callable[[Kind], Store],
    store_url: str,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = make_store(next(each for each in KINDS if each.name == kind))
    before = store.checksum()
    monkeypatch.setenv(re.findall(r"--url-env (\w+)", commands)[0], store_url)
    answers = []
    for command in commands.splitlines():
        monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
        answers.append(cli(*shlex.split(command)[1:]))
    assert [answer.code for answer in answers] == [0, 0, 0], answers
    assert f"\n{len(FACTS) * len(USERS)} groups; " in answers[2].out
    assert store.checksum() == before
