"""Examples for ``docs/api.md``: one request for each route, in an order in which each succeeds.

Add an example for each new route. ``{name}`` in a path or body stands for a value kept from an earlier reply.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import psycopg

from consolidation_pipeline.api.aliases import ALIASES
from consolidation_pipeline.service.shadow.shadows import run_shadow
from consolidation_pipeline.service.sources.connections import connect_source
from consolidation_pipeline.service.sources.sync import sync_source
from consolidation_pipeline_tests.api.conftest import API, FOREIGN, ApiContext, add_suggestions
from consolidation_pipeline_tests.api.routes import PUBLIC_PATHS
from consolidation_pipeline_tests.service.pipeline_runner import SLUG
from consolidation_pipeline_tests.service.sources.stores import AGNO, FACTS, Store, word

LONGEST_TEXT = 150
SHOWN_ITEMS = 2
SHOWN_KEYS = 12


@dataclass(frozen=True)
class Example:
    """A request to a route.

    Attributes:
        request: method and route; routes of health and metrics as they are, others below ``API``.
        keep: name of a kept value -> its path in the reply.
        role: role of the key; "": no key.
        path: value of the route's parameter; default: the project's slug.
    """

    title: str
    request: str
    body: Mapping[str, Any] | None = None
    query: str = ""
    keep: Mapping[str, str] = field(default_factory=dict)
    role: str = "admin"
    path: str = SLUG
    chapter: str = ""

    @property
    def method(self) -> str:
        return self.request.split()[0]

    @property
    def route(self) -> str:
        route = self.request.split()[1]
        return route if route in PUBLIC_PATHS else API + route


CHAPTERS = {
    "Jobs": [
        Example(
            "Request a run",
            "POST /jobs",
            {
                "project": SLUG,
                "options": {"merge": True, "summarize": True, "archive": True, "promote": True, "min_cluster_size": 2},
            },
            keep={"waiting": "job_id"},
        ),
        Example("Cancel a job", "POST /jobs/{job_id}/cancel", path="{waiting}"),
        Example(
            "Follow a job",
            "GET /jobs/{job_id}",
            path="{job}",
        ),
        Example("Report of a job", "GET /jobs/{job_id}/report", path="{job}"),
        Example("List jobs", "GET /projects/{project}/jobs", query="?limit=1"),
        Example("Summarize", "POST /projects/{project}/summaries"),
        Example("Renew the profile", "POST /projects/{project}/profile", path=FOREIGN),
    ],
    "Projects": [
        Example("List projects", "GET /projects", query="?limit=2", role="reader"),
        Example("Create a project", "POST /projects", {"project": "shop", "options": {"archive_stale_days": 120}}),
        Example(
            "Set options",
            "POST /projects/{project}/options",
            {"similarity_threshold": 0.97, "archive_stale_days": 120, "consolidation_enabled": True},
        ),
        Example("Options in force", "GET /projects/{project}/options"),
        Example("Project metrics", "GET /projects/{project}/metrics"),
        Example("Shadows", "GET /projects/{project}/shadows", path=FOREIGN),
        Example(
            "Promote a shadow",
            "POST /projects/{project}/shadows/promote",
            {"name": "next", "confirm": True},
            path=FOREIGN,
        ),
        Example("Drop a shadow", "DELETE /projects/{project}/shadows", query="?name=next", path=FOREIGN),
    ],
    "Search": [
        Example(
            "Search",
            "POST /search",
            {"project": SLUG, "query": "when must the migrations run?", "limit": 1, "include_sources": True},
            role="reader",
        ),
        Example("A consolidated memory", "GET /consolidated-memories/{id}", path="{merged}", role="reader"),
        Example("Lineage", "GET /memories/{id}/lineage", query="?depth=1", path="{merged}", role="reader"),
        Example(
            "Context for a task",
            "POST /context",
            {"project": SLUG, "task": "Deploy the workers with a database migration"},
            role="reader",
        ),
    ],
    "Memories": [
        Example(
            "Add a memory",
            "POST /memories",
            {
                "project": SLUG,
                "content": "The importer needs the file as UTF-8.",
                "memory_type": "error_fix",
                "tags": ["import"],
            },
            role="agent",
            keep={"added": "id"},
        ),
        Example(
            "Add many memories",
            "POST /memories/bulk",
            {"project": SLUG, "memories": [{"content": "Stop the workers before a restore."}, {"text": "?"}]},
            role="agent",
        ),
        Example("A memory", "GET /memories/{id}", path="{added}", role="agent"),
        Example(
            "Give feedback",
            "POST /memories/{id}/feedback",
            {"helpful": True, "note": "Saved me an hour"},
            path="{added}",
            role="agent",
        ),
        Example("Report used memories", "POST /memories/used", {"ids": ["{added}"]}, role="agent"),
        Example(
            "Pin", "POST /memories/{id}/pin", {"pinned": False, "reason": "May be archived again"}, path="{pinned}"
        ),
        Example("Archive", "POST /memories/{id}/archive", {"reason": "Obsolete"}, path="{memory}"),
        Example("Restore", "POST /memories/{id}/restore", path="{memory}"),
        Example("List memories", "GET /projects/{project}/memories", query="?status=active&limit=2", role="reader"),
        Example(
            "Edit a memory",
            "PATCH /memories/{id}",
            {"content": "The importer needs the file as UTF-8 without a BOM.", "reason": "A BOM was refused"},
            path="{added}",
            role="agent",
        ),
        Example("Delete a memory", "DELETE /memories/{id}", query="?reason=Outdated", path="{memory}"),
        Example("Erase memories for good", "POST /memories/erase", {"ids": ["{memory}"]}),
        Example("Blast radius", "POST /quarantine/preview", {"project": SLUG, "ids": ["{added}"]}),
        Example("Quarantine", "POST /quarantine", {"ids": ["{added}"], "reason": "Planted"}),
    ],
    "Review and playbook": [
        Example("Review queue", "GET /projects/{project}/review", keep={"entry": "waiting.0.id"}),
        Example("Approve", "POST /review/approve", {"ids": ["{entry}"]}),
        Example("The playbook", "GET /projects/{project}/playbook", role="reader"),
        Example("Dismiss", "POST /review/dismiss", {"ids": ["{entry}"], "reason": "Not how we work any more"}),
        Example(
            "Relations",
            "GET /projects/{project}/relations",
            query="?relation_type=supersedes&limit=1",
            keep={"relation": "relations.0.id"},
        ),
        Example(
            "Add a memory test",
            "POST /projects/{project}/memory-tests",
            {"name": "lunar", "kind": "must_not_say", "text": "The moon is made of green cheese."},
        ),
        Example("Run memory tests", "POST /projects/{project}/memory-tests/run"),
        Example("Memory tests", "GET /projects/{project}/memory-tests", role="reader"),
        Example("Remove a memory test", "DELETE /projects/{project}/memory-tests", query="?name=lunar"),
        Example("Confirm relations", "POST /relations/confirm", {"ids": ["{relation}"], "reason": "It did change"}),
        Example("Reject relations", "POST /relations/reject", {"ids": ["{relation}"], "reason": "Two gateways"}),
    ],
    "Connected stores": [
        Example("Sources", "GET /projects/{project}/sources", path="agents", keep={"source": "sources.0.id"}),
        Example("Diff of a source", "GET /sources/{id}/diff", path="{source}", keep={"group": "groups.0.id"}),
        Example("Write to a source", "POST /sources/{id}/write", {"ids": ["{group}"]}, path="{source}"),
        Example("Undo in a source", "POST /sources/{id}/undo", {"ids": ["{group}"]}, path="{source}"),
    ],
    "Suggestions": [
        Example("List suggestions", "GET /suggestions", query=f"?project={SLUG}&limit=1"),
        Example("A suggestion", "GET /suggestions/{id}", path="{suggestion}"),
        Example(
            "Approve a merge",
            "POST /suggestions/{id}/approve",
            {"content": "What both of them say, in a person's words.", "note": "The newer one holds"},
            path="{suggestion}",
        ),
        Example("Reject a merge", "POST /suggestions/{id}/reject", {"note": "Two different things"}, path="{rejected}"),
        Example("Keep both as variants", "POST /suggestions/{id}/keep", {"note": "Two gateways"}, path="{kept}"),
        Example("Withdraw a suggestion", "DELETE /suggestions/{id}", path="{withdrawn}"),
        Example(
            "Decide on many merges",
            "POST /suggestions/decide",
            {"project": SLUG, "decision": "reject", "differ_only_in": "value: after #", "note": "Two gateways"},
        ),
    ],
    "Plan, history, rollback": [
        Example("Preview a run", "POST /plan", {"project": FOREIGN}),
        Example(
            "History",
            "GET /projects/{project}/history",
            query="?operation=merge&limit=1",
            keep={"group": "history.0.group_id"},
        ),
        Example("Changes", "GET /projects/{project}/changes", query="?limit=1"),
        Example(
            "Roll back",
            "POST /rollback",
            {"target": "{group}", "reason": "Incorrect merge"},
            keep={"rollback": "rollback_id"},
        ),
    ],
    "Health": [
        Example("Is the process alive?", "GET /health/live", role=""),
        Example("Can it work?", "GET /health/ready", role=""),
        Example("Prometheus metrics", "GET /metrics", role=""),
    ],
}
EXAMPLES = [replace(example, chapter=chapter) for chapter, examples in CHAPTERS.items() for example in examples]


@dataclass(frozen=True)
class ExampleReply:
    """An example with the path and body sent and the reply."""

    example: Example
    path: str
    body: Any
    status: int
    reply: str
    media_type: str


def connect_store(api: ApiContext) -> None:
    """Connect a store with the project ``agents``, which has one merge to write."""
    url = api.pipeline.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    os.environ["AGNO_DATABASE_URL"] = url
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(AGNO.create)
        Store(AGNO, connection).add(("ada", word(FACTS[0], at)) for at in range(2))
    config = {"kind": "agno", "url_env": "AGNO_DATABASE_URL"}
    connect_source(api.pipeline.engine, "agents-agno", project="agents", config=config, mode="review")
    sync_source(api.pipeline.engine, "agents-agno")
    api.pipeline.run("agents")


def prepare_rows(api: ApiContext) -> dict[str, str]:
    """Add rows that the examples need; return ids of a job, memories and suggestions by name."""
    api.pipeline.write(
        "INSERT INTO {s}.playbook_entries (project_id, content, content_hash, status, category, confidence) "
        "SELECT id, 'Batch the requests of the search client.', 'h', 'review', 'performance', 0.82 "
        "FROM {s}.projects WHERE slug = :slug",
        slug=SLUG,
    )
    pinned = api.client().post(f"{API}/memories/{api.memory}/pin").json()["id"]
    others = api.pipeline.rows(
        "SELECT id FROM {s}.task_memories WHERE NOT is_consolidated AND project_id = :of AND NOT pinned ORDER BY id",
        of=api.pipeline.project().id,
    )
    merged = api.pipeline.value("SELECT id FROM {s}.consolidated_memories WHERE kind = 'merged'")
    api.pipeline.write(
        "INSERT INTO {s}.memory_relations (project_id, a_id, b_id, relation_type, confidence, reason, status) "
        "VALUES (:of, :a, :b, 'supersedes', 0.6, 'dates: the sentences that differ', 'candidate')",
        of=api.pipeline.project().id,
        a=others[0].id,
        b=others[1].id,
    )
    suggestion, rejected, kept, withdrawn, _ = add_suggestions(api, 5)
    connect_store(api)
    run_shadow(api.pipeline.engine, FOREIGN, {"t_merge": 0.95}, settings=api.pipeline.settings, triggered_by="tester")
    return {
        "merged": str(merged),
        "job": str(api.job_id),
        "pinned": pinned,
        "memory": str(others[0].id),
        "suggestion": suggestion,
        "rejected": rejected,
        "kept": kept,
        "withdrawn": withdrawn,
    }


def send_examples(api: ApiContext, examples: Sequence[Example] = EXAMPLES) -> list[ExampleReply]:
    """Send the examples in order and return their replies."""
    kept = prepare_rows(api)
    return [_send_example(example, api, kept) for example in examples]


def _send_example(example: Example, api: ApiContext, kept: dict[str, str]) -> ExampleReply:
    path = re.sub(r"\{\w+\}", _fill(example.path, kept), example.route) + example.query
    body = _fill(example.body, kept)
    response = api.client(example.role or None).request(example.method, path, json=body)
    for name, where in example.keep.items():
        kept[name] = str(_find_value(response.json(), where))
    return ExampleReply(
        example, path, body, response.status_code, response.text, response.headers["content-type"].partition(";")[0]
    )


def _fill(value: Any, kept: Mapping[str, str]) -> Any:
    """Return the value with every ``{name}`` in it replaced."""
    if isinstance(value, str):
        return value.format_map(kept)
    if isinstance(value, Mapping):
        return {name: _fill(one, kept) for name, one in value.items()}
    return [_fill(one, kept) for one in value] if isinstance(value, list) else value


def _find_value(reply: Any, where: str) -> Any:
    for step in where.split("."):
        reply = reply[int(step)] if step.isdigit() else reply[step]
    return reply


_OLDER_NAMES = """## Older names

