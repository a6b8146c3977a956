"""Page of a connected store: what it shows, and its buttons."""

from __future__ import annotations

import re
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest

from consolidation_pipeline.service.sources.connections import connect_source, disconnect_source, list_connected
from consolidation_pipeline.service.sources.sync import sync_source
from consolidation_pipeline.service.sources.write_plan import plan_writes
from consolidation_pipeline_tests.api.conftest import ApiContext
from consolidation_pipeline_tests.api.review_client import PageVisitor
from consolidation_pipeline_tests.service.pipeline_runner import SLUG
from consolidation_pipeline_tests.service.sources.conftest import URL_ENV
from consolidation_pipeline_tests.service.sources.conftest import make_store as make_store
from consolidation_pipeline_tests.service.sources.conftest import mem0_store as mem0_store
from consolidation_pipeline_tests.service.sources.conftest import store_url as store_url
from consolidation_pipeline_tests.service.sources.stores import FACTS, USERS, WORDINGS, Store

STORE = "pantry"
GROUPS = len(FACTS) * len(USERS)


@pytest.fixture
def page(api: ApiContext, mem0_store: Store) -> Iterator[str]:
    """Address of the page of a consolidated store."""
    config = {**mem0_store.kind.config, "url_env": URL_ENV}
    engine = api.pipeline.engine
    source = connect_source(engine, STORE, project=STORE, config=config, mode="review").source
    sync_source(engine, STORE)
    api.pipeline.run(STORE)
    yield f"/projects/{STORE}/sources/{source.id}"
    if disconnect_source(engine, STORE, restore=True):
        disconnect_source(engine, STORE, restore=False)


def log_in(api: ApiContext, role: str) -> PageVisitor:
    visitor = PageVisitor(api.client(None))
    visitor.log_in(api.key(role))
    return visitor


def read_numbers(html: str) -> dict[str, str]:
    return dict(re.findall(r"<dt>([^<]+)</dt><dd>([^<]+)</dd>", html))


def test_group_is_written_and_undone_on_the_page(api: ApiContext, page: str, mem0_store: Store) -> None:
    before = mem0_store.checksum()
    admin = log_in(api, "admin")
    assert page in admin.get(f"/projects/{STORE}").text
    shown = admin.get(page).text
    assert f"{GROUPS} groups that can be written" in shown
    assert "user_id alice" in shown
    assert read_numbers(shown)["rows copied"] == str(GROUPS * WORDINGS)
    group = plan_writes(api.pipeline.engine, STORE)[0]
    assert admin.submit(f"{page}/write", group=str(group.id)).headers["location"] == page
    shown = admin.get(page).text
    assert read_numbers(shown)["groups written"] == "1"
    assert f'href="/projects/{STORE}/undo/{group.id}"' in shown
    assert "2 rows hidden, one row kept" in shown
    assert admin.submit(f"{page}/undo", group=str(group.id)).status_code == 303
    assert mem0_store.checksum() == before


def test_refusals_are_told_with_their_reason(api: ApiContext, page: str, mem0_store: Store) -> None:
    admin = log_in(api, "admin")
    first, second = plan_writes(api.pipeline.engine, STORE)[:2]
    mem0_store.connection.execute("DELETE FROM mem0 WHERE id = %s", [first.hidden[0]])
    refused = admin.submit(f"{page}/write", group=str(first.id))
    assert refused.status_code == 409
    assert "1 of its 3 rows changed or are gone in the store" in refused.text
    assert read_numbers(admin.get(page).text)["writes refused"] == "1"
    assert admin.submit(f"{page}/write", group=str(second.id)).status_code == 303
    mem0_store.connection.execute("DELETE FROM mem0 WHERE id = %s", [second.keep])
    conflict = admin.submit(f"{page}/undo", group=str(second.id))
    assert conflict.status_code == 409
    assert f"the kept row was deleted: mem0 {second.keep}" in conflict.text
    assert admin.submit(f"{page}/write", group="x").status_code == 400
    assert admin.submit(f"{page}/write", group=str(uuid4())).status_code == 404


def test_readers_see_and_change_nothing(api: ApiContext, page: str) -> None:
    reader = log_in(api, "reader")
    shown = reader.get(page).text
    assert "Write to the store" not in shown
    assert reader.submit(f"{page}/write", group=str(uuid4())).status_code == 403
    id_ = UUID(page.rpartition("/")[2])
    assert [source.id for source in list_connected(api.pipeline.engine)] == [id_]
    assert reader.get(f"/projects/{SLUG}/sources/{id_}").status_code == 404
