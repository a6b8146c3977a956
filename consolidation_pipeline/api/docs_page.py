"""The documentation page of the API, dark where the browser asks for it."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import HTMLResponse

router = APIRouter(include_in_schema=False)

# Path of the files of Swagger UI and Redoc.
STATIC_PATH = "/docs/static"
# Swagger UI has a dark style, but leaves the choice to the page.
_FOLLOW_SCHEME = """<script>
document.documentElement.classList.toggle("dark-mode", matchMedia("(prefers-color-scheme: dark)").matches)
</script>
</head>"""


@router.get("/docs")
def show_docs(request: Request) -> HTMLResponse:
    """Show the operations of the API, from files of this server."""
    root = request.scope.get("root_path", "")
    page = get_swagger_ui_html(
        openapi_url=f"{root}{request.app.openapi_url}",
        title=f"{request.app.title} - Swagger UI",
        swagger_js_url=f"{root}{STATIC_PATH}/swagger-ui-bundle.js",
        swagger_css_url=f"{root}{STATIC_PATH}/swagger-ui.css",
        swagger_favicon_url=f"{root}{STATIC_PATH}/favicon.png",
    )
    return HTMLResponse(bytes(page.body).decode().replace("</head>", _FOLLOW_SCHEME, 1))
