"""OpenAI's list of models: the engine, and the names by which OpenAI's clients ask for speech."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from cosyvoice_stream.server.error_map import ModelNotFound
from cosyvoice_stream.server.services import services_of

MODELS: Final = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
"""Other names of the one engine."""

_CREATED: Final = 1_764_547_200
"""A whole number that clients insist on; when a model was made is not known."""


def openai_model_routes() -> list[Route]:
    """Return the routes of this module."""
    return [
        Route("/v1/models", openai_models, methods=["GET"]),
        Route("/v1/audio/models", audio_models, methods=["GET"]),
        Route("/v1/models/{model}", openai_model, methods=["GET"]),
        Route("/v1/cluster/auth", xinference_auth, methods=["GET"]),
    ]


async def openai_models(request: Request) -> JSONResponse:
    """List the engine, then its other names."""
    engine = services_of(request).engine.info.name
    return JSONResponse({"object": "list", "data": [_model(id) for id in (engine, *MODELS)]})


async def audio_models(request: Request) -> JSONResponse:
    """List the same ids as Open WebUI reads them."""
    engine = services_of(request).engine.info.name
    return JSONResponse({"models": [{"id": id} for id in (engine, *MODELS)]})


async def openai_model(request: Request) -> JSONResponse:
    """Describe one model."""
    model = request.path_params["model"]
    if model not in (services_of(request).engine.info.name, *MODELS):
        raise ModelNotFound
    return JSONResponse(_model(model))


async def xinference_auth(request: Request) -> JSONResponse:
    """Tell Xinference's client whether to send its key."""
    return JSONResponse({"auth": bool(services_of(request).settings.api_keys)})


def _model(model: str) -> dict[str, Any]:
    return {
        "id": model,
        "object": "model",
        "created": _CREATED,
        "owned_by": "cosyvoice-stream",
        # Xinference's client looks here before it speaks.
        "model_type": "audio",
        "model_ability": ["text2audio"],
    }
