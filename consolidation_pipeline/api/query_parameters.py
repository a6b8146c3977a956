"""Query parameters of the API: an unknown one is refused, as an unknown field of a body is.

A misspelt filter would else be ignored, and the reply would hold rows that the caller did not ask for.
"""

from __future__ import annotations

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import Request


async def refuse_unknown_parameters(request: Request) -> None:
    """Raise RequestValidationError for query parameters that the route of a request does not declare."""
    if not request.query_params:
        return
    known = list_query_parameters(request.scope["route"])
    unknown = [name for name in dict.fromkeys(request.query_params) if name not in known]
    if unknown:
        hint = f"known are {', '.join(known)}" if known else "this route has none"
        raise RequestValidationError(
            [{"loc": ("query", name), "msg": f"unknown query parameter; {hint}"} for name in unknown]
        )


def list_query_parameters(route: APIRoute) -> list[str]:
    """Return the names of the query parameters of a route, in alphabetical order."""
    dependants = [route.dependant, *route.dependant.dependencies]
    return sorted(field.alias for dependant in dependants for field in dependant.query_params)
