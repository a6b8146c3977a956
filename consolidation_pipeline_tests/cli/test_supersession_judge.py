"""Supersession judge on the command line: chosen, priced, run, and its findings listed."""

from __future__ import annotations

import json

import pytest

from consolidation_pipeline_tests.cli.conftest import Cli, Write
from consolidation_pipeline_tests.openai_server import client_environment, openai_server
from consolidation_pipeline_tests.service.knowledge.test_supersession_judge import MODEL, NOTES, NOW, dated, oracle

LISTING = ("relations", "list", "notes", "--type", "supersedes", "--status", "candidate")


def test_findings_wait_for_a_person(cli: Cli, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("import", write(*(json.dumps(dated(name, *NOTES[name])) for name in NOTES)), "--project", "notes")
    options = ("supersession_judge=llm", f"llm_model={MODEL}", "summarize=false")
    assert cli("projects", "configure", "notes", *options).code == 0
    with openai_server(oracle()) as running:
        for name, value in client_environment(running.api_base).items():
            monkeypatch.setenv(name, value)
        assert "1 calls for pairs, supersessions, merges" in " ".join(cli("plan", "notes").out.split())
        told = " ".join(cli("run", "notes").out.split())
    assert "newer wins 1 found, 1 of them wait for a person: consolidation relations list notes" in told
    assert NOW in " ".join(cli(*LISTING).out.split())


@pytest.mark.parametrize("judge", ["pair_judge", "supersession_judge"])
def test_judge_without_a_language_model_is_refused(cli: Cli, write: Write, judge: str) -> None:
    cli("import", write(*(json.dumps(dated(name, *NOTES[name])) for name in NOTES)), "--project", "notes")
    refused = cli("projects", "configure", "notes", f"{judge}=llm")
    assert (refused.code, f"{judge} = llm needs llm_model: set a litellm model" in refused.err) == (2, True)
    assert cli("projects", "configure", "notes", f"{judge}=llm", f"llm_model={MODEL}").code == 0
    assert cli("projects", "configure", "notes", "llm_model=").code == 2