Routes of earlier versions answer as before and are not in the schema. So do older names of fields: `project_id` is
`project`, `task_description` is `task`, `abstraction_levels` is `levels`, `memory_types` is `types`, `consolidation_id`
is `target`. Routes are without the prefix `/api/v1`:
"""
INTRODUCTION = """# HTTP API

```sh
consolidation keys create --role admin    # prints the key, only once
consolidation serve                       # http://127.0.0.1:8642/docs: all routes, to try out
curl -H "Authorization: Bearer $KEY" http://127.0.0.1:8642/api/v1/projects/notes/playbook
```

- **Keys** go into `Authorization: Bearer KEY` or `X-API-Key: KEY`. A reader searches and reads, an agent also writes
  memories, an admin may do everything. A key is for one project or for all. Errors: 401 without a valid key; 403 for a
  lower role or another project; 404 for rows of another project. `CONSOLIDATION_API_AUTH=off` needs no keys; it is
  refused unless the host is a loopback address.
- **Projects** are named by slug or id, in paths and in `project`. What belongs to a project is below
  `/projects/{project}`.
- **Names** are those of the [glossary](glossary.md), the command line and the [MCP tools](mcp.md). Older names
  [still answer](#older-names).
- **Clients** can be generated from `/openapi.json`, for example by `openapi-python-client`.
- **Errors** are problems (RFC 9457): `error` is a code for programs, `message` says what is wrong and what is allowed.
  `conflicts` lists ids of rows (409), `errors` lists invalid values (422), each with what would be right.
  Unknown fields and unknown query parameters are refused: the message names them and the known ones. A body is at most
  `CONSOLIDATION_API_MAX_BODY` (1 MB), else 413.
- **Requests**: `X-Request-ID` is accepted or created, returned, and logged with project and job. A key may make
  `CONSOLIDATION_API_RATE` requests a second (500), up to `CONSOLIDATION_API_BURST` (1,000) at once; then 429 with
  `Retry-After`. The limit is per process.
- **Runs** are queued here and executed by the Dagster daemon, or by `consolidation run --pending`.

Below is one request of each route with its reply. Long texts and lists are cut. Ids, times, durations, hashes and
scores are replaced, so that the page changes only when the replies do.
"""


def to_document(answers: Sequence[ExampleReply]) -> str:
    """Return the page as Markdown."""
    parts, chapter = [INTRODUCTION], ""
    for answer in answers:
        if answer.example.chapter != chapter:
            chapter = answer.example.chapter
            parts.append(f"## {chapter}\n")
        parts.append(_section(answer))
    return _replace_varying("\n".join([*parts, _list_older_names()]))


def _list_older_names() -> str:
    rows = [f"| `{old}` | `{old.split()[0]} {path}` |" for old, path in ALIASES.items()]
    return "\n".join([_OLDER_NAMES, "| older name | name |", "|---|---|", *rows, ""])


def _replace_varying(page: str) -> str:
    """Replace values that differ between runs; ids by fixed ones in order of appearance."""
    order = {found: at for at, found in enumerate(dict.fromkeys(_ID.findall(page)))}
    page = _ID.sub(lambda found: str(uuid5(NAMESPACE_URL, str(order[found[0]]))), page)
    page = _TIME.sub("2026-01-08T15:00:00Z", page)
    page = _DAY.sub("2026-01-08", page)
    page = _MEASURED.sub(r"\g<1>0.5", page)
    page = _HASH.sub("0" * 64, page)
    page = _ROWS_HASH.sub(r"\g<1>0", page)
    return _CURSOR.sub(rf"\g<1>{'0' * 16}", page)


_ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)")
_DAY = re.compile(r'(?<=")\d{4}-\d\d-\d\d(?=")')
_MEASURED = re.compile(r'("(?:\w*seconds|search_time_ms|relevance_score)": |_seconds_sum{.*} )[\d.e-]+')
# Hashes, as of change sets with random ids and of the code; that of rows stands behind their number.
_HASH = re.compile(r"\b[0-9a-f]{64}\b")
_ROWS_HASH = re.compile(r'("\d+:)-?\d{6,}(?=")')
_CURSOR = re.compile(r'("next": ")\w{40,}')


def _section(answer: ExampleReply) -> str:
    example = answer.example
    lines = [f"### {example.title}: `{example.method} {example.route}`", ""]
    lines += ["```http", f"{example.method} {answer.path}"]
    if answer.body is not None:
        lines += ["", json.dumps(answer.body, indent=2, ensure_ascii=False)]
    lines += ["```", "", f"{answer.status}:", ""]
    if answer.media_type == "application/json":
        reply = json.dumps(shorten(json.loads(answer.reply)), indent=2, ensure_ascii=False)
        return "\n".join([*lines, "```json", reply, "```", ""])
    text = [line for line in answer.reply.splitlines() if not re.match(r"#|\w+_(bucket|created)\b", line)]
    return "\n".join([*lines, "```text", *text[:SHOWN_KEYS], "```", ""])


def shorten(value: Any) -> Any:
    """Return the value with long texts, lists and nested objects cut."""
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return value[:LONGEST_TEXT] + "…"
    if isinstance(value, list):
        return [shorten(one) for one in value[:SHOWN_ITEMS]] + (["…"] if len(value) > SHOWN_ITEMS else [])
    if isinstance(value, dict):
        return {name: _shorten_inner(_even(one) if name.endswith("_by_phase") else one) for name, one in value.items()}
    return value


def _even(durations: Mapping[str, float]) -> dict[str, float]:
    """Return durations by phase with one value for all."""
    return dict.fromkeys(durations, 0.5)


def _shorten_inner(value: Any) -> Any:
    """Cut a value inside an object, also maps such as metrics and options."""
    if isinstance(value, dict) and len(value) > SHOWN_KEYS:
        some = dict(list(value.items())[: SHOWN_KEYS // 2])
        return {**shorten(some), "…": f"{len(value) - len(some)} more"}
    return shorten(value)
