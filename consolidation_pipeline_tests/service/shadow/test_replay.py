"""A job is replayed on a copy: it decides the same again, or the replay says what differs and why."""

from __future__ import annotations

import json
import random
from pathlib import Path
from uuid import UUID

import pytest

from consolidation_pipeline.errors import ConflictError, NotFoundError
from consolidation_pipeline.service.admin.erase import erase_memories
from consolidation_pipeline.service.intake.importer import import_memories
from consolidation_pipeline.service.shadow.replay import Replay, replay_job
from consolidation_pipeline.settings import PROJECT_ROOT
from consolidation_pipeline.store.shadow.databases import list_shadows
from consolidation_pipeline_tests.service.corpus import LESSONS, MIGRATIONS, WEBHOOKS, corpus, topic_notes
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, note_id
from consolidation_pipeline_tests.service.table_dumps import compute_checksums

SAMPLE = PROJECT_ROOT / "examples" / "memories.jsonl"


def replay(pipeline: Pipeline, job_id: UUID) -> Replay:
    return replay_job(pipeline.engine, job_id, settings=pipeline.settings)


@pytest.fixture
def project(pipeline: Pipeline) -> Pipeline:
    """Project with memories to merge, topics and memories to archive, not consolidated yet."""
    pipeline.add([*corpus(), *topic_notes("hooks", WEBHOOKS), *topic_notes("migrations", MIGRATIONS)])
    return pipeline


def test_job_replays_whatever_came_later(project: Pipeline) -> None:
    first = project.run().job_id
    done = replay(project, first)
    assert done.is_same, done.first
    assert (done.differing, done.first, done.notes) == (0, None, [])
    assert done.changes > 20
