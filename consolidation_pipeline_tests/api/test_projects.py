"""Routes that list and create projects."""

from __future__ import annotations

from starlette.testclient import TestClient

from consolidation_pipeline_tests.api.conftest import API, FOREIGN, ApiContext
from consolidation_pipeline_tests.service.pipeline_runner import SLUG

PROJECTS = f"{API}/projects"


def test_projects_are_listed_by_page(api: ApiContext) -> None:
    page = api.client("reader").get(PROJECTS).json()
    assert (page["total"], [one["project"] for one in page["projects"]]) == (2, [FOREIGN, SLUG])
    notes = page["projects"][1]
    assert notes["project_id"] == str(api.pipeline.project().id)
    assert (notes["consolidation_enabled"], notes["active"], notes["merged"], notes["new"]) == (True, 3, 1, 0)
    assert notes["last_run_at"]
    assert page["projects"][0]["last_run_at"] is None
    second = api.client("reader").get(PROJECTS, params={"limit": 1, "offset": 1}).json()
    assert (second["total"], [one["project"] for one in second["projects"]]) == (2, [SLUG])


def test_key_of_a_project_lists_its_project_alone(api: ApiContext) -> None:
    page = api.client("reader", FOREIGN).get(PROJECTS).json()
    assert (page["total"], [one["project"] for one in page["projects"]]) == (1, [FOREIGN])


def test_project_is_created_once_with_its_options(api: ApiContext, admin: TestClient) -> None:
    body = {"project": "shop", "options": {"archive_stale_days": 120, "similarity_threshold": 0.97}}
    made = admin.post(PROJECTS, json=body)
    assert (made.status_code, made.json()["project"]) == (201, "shop")
    assert made.json()["config"] == {"archive_stale_days": 120, "t_merge": 0.97}
    assert made.json() == admin.get(f"{PROJECTS}/shop/options").json()
    again = admin.post(PROJECTS, json=body)
    assert (again.status_code, again.json()["message"]) == (409, "project shop exists already")
    assert api.client("agent").post(PROJECTS, json={"project": "more"}).status_code == 403
    bound = api.client("admin", FOREIGN).post(PROJECTS, json={"project": "more"})
    assert (bound.status_code, bound.json()["message"]) == (403, f"this key is for project {FOREIGN} only")
    api.pipeline.write("DELETE FROM {s}.projects WHERE slug = 'shop'")


def test_project_with_invalid_slug_or_option_is_refused(admin: TestClient) -> None:
    slug = admin.post(PROJECTS, json={"project": "My Shop"})
    assert (slug.status_code, "use 1 to 63 of a-z, 0-9" in slug.json()["message"]) == (400, True)
    option = admin.post(PROJECTS, json={"project": "shop", "options": {"speed": 11}})
    assert (option.status_code, option.json()["message"].startswith("speed is not an option")) == (422, True)
    assert admin.get(PROJECTS).json()["total"] == 2
