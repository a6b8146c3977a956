"""Routes of shadows: an admin reads, tries, promotes and drops them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from consolidation_pipeline.service.lifecycle.memory_edits import edit_memory
from consolidation_pipeline.service.shadow.shadows import run_shadow
from consolidation_pipeline.store.shadow.databases import drop_shadows
from consolidation_pipeline_tests.api.conftest import API, FOREIGN, ApiContext

PATH = f"{API}/projects/{FOREIGN}/shadows"


@pytest.fixture
def shadow(api: ApiContext) -> Iterator[None]:
    """Shadow of the project ``foreign`` that merges its two memories."""
    engine = api.pipeline.engine
    project = api.pipeline.project(FOREIGN)
    drop_shadows(engine, project.id)
    run_shadow(engine, FOREIGN, {"t_merge": 0.95}, settings=api.pipeline.settings, triggered_by="tester")
    yield
    drop_shadows(engine, project.id)


@pytest.mark.usefixtures("shadow")
def test_shadow_is_tried_promoted_undone_and_dropped(api: ApiContext) -> None:
    admin = api.client()
    [listed] = admin.get(PATH).json()["shadows"]
    before = api.table_checksums()
    tried = admin.post(f"{PATH}/promote", json={"name": "next"}).json()
    assert api.table_checksums() == before
    done = admin.post(f"{PATH}/promote", json={"name": "next", "confirm": True}).json()
    assert (tried["promoted"], done["promoted"]) == (False, True)
    assert done["changes"] == tried["changes"] == sum(listed["report"]["changes"].values())
    assert api.pipeline.project(FOREIGN).config == done["options"] == {"t_merge": 0.95}
    assert admin.post("/api/v1/rollback", json={"target": done["job_id"]}).status_code == 200
    assert api.pipeline.project(FOREIGN).config == {}
    assert admin.delete(PATH, params={"name": "next"}).json()["shadows"] == []
    assert admin.delete(PATH, params={"name": "next"}).status_code == 404


@pytest.mark.usefixtures("shadow")
def test_refused_promotion_lists_changed_rows(api: ApiContext) -> None:
    query = "SELECT id FROM {s}.task_memories WHERE project_id = :of ORDER BY id LIMIT 1"
    memory = api.pipeline.value(query, of=api.pipeline.project(FOREIGN).id)
    edit_memory(api.pipeline.engine, memory, {"tags": ["edited"]}, changed_by="agent")
    answer = api.client().post(f"{PATH}/promote", json={"confirm": True})
    assert (answer.status_code, answer.json()["conflicts"]) == (409, [str(memory)])
