"""`embeddings`: stage vectors of another model, switch, switch back, drop."""

from __future__ import annotations

import pytest

from consolidation_pipeline_tests.cli.conftest import LESSONS, RECENT, Cli, Write
from consolidation_pipeline_tests.openai_server import client_environment, openai_server, reply_with_embeddings

MODEL = "openai/text-embedding-3-small"


@pytest.fixture(autouse=True)
def imported(cli: Cli, write: Write) -> None:
    rows = [{"id": f"n{at}", "content": text, "created_at": RECENT} for at, text in enumerate(LESSONS)]
    assert cli("import", write(*rows), "--project", "notes", "--source", "test").code == 0


def test_model_is_staged_switched_and_dropped(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with openai_server(reply_with_embeddings(dimension=16)) as server:
        for name, value in client_environment(server.api_base).items():
            monkeypatch.setenv(name, value)
        staged = cli("embeddings", "notes", "--model", MODEL, "--json").json
        assert staged["computed"] == len(LESSONS)
        switched = cli("embeddings", "notes", "--switch", "--json").json
        assert (switched["after"], switched["computed"]) == (MODEL, 0)
        assert cli("projects", "configure", "notes", "--json").json["config"] == {"embedding_model": MODEL}
        refused = cli("embeddings", "notes", "--drop")
        assert (refused.code, "--job reembed" in refused.err) == (3, True)
        shown = cli("embeddings", "notes").out
        assert f"in use; 16 dimensions, 0 vectors in rows, {len(LESSONS)} staged, 0 missing" in shown


def test_wrong_use_of_embeddings_is_explained(cli: Cli) -> None:
    both = cli("embeddings", "notes", "--model", MODEL, "--switch")
    assert (both.code, "give one of them" in both.err) == (2, True)
    assert "no other model of notes is staged" in cli("embeddings", "notes", "--switch").err
    assert "has the embedding model" in cli("embeddings", "notes", "--model", "local").err
    assert cli("embeddings", "notes", "--drop").out.strip() == "dropped 0 staged vectors of notes"
