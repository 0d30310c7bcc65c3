"""The composition root: settings → engine → services → one ASGI application."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.routing import WebSocketRoute

from cosyvoice_stream.asr import transcriber_of
from cosyvoice_stream.engine import Engine
from cosyvoice_stream.errors import ConfigError, VoiceStreamError
from cosyvoice_stream.server.access import AccessControl
from cosyvoice_stream.server.audio_cache import AudioCache
from cosyvoice_stream.server.consents import ConsentStore
from cosyvoice_stream.server.dashscope_routes import dashscope_routes
from cosyvoice_stream.server.demo_page import demo_routes
from cosyvoice_stream.server.elevenlabs_socket import elevenlabs_socket_routes
from cosyvoice_stream.server.elevenlabs_speech import elevenlabs_speech_routes
from cosyvoice_stream.server.elevenlabs_voices import elevenlabs_voice_routes
from cosyvoice_stream.server.encoders import warm_up_codecs
from cosyvoice_stream.server.engine_keeper import EngineKeeper
from cosyvoice_stream.server.environment import PREFIX
from cosyvoice_stream.server.extensions import Extension, load_extensions
from cosyvoice_stream.server.grpc_service import GrpcService
from cosyvoice_stream.server.http import answer_unexpected, api_routes, exception_handlers
from cosyvoice_stream.server.lexicon_book import LexiconBook
from cosyvoice_stream.server.lexicon_routes import lexicon_routes
from cosyvoice_stream.server.limits import Admission
from cosyvoice_stream.server.linger import Linger
from cosyvoice_stream.server.lint import lint_routes
from cosyvoice_stream.server.observability import Metrics
from cosyvoice_stream.server.openai_models import openai_model_routes
from cosyvoice_stream.server.openai_realtime import openai_realtime_routes
from cosyvoice_stream.server.openai_speech import openai_speech_routes
from cosyvoice_stream.server.openai_voices import openai_voice_routes
from cosyvoice_stream.server.openapi import openapi_routes
from cosyvoice_stream.server.prompts import Prompt, load_prompts, speak_prompts
from cosyvoice_stream.server.reference_api import reference_routes
from cosyvoice_stream.server.services import Readiness, Services, session_defaults, session_limits
from cosyvoice_stream.server.sessions import Sessions
from cosyvoice_stream.server.settings import Settings
from cosyvoice_stream.server.speech import SpeechService
from cosyvoice_stream.server.vendor_paths import VendorPaths
from cosyvoice_stream.server.voice_service import VoiceService
from cosyvoice_stream.server.webrtc import make_peers, webrtc_routes
from cosyvoice_stream.server.websocket import websocket_endpoint
from cosyvoice_stream.server.whep import whep_routes
from cosyvoice_stream.server.wyoming_announcement import Announcement
from cosyvoice_stream.server.wyoming_service import WyomingService
from cosyvoice_stream.voices import VoiceStore

ENGINES = ("lite", "cosyvoice")
"""Names that `build_engine` knows."""


def build_engine(settings: Settings) -> Engine:
    """Make the engine that the settings name, without loading its model.

    Raises:
        ConfigError: There is no engine of this name, or what it needs is missing.
        ModelLoadError: The folder holds no checkpoint that the engine runs.
    """
    if settings.engine == "lite":
        from cosyvoice_stream.lite.engine import LiteEngine

        return LiteEngine(threads=settings.threads)
    if settings.engine == "cosyvoice":
        return _build_cosyvoice(settings)
    raise ConfigError(
        f"there is no engine {settings.engine!r}",
        how_to_fix=f"set {PREFIX}ENGINE to one of: {', '.join(ENGINES)}",
    )


def _build_cosyvoice(settings: Settings) -> Engine:
    if settings.model_dir is None:
        raise ConfigError(
            "the engine 'cosyvoice' needs a checkpoint",
            how_to_fix="run `cosyvoice-stream download cosyvoice3` and set "
            f"{PREFIX}MODEL_DIR to its folder",
        )
    try:
        from cosyvoice_stream.cosyvoice.config import EngineConfig
        from cosyvoice_stream.cosyvoice.engine import CosyVoiceEngine
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the engine 'cosyvoice' needs the package {error.name!r}",
            how_to_fix="pip install 'cosyvoice-stream[cosyvoice]'",
        ) from error
    config = EngineConfig(
        device=settings.device,
        precision=settings.precision,
        slots=settings.model_slots,
        memory_mb=settings.model_memory_mb,
        first_hop=settings.first_hop,
        flow_steps=settings.flow_steps,
        right_context=settings.right_context,
        left_context_s=settings.left_context_s,
        interleave_text=settings.interleave_text,
        prompt_cache_mb=settings.prompt_cache_mb,
        prompt_cache_dir=settings.prompt_cache_dir,
        threads=settings.threads,
        compile=settings.compile_model,
    )
    return CosyVoiceEngine(settings.model_dir, config)


def create_app(settings: Settings, engine: Engine | None = None) -> Starlette:
    """Wire one application; several may live in one process.

    Args:
        settings: How to run.
        engine: The engine to use instead of the one that the settings name; the application
            starts and closes it.

    Returns:
        The application. ``app.state.services`` holds its `Services`, ``app.state.sessions`` the
        `Sessions` among them, ``app.state.grpc`` and ``app.state.wyoming`` the
        services on other ports if there are any, ``app.state.extensions`` what
        `load_extensions` has found.

    Raises:
        ConfigError: The settings name an engine that does not exist, a lexicon of no known form, or
            prompts that are wrong.
    """
    engine = EngineKeeper(engine or build_engine(settings))
    metrics = Metrics()
    cache = None
    if settings.audio_cache_mb:
        cache = AudioCache(
            int(settings.audio_cache_mb * 1_000_000), unseeded=settings.cache_unseeded
        )
    voices = VoiceService(
        engine,
        VoiceStore(settings.voices_dir, max_voices=settings.max_voices),
        require_consent=settings.require_consent,
        policy=settings.reference_policy,
        transcriber=transcriber_of(settings.asr_model),
        max_reference_s=settings.max_reference_s,
        max_per_owner=settings.max_voices_per_key,
        forgotten=cache.forget_voice if cache is not None else lambda _: None,
    )
    lexicon = LexiconBook(settings.lexicon_file)
    readiness = Readiness(metrics, engine.start, voices.warm_up, warm_up_codecs, lexicon.start)
    engine.watch(readiness.engine_lost, readiness.engine_back)
    admission = Admission(
        settings.max_live_utterances,
        max_per_key=settings.max_live_per_key,
        max_wait_s=settings.queue_wait_s,
    )
    speech = SpeechService(
        engine,
        voices,
        admission,
        lexicon=lambda: lexicon.current,
        observer=metrics,
        cache=cache,
        hold_back_s=settings.hold_back_ms / 1000,
    )
    services = Services(
        settings=settings,
        engine=engine,
        voices=voices,
        consents=ConsentStore(settings.voices_dir / "consents", max_consents=settings.max_voices),
        lexicon=lexicon,
        admission=admission,
        speech=speech,
        sessions=Sessions(
            speech,
            voices,
            metrics,
            require_ready=readiness.require_engine,
            limits=session_limits(settings),
            defaults=session_defaults(settings),
            max_sessions=settings.max_sessions,
            max_sessions_per_key=settings.max_sessions_per_key,
            stall_timeout_s=settings.stall_timeout_s,
            resume_s=settings.resume_s,
            idle_timeout_s=settings.idle_timeout_s,
            max_session_s=settings.max_session_s,
        ),
        metrics=metrics,
        readiness=readiness,
        peers=make_peers(settings),
    )
    grpc = None
    if settings.grpc_port is not None:
        grpc = GrpcService(services, settings.grpc_port)
        readiness.also(grpc.start)
    wyoming = None
    if settings.wyoming_port is not None:
        wyoming = WyomingService(
            services,
            settings.wyoming_host,
            settings.wyoming_port,
            Announcement(settings.wyoming_host) if settings.wyoming_announce else None,
        )
        readiness.also(wyoming.start)
    extensions = load_extensions(services)
    for extension in extensions:
        readiness.also(extension.start)
    metrics.watch_live_utterances(lambda: admission.live)
    app = Starlette(
        routes=[
            WebSocketRoute("/v1/stream", websocket_endpoint),
            *openai_realtime_routes(),
            *api_routes(),
            *lexicon_routes(),
            *lint_routes(),
            *openai_speech_routes(),
            *openai_model_routes(),
            *openai_voice_routes(),
            *reference_routes(),
            *openapi_routes(),
            *dashscope_routes(),
            *elevenlabs_speech_routes(),
            *elevenlabs_socket_routes(),
            *elevenlabs_voice_routes(),
            *webrtc_routes(),
            *whep_routes(),
            *(route for extension in extensions for route in extension.routes),
            *demo_routes(),
        ],
        middleware=[
            Middleware(Linger),
            Middleware(VendorPaths),
            Middleware(AccessControl, settings=settings, metrics=metrics),
            # Starlette's own place for unexpected errors raises them again after the answer, and
            # uvicorn then logs their text, which may quote a user.
            Middleware(ExceptionMiddleware, handlers={Exception: answer_unexpected}),
        ],
        exception_handlers=exception_handlers(),
        lifespan=_lifespan,
    )
    app.state.services = services
    app.state.prompts = _prompts(settings)
    app.state.sessions = services.sessions
    app.state.grpc = grpc
    app.state.wyoming = wyoming
    app.state.extensions = extensions
    return app


def _prompts(settings: Settings) -> list[Prompt]:
    if settings.prompts_file is None:
        return []
    if not settings.audio_cache_mb:
        raise ConfigError(
            "prompts need a place to be kept",
            how_to_fix=f"set {PREFIX}AUDIO_CACHE_MB, or no {PREFIX}PROMPTS_FILE",
        )
    return load_prompts(settings.prompts_file, session_defaults(settings))


async def _speak_prompts(app: Starlette) -> None:
    services: Services = app.state.services
    with contextlib.suppress(VoiceStreamError):  # what kept the engine from its start is told there
        await services.readiness.settled()
        await speak_prompts(services.speech, app.state.prompts)


@contextlib.asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    """Start the engine beside the first requests; close everything in the opposite order."""
    services: Services = app.state.services
    tasks = [
        asyncio.create_task(services.readiness.start(), name="start engine"),
        asyncio.create_task(services.metrics.measure_loop_lag(), name="loop lag"),
        asyncio.create_task(services.lexicon.watch(), name="watch the lexicon"),
    ]
    if app.state.prompts:
        tasks.append(asyncio.create_task(_speak_prompts(app), name="speak prompts"))
    try:
        yield
    finally:
        services.readiness.stop()
        extensions: list[Extension] = app.state.extensions
        for extension in extensions:
            await extension.stop()
        if services.peers is not None:
            await services.peers.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if app.state.grpc is not None:
            await app.state.grpc.stop()
        if app.state.wyoming is not None:
            await app.state.wyoming.stop()
        await services.voices.close()
        await services.engine.close()
