"""The OpenAPI document of all HTTP routes at ``/openapi.json``, shown by the page at ``/docs``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from inspect import getdoc
from typing import Any, Final

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route

from cosyvoice_stream.server.access import is_locked
from cosyvoice_stream.server.openapi_details import (
    DETAILS,
    FIRST_TAG,
    FORM,
    JSON,
    TAGS,
    URL_FORM,
    Details,
)
from cosyvoice_stream.version import __version__

PATH: Final = "/openapi.json"

_PARAMETER: Final = re.compile(r"\{(\w+)(?::\w+)?\}")
_REF: Final = "#/components/schemas/{model}"
_DESCRIPTION: Final = (
    "Text to speech, streamed. The WebSocket interfaces are not described here: the native one at "
    "/v1/stream is in docs/asyncapi.yaml. Errors have the form of the interface that a path "
    "belongs to; on our own paths that is Error."
)
_ERROR: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "how_to_fix": {"type": "string"},
                "retry_after_ms": {"type": "integer"},
                "reason": {"type": "string"},
                "quality": {"type": "object"},
            },
        }
    },
}


def openapi_routes() -> list[Route]:
    """Return the route of the document."""
    return [Route(PATH, openapi, methods=["GET"], include_in_schema=False)]


async def openapi(request: Request) -> JSONResponse:
    """Return the document."""
    return JSONResponse(document(request.app.routes))


def document(routes: Iterable[BaseRoute]) -> dict[str, Any]:
    """Describe routes.

    Args:
        routes: Of an application. WebSockets and those with ``include_in_schema=False`` are left
            out.

    Returns:
        An OpenAPI 3.1 document.
    """
    schemas: dict[str, Any] = {"Error": _ERROR}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if isinstance(route, Route) and route.include_in_schema:
            path = _PARAMETER.sub(r"{\1}", route.path)
            for method in sorted((route.methods or set()) - {"HEAD"}):
                operation = _operation(method, path, route, schemas)
                paths.setdefault(path, {})[method.lower()] = operation
    tags = dict.fromkeys((FIRST_TAG, *(tag for _, tag in TAGS)))
    used = [tag for tag in tags if _is_used(tag, paths)]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "cosyvoice-stream",
            "version": __version__,
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in used],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }


def _is_used(tag: str, paths: dict[str, dict[str, Any]]) -> bool:
    operations = (operation for path in paths.values() for operation in path.values())
    return any(tag in operation["tags"] for operation in operations)


def _operation(method: str, path: str, route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    details = DETAILS.get((method, path), Details())
    name = getattr(route.endpoint, "__name__", "endpoint")
    lines = (getdoc(route.endpoint) or name).split("\n\n")[0].splitlines()
    operation: dict[str, Any] = {
        "tags": [next(tag for prefix, tag in TAGS if path.startswith(prefix))],
        "summary": " ".join(lines).rstrip(".").replace("``", "`"),
        "operationId": f"{route.name}_{method.lower()}"
        if len(route.methods or ()) > 2
        else route.name,
        "parameters": _parameters(path, details),
        "responses": {
            str(details.status): _success(details),
            "default": {
                "description": "An error",
                "content": {JSON: {"schema": {"$ref": _REF.format(model="Error")}}},
            },
        },
    }
    if details.note:
        operation["description"] = details.note
    if is_locked(path):
        operation["security"] = [{"bearer": []}, {"header": []}, {}]
    if (body := _body(details, schemas)) is not None:
        operation["requestBody"] = {"required": True, "content": body}
    return operation


def _parameters(path: str, details: Details) -> list[dict[str, Any]]:
    found = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(path)
    ]
    return found + [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in details.query.items()
    ]


def _success(details: Details) -> dict[str, Any]:
    binary = {"type": "string", "format": "binary"}
    content = {
        kind: {"schema": binary if kind.startswith("audio/") else {}} for kind in details.answers
    }
    return {"description": "Success", **({"content": content} if content else {})}


def _body(details: Details, schemas: dict[str, Any]) -> dict[str, Any] | None:
    if details.body is not None:
        content: dict[str, Any] = {"schema": _schema(details.body, schemas)}
        kinds = [JSON]
    elif details.form:
        form: dict[str, Any] = {"type": "object", "properties": details.form}
        content = {"schema": {**form, "required": list(details.required)}}
        files = any(field.get("format") == "binary" for field in details.form.values())
        kinds = [FORM] if files else [URL_FORM, FORM]
    else:
        return None
    if details.example is not None:
        content["example"] = details.example
    return dict.fromkeys(kinds, content)


def _schema(model: type[BaseModel], schemas: dict[str, Any]) -> dict[str, Any]:
    """Put a model and those that it is made of among the schemas; return a reference to it."""
    schema = model.model_json_schema(ref_template=_REF)
    schemas.update(schema.pop("$defs", {}))
    schemas[model.__name__] = schema
    return {"$ref": _REF.format(model=model.__name__)}
