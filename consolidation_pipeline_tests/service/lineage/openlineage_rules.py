"""Rules of OpenLineage events: by the classes that the library generates from the specification, and by JSON schemas.

The library's package holds no JSON schema. With OPENLINEAGE_SPEC, a folder with the published ``OpenLineage.json`` and
``facets/*.json``, events are validated against these too.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import attr
from jsonschema import Draft202012Validator, FormatChecker
from openlineage.client import event_v2
from openlineage.client import facet_v2 as facet_v2
from openlineage.client.generated.base import BaseFacet
from referencing import Registry, Resource

from consolidation_pipeline.service import lineage
from consolidation_pipeline.service.lineage import facets as facets

Facet = tuple[str, Mapping[str, Any]]

PUBLISHED = os.environ.get("OPENLINEAGE_SPEC")
_BASE_FIELDS = {"_producer", "_schemaURL", "_deleted"}
# jsonschema leaves these formats unchecked without further packages.
_FORMATS = {
    "date-time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
    "uri": r"[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"{}|\\^`]+",
}


def list_facets(event: Mapping[str, Any]) -> Iterator[Facet]:
    """Yield key and content of each facet of an event."""
    for part in (event["run"], event["job"], *event["inputs"], *event["outputs"]):
        for kind in ("facets", "inputFacets", "outputFacets"):
            yield from part.get(kind, {}).items()


def check_event(event: Mapping[str, Any]) -> None:
    """Raise if an event is not what the library's classes or our schemas say."""
    event_v2.RunEvent(
        run=event_v2.Run(**_only(event["run"], event_v2.Run)),
        job=event_v2.Job(**_only(event["job"], event_v2.Job)),
        eventType=event_v2.RunState(event["eventType"]),
        inputs=[event_v2.InputDataset(**_only(one, event_v2.InputDataset)) for one in event["inputs"]],
        outputs=[event_v2.OutputDataset(**_only(one, event_v2.OutputDataset)) for one in event["outputs"]],
        eventTime=event["eventTime"],
        producer=event["producer"],
    )
    assert set(event) == {"eventType", "eventTime", "run", "job", "inputs", "outputs", "producer", "schemaURL"}
    classes = {one._get_schema(): one for one in _list_classes(BaseFacet)}
    own = {schema["$id"]: schema for schema in load_own_schemas()}
    for _, facet in list_facets(event):
        kind = classes[facet["_schemaURL"]]
        kind(**_only({name: value for name, value in facet.items() if name not in _BASE_FIELDS}, kind))
        if facet["_schemaURL"] in own:
            validate(facet, own[facet["_schemaURL"]])


def _only(given: Mapping[str, Any], kind: type[Any]) -> dict[str, Any]:
    """Return the fields; raise if the class has no such field, which its initializer does for most."""
    known = {field.name for field in attr.fields(kind)}
    assert set(given) <= known, (kind, set(given) - known)
    return dict(given)


def _list_classes(kind: type[Any]) -> Iterator[type[Any]]:
    for one in kind.__subclasses__():
        yield one
        yield from _list_classes(one)


def load_own_schemas() -> list[dict[str, Any]]:
    """Return the JSON schemas of the facets of the package."""
    folder = files(lineage) / "schemas"
    return [json.loads(path.read_text("utf-8")) for path in folder.iterdir()]


def validate(instance: Any, schema: Mapping[str, Any], registry: Any = None) -> None:
    """Raise if an instance does not fit a JSON schema, formats included."""
    Draft202012Validator.check_schema(schema)
    registered = {} if registry is None else {"registry": registry}
    Draft202012Validator(schema, format_checker=_build_format_checker(), **registered).validate(instance)


def _build_format_checker() -> FormatChecker:
    checker = FormatChecker()
    for name, pattern in _FORMATS.items():
        checker.checks(name)(partial(_fits, pattern))
    return checker


def _fits(pattern: str, value: object) -> bool:
    return not isinstance(value, str) or re.fullmatch(pattern, value) is not None


def validate_as_published(event: Mapping[str, Any], folder: Path) -> list[str]:
    """Validate an event and its facets against the published schemas in a folder; return the URLs of those used.

    Files without ``$id``, such as the examples in ``tests/`` of the specification, are no schemas.
    """
    read = [json.loads(path.read_text("utf-8")) for path in sorted(folder.rglob("*.json"))]
    schemas = [one for one in read if isinstance(one, dict) and "$id" in one]
    registry = Registry().with_resources([(one["$id"], Resource.from_contents(one)) for one in schemas])
    known = {one["$id"] for one in schemas}
    used = [event["schemaURL"], *(facet["_schemaURL"] for _, facet in list_facets(event))]
    found = [url for url in used if url.partition("#")[0] in known]
    assert event["schemaURL"] in found
    for url, instance in [(used[0], event), *zip(used[1:], (facet for _, facet in list_facets(event)), strict=True)]:
        if url in found:
            validate(instance, {"$ref": url}, registry)
    return found
