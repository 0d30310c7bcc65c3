"""What telephony adds to an application: who leads calls, the SIP endpoint, the calls over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from cosyvoice_stream.errors import ConfigError, InvalidState, PeerGone, VoiceStreamError
from cosyvoice_stream.server.environment import PREFIX
from cosyvoice_stream.server.error_map import NotInstalled
from cosyvoice_stream.server.json_body import parse_body, read_body
from cosyvoice_stream.server.prompts import Prompt, speak_prompts
from cosyvoice_stream.server.services import Services, session_defaults
from cosyvoice_stream.telephony.desk import Desk

if TYPE_CHECKING:
    from cosyvoice_stream.server.settings import Settings
    from cosyvoice_stream.telephony.call import Dialogue, PhoneCall
    from cosyvoice_stream.telephony.line import CallInfo
    from cosyvoice_stream.telephony.menu import Menu
    from cosyvoice_stream.telephony.sip_service import SipService

_MAX_BODY_BYTES: Final = 64 * 1024


class _Place(BaseModel):
    """Body of ``POST /v1/calls``."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    to: Annotated[str, Field(min_length=1, max_length=500)]
    text: Annotated[str, Field(min_length=1, max_length=10_000)] | None = None
    """Said when the call is answered, and then it is hung up; without it the menu leads."""
    voice: Annotated[str, Field(max_length=128)] | None = None
    language: Annotated[str, Field(max_length=64)] | None = None


class Telephony:
    """Implements `Extension`.

    Args:
        services: Of the application.

    Raises:
        ConfigError: The menu is wrong, or a package is not installed.

    Attributes:
        desk: Takes calls of every line.
        sip: The SIP endpoint, where the settings name its port.
    """

    def __init__(self, services: Services) -> None:
        settings = services.settings
        self.desk = Desk(services, self._lead)
        self.sip: SipService | None = None
        self._services = services
        self._menu: Menu | None = None
        self._prompts: asyncio.Task[None] | None = None
        if settings.sip_port is not None:
            self.sip = _sip_service(services, self.desk)
        self._agent = _agent(settings)
        path = settings.phone_menu
        if path is None and self.sip is not None and self._agent is None:
            path = Path(str(resources.files("cosyvoice_stream.telephony") / "demo_menu.yaml"))
        if path is not None:
            from cosyvoice_stream.telephony.menu import load_menu

            self._menu = load_menu(path)

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """Calls over HTTP."""
        return [
            Route("/v1/calls", self._list, methods=["GET"]),
            Route("/v1/calls", self._place, methods=["POST"]),
            Route("/v1/calls/{call}", self._hang_up, methods=["DELETE"]),
        ]

    async def start(self) -> None:
        """Listen; the prompts of the menu are rendered meanwhile.

        Raises:
            ConfigError: A port cannot be had.
        """
        if self._menu is not None:
            self._prompts = asyncio.create_task(self._render(self._menu), name="phone prompts")
        if self.sip is not None:
            await self.sip.start()

    async def stop(self) -> None:
        """Hang up. Safe to call twice."""
        if self._prompts is not None:
            self._prompts.cancel()
            await asyncio.gather(self._prompts, return_exceptions=True)
        if self.sip is not None:
            await self.sip.stop()

    def _lead(self, info: CallInfo) -> Dialogue:
        """Who leads a call that comes in."""
        return self._by_menu if self._agent is None else self._by_agent

    async def _by_agent(self, call: PhoneCall) -> None:
        assert self._agent is not None
        try:
            await self._agent(call)
        except PeerGone as error:
            call.log.warning("%s", error)
            if self._menu is not None:
                await self._by_menu(call)

    async def _by_menu(self, call: PhoneCall) -> None:
        import httpx

        from cosyvoice_stream.telephony.menu_dialogue import MenuDialogue
        from cosyvoice_stream.telephony.speech_choice import make_chooser

        menu = self._menu
        assert menu is not None
        async with httpx.AsyncClient() as client:
            chooser = None if menu.speech is None else make_chooser(menu.speech, client)
            await MenuDialogue(menu, self._services.voices, chooser).run(call)

    async def _render(self, menu: Menu) -> None:
        """Let the cache keep the prompts of the menu."""
        services = self._services
        if services.speech.cache is None:
            return
        defaults = session_defaults(services.settings)
        prompts = []
        for text, manner in menu.prompts():
            changes = manner.model_dump(exclude_none=True)
            prompts.append(Prompt(text, defaults.merged(changes)))
        with contextlib.suppress(VoiceStreamError):  # what keeps the engine is told elsewhere
            await services.readiness.settled()
            await speak_prompts(services.speech, prompts)

    # Over HTTP

    async def _list(self, _: Request) -> Response:
        """List the telephone calls that run; no numbers."""
        return JSONResponse({"calls": self.desk.to_json()})

    async def _place(self, request: Request) -> Response:
        """Call somebody (`to`); say `text` and hang up, or let the menu lead."""
        if self.sip is None:
            raise InvalidState(
                "this server places no calls", how_to_fix=f"set {PREFIX}SIP_PORT and start it again"
            )
        stall_s = self._services.settings.stall_timeout_s
        wanted = parse_body(_Place, await read_body(request, _MAX_BODY_BYTES, stall_s))
        dialogue = None if wanted.text is None else _announcement(wanted)
        call_id = await self.sip.place(wanted.to, dialogue)
        return JSONResponse({"id": call_id}, status_code=202)

    async def _hang_up(self, request: Request) -> Response:
        """End a telephone call."""
        self.desk.hang_up(request.path_params["call"])
        return Response(status_code=204)


def make_extension(services: Services) -> Telephony:
    """Make what `cosyvoice_stream.server.extensions` looks for."""
    return Telephony(services)


def _agent(settings: Settings) -> Dialogue | None:
    """The program that leads calls, if the settings name one."""
    url, secret = settings.phone_agent, settings.phone_agent_token
    if url is None:
        return None
    token = None if secret is None else secret.get_secret_value()
    if url.startswith(("ws://", "wss://")):
        from cosyvoice_stream.telephony.agent_socket import AgentSocket

        return AgentSocket(url, token).run
    if url.startswith(("http://", "https://")):
        from cosyvoice_stream.telephony.agent_webhook import AgentWebhook

        return AgentWebhook(url, token).run
    raise ConfigError(
        "the program that leads calls has no address that can be used",
        how_to_fix=f"set {PREFIX}PHONE_AGENT to a URL that begins with ws, wss, http or https",
    )


def _sip_service(services: Services, desk: Desk) -> SipService:
    try:
        from cosyvoice_stream.telephony.sip_service import SipService
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "aiosipua":
            raise
        raise NotInstalled("SIP endpoint", "phone") from None
    return SipService(services.settings, desk)


def _announcement(wanted: _Place) -> Dialogue:
    async def announce(call: PhoneCall) -> None:
        options = wanted.model_dump(include={"voice", "language"}, exclude_none=True)
        assert wanted.text is not None
        saying = await call.say(wanted.text, barge_in=False, **options)
        await saying.said()

    return announce
