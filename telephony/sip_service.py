"""The SIP endpoint of a server: settings to a user agent, its calls to the desk."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from cosyvoice_stream.errors import ConfigError, EngineBusy, InvalidMessage, VoiceStreamError
from cosyvoice_stream.server.environment import PREFIX
from cosyvoice_stream.server.settings import Settings
from cosyvoice_stream.telephony.call import Dialogue
from cosyvoice_stream.telephony.desk import Desk, new_call_id
from cosyvoice_stream.telephony.line import CallInfo
from cosyvoice_stream.telephony.sdp_answer import DEFAULT_CODECS, check_codecs
from cosyvoice_stream.telephony.sip_agent import UserAgent
from cosyvoice_stream.telephony.sip_call import SipCall
from cosyvoice_stream.telephony.sip_config import (
    PRIVATE_NETWORKS,
    Account,
    SipConfig,
    parse_networks,
    server_tls,
)
from cosyvoice_stream.telephony.sip_line import SipLine
from cosyvoice_stream.telephony.sip_signalling import CallState

logger = logging.getLogger(__name__)

_BUSY: Final = 486
_UNAVAILABLE: Final = 503


def sip_config(settings: Settings) -> SipConfig:
    """Read the settings of the endpoint.

    Raises:
        ConfigError: A network, a codec or the certificate is wrong, or half of a pair is missing.
    """
    tls = None
    if settings.sip_tls_port is not None:
        if settings.sip_tls_certificate is None or settings.sip_tls_key is None:
            raise ConfigError(
                "SIP over TLS needs a certificate",
                how_to_fix=f"set {PREFIX}SIP_TLS_CERTIFICATE and {PREFIX}SIP_TLS_KEY",
            )
        tls = server_tls(settings.sip_tls_certificate, settings.sip_tls_key)
    return SipConfig(
        host=settings.sip_host,
        port=settings.sip_port or 0,
        tls_port=settings.sip_tls_port,
        tls=tls,
        advertised_host=settings.sip_public_address,
        rtp_ports=settings.rtp_ports,
        codecs=check_codecs(settings.sip_codecs) if settings.sip_codecs else DEFAULT_CODECS,
        allow=parse_networks(settings.sip_allow or PRIVATE_NETWORKS),
        max_calls=settings.phone_max_calls,
        max_calls_per_host=settings.sip_max_calls_per_host,
        max_call_s=settings.phone_max_call_s,
        account=_account(settings),
    )


def _account(settings: Settings) -> Account | None:
    uri = settings.sip_account
    if uri is None:
        return None
    user, at, _ = uri.partition(":")[2].partition("@")
    if not uri.startswith(("sip:", "sips:")) or not at:
        raise ConfigError(
            "the SIP account is no address",
            how_to_fix=f"set {PREFIX}SIP_ACCOUNT to one such as sip:bot@example.org",
        )
    password = settings.sip_password
    return Account(
        uri,
        settings.sip_username or user,
        "" if password is None else password.get_secret_value(),
        registrar=settings.sip_registrar or "",
        register=settings.sip_register,
    )


class SipService:
    """Listens between `start` and `stop`.

    Args:
        settings: Of the application.
        desk: Takes the calls.
    """

    def __init__(self, settings: Settings, desk: Desk) -> None:
        self._config = sip_config(settings)
        self._desk = desk
        self._agent: UserAgent | None = None
        self._serving: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._ours: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The UDP and TCP port that it listens on."""
        return self._config.port if self._agent is None else self._agent.port

    async def start(self) -> None:
        """Listen, and register the account if there is one.

        Raises:
            ConfigError: A port cannot be had.
        """
        up: asyncio.Future[UserAgent] = asyncio.get_running_loop().create_future()
        self._serving = asyncio.create_task(self._serve(up), name="sip endpoint")
        self._agent = await up
        logger.info("SIP on port %d of %s", self.port, self._config.host)

    async def stop(self) -> None:
        """Hang up and stop listening. Safe to call twice."""
        for task in tuple(self._ours):
            task.cancel()
        await asyncio.gather(*self._ours, return_exceptions=True)
        self._agent = None
        self._stopping.set()
        if self._serving is not None:
            await asyncio.gather(self._serving, return_exceptions=True)

    async def _serve(self, up: asyncio.Future[UserAgent]) -> None:
        """Own the user agent, whose tasks belong to the one that has entered it."""
        try:
            async with UserAgent(self._config, self._take) as agent:
                up.set_result(agent)
                await self._stopping.wait()
        except Exception as error:
            if up.done():
                raise
            up.set_exception(error)

    async def place(self, target: str, dialogue: Dialogue | None) -> str:
        """Call somebody; the call goes on by itself.

        Args:
            target: URI, such as ``sip:name@192.0.2.1``.
            dialogue: Leads the call when it is answered; None is whoever leads calls that come in.

        Returns:
            The id of the call, by which `Desk.hang_up` knows it from the answer on.

        Raises:
            EngineBusy: As many calls run as may.
            InvalidMessage: That is no URI, or its host cannot be found.
        """
        self._desk.check_room()
        if self._agent is None:
            raise EngineBusy(1.0, "the SIP endpoint is not up")
        if not target.startswith(("sip:", "sips:")):
            raise InvalidMessage("a call needs a URI such as sip:name@192.0.2.1")
        try:
            call = await self._agent.place(target)
        except ConfigError as error:
            raise InvalidMessage(str(error)) from error
        call_id = new_call_id()
        task = asyncio.create_task(self._lead(call, call_id, dialogue), name="outgoing call")
        self._ours.add(task)
        task.add_done_callback(self._ours.discard)
        return call_id

    async def _lead(self, call: SipCall, call_id: str, dialogue: Dialogue | None) -> None:
        assert self._agent is not None
        try:
            await self._agent.answered(call)
            await self._run(call, dialogue, call_id)
        except VoiceStreamError as error:
            logger.info("an outgoing call ended: %s", error)
        finally:
            call.hang_up()

    async def _take(self, call: SipCall) -> None:
        """Answer a call that comes in, if there is room."""
        try:
            self._desk.check_room()
        except EngineBusy:
            call.refuse(_BUSY)
            return
        except VoiceStreamError:
            call.refuse(_UNAVAILABLE)
            return
        await call.answer()
        if call.leg is not None and call.leg.agreed is None:
            # Its INVITE had no description; the caller's comes with the ACK.
            await _described(call)
        await self._run(call, None, new_call_id())

    async def _run(self, call: SipCall, dialogue: Dialogue | None, call_id: str) -> None:
        if call.leg is None or call.leg.agreed is None or call.state is CallState.ENDED:
            return
        line = SipLine(call, call.leg)
        info = CallInfo(
            "sip",
            carrier_id=call.dialog.call_id,
            caller=call.dialog.remote if call.is_incoming else call.dialog.local,
            called=call.dialog.local if call.is_incoming else call.dialog.remote,
        )
        await self._desk.take(line, info, line.listen, dialogue, call_id=call_id)


async def _described(call: SipCall) -> None:
    while call.state is not CallState.ENDED:
        if call.leg is not None and call.leg.agreed is not None:
            return
        call.changed.clear()
        await call.changed.wait()
