"""The stdio server: `consolidation mcp`, started by a client."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from mcp.client.stdio import StdioServerParameters

from consolidation_pipeline.service.runs.phases import PHASES
from consolidation_pipeline.settings import PROJECT_ROOT
from consolidation_pipeline_tests.mcp.conftest import connect

HEAVY_MODULES = ("dagster", "litellm", "numba", "pandas", "scipy", "sklearn", "wordllama")


@pytest.mark.slow
def test_stdio_client_runs_and_rolls_back_job(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    environment = {
        "CONSOLIDATION_DATABASE_URL": database_url,
        "CONSOLIDATION_DATA_DIR": str(tmp_path),
        "DAGSTER_HOME": str(tmp_path),
        "PYTHONPATH": str(PROJECT_ROOT),
    }
    start = ["-c", "from consolidation_pipeline.cli.app import main; main()", "mcp", "--project", "new"]
    with connect(StdioServerParameters(command=sys.executable, args=start, env=environment)) as agent:
        assert len(agent.tools()) == 17
        ids = [agent.call("add_memory", content=f"Tokens of the gateway are JWT{end}")["id"] for end in ".!"]
        assert agent.call("search_consolidated_memories", query="JWT")["project"] == "new"
        done = agent.call("run_consolidation", phases=PHASES[:5], wait_seconds=250)
        assert (done["status"], done["memories_merged"]) == ("completed", 2)
        assert agent.call("rollback_consolidation", target=done["undo"])["memories_restored"] == 2
        assert agent.call("trace_memory_lineage", memory_id=ids[0])["status"] == "active"


def test_unreadable_lines_are_answered(tmp_path: Path) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    request = {"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": hello}
    start = [sys.executable, "-c", "from consolidation_pipeline.cli.app import main; main()", "mcp"]
    environment = {"CONSOLIDATION_DATA_DIR": str(tmp_path), "PYTHONPATH": str(PROJECT_ROOT)}
    server = subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=tmp_path)
    call = b'{"jsonrpc": "2.0", "id": %d, "method": "tools/call", "params": {"arguments": {"content": "%s"}}}'
    with server:
        assert server.stdin is not None
        assert server.stdout is not None
        answers = []
        for line in (
            b"{no json",
            b'\n{"id": 3}',
            b'{"id": "four", "method": "tools/call", "params": "x"}',
            b'{"jsonrpc": "2.0", "id": 5, "result": "x"}',
            call % (6, b"caf\xff"),
            call % (8, b"caf\\ud800"),
            json.dumps(request).encode(),
        ):
            server.stdin.write(line + b"\n")
            server.stdin.flush()
            answers.append(json.loads(server.stdout.readline()))
        server.stdin.close()
    assert server.returncode == 0
    assert [(one["id"], one.get("error", {}).get("code")) for one in answers] == [
        (None, -32700),
        (3, -32600),
        ("four", -32600),
        (None, -32600),
        (6, -32600),
        (8, -32600),
        (7, None),
    ]
    for answer, shown in ((answers[4], "'caf\\udcff'"), (answers[5], "'caf\\ud800'")):
        problem = f"message.params.arguments.content is {shown}: expected valid Unicode without lone surrogates"
        assert answer["error"]["message"] == problem


@pytest.mark.slow
def test_mcp_server_starts_without_heavy_imports() -> None:
    code = (
        "import sys\nimport consolidation_pipeline.cli.mcp, consolidation_pipeline.mcp.server\n"
        f"assert not (found := set({HEAVY_MODULES!r}) & set(sys.modules)), found"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=PROJECT_ROOT)
    assert done.returncode == 0, done.stderr
