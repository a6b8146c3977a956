"""Process for the test of tracing: requests of an agent, a run with a model, a rollback and an error.

    python -m consolidation_pipeline_tests.traced_process FOLDER

It is a separate process because a span provider can be set only once in a process. Prints the id of the run's job.
"""

from __future__ import annotations

import sys
from pathlib import Path

from starlette.testclient import TestClient

from consolidation_pipeline.api.app import create_app
from consolidation_pipeline.service.admin.api_keys import create_key
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import open_engine
from consolidation_pipeline_tests.service.corpus import WEBHOOKS, topic_notes
from consolidation_pipeline_tests.service.knowledge.test_patterns import OPTIONS
from consolidation_pipeline_tests.service.pipeline_runner import MERGING, SLUG, Pipeline, run_phases

QUERY_TEXT = "hunter2-query"
TASK_TEXT = "hunter2-task"
MEMORY_TEXT = "hunter2-memory: verify the signature of a webhook first."
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PHASES = (*MERGING, "patterns")


def main(folder: Path) -> None:
    """Send the requests, run, roll back and fail once."""
    settings = Settings()
    pipeline = Pipeline(open_engine(settings), settings, folder)
    pipeline.configure_new(**OPTIONS, llm_model="openai/gpt-4o-mini")
    pipeline.add(topic_notes("hook", WEBHOOKS))
    _, key = create_key(pipeline.engine, role="admin")
    app = create_app(pipeline.engine, settings)
    calling = {
        "Authorization": f"Bearer {key}",
        "traceparent": f"00-{TRACE_ID}-00f067aa0ba902b7-01",
        "X-Request-ID": "r1",
    }
    with TestClient(app, headers=calling, raise_server_exceptions=False) as client:
        client.post("/api/v1/memories", json={"project": SLUG, "content": MEMORY_TEXT})
        client.post("/api/v1/search", json={"project": SLUG, "query": QUERY_TEXT})
        client.post("/api/v1/context", json={"project": SLUG, "task": TASK_TEXT})
        client.get(f"/api/v1/suggestions?project={SLUG}&secret={QUERY_TEXT}")
        client.get("/metrics")
    with pipeline.open() as run:
        run_phases(run, PHASES)
    pipeline.roll_back(run.job_id)
    try:
        with pipeline.open() as broken, broken.phase("clusters"):
            raise RuntimeError(MEMORY_TEXT)
    except RuntimeError:
        print(run.job_id)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
