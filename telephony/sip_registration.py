"""Keeps an address of record bound to us (RFC 3261, section 10)."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Final, Protocol

from aiosipua.headers import parse_params, parse_uri
from aiosipua.message import SipRequest, SipResponse

from cosyvoice_stream.errors import ConfigError
from cosyvoice_stream.telephony.sip_config import Account
from cosyvoice_stream.telephony.sip_dialog import Here
from cosyvoice_stream.telephony.sip_messages import (
    Flow,
    make_request,
    own_via,
    uri_flow,
)
from cosyvoice_stream.telephony.sip_transactions import ClientTransaction

logger = logging.getLogger(__name__)

_RENEW: Final = 0.8
"""Of the granted time, until the registration is renewed."""
_RETRY_S: Final = (2.0, 300.0)
"""Wait after the first failure, doubling, and the longest wait."""
_SHORTEST_S: Final = 20
_DIGESTS: Final = 2


class Registrar(Protocol):
    """What this needs of the user agent."""

    async def route(self, flow: Flow) -> Flow:
        """Look a host up."""
        ...

    def here(self, flow: Flow) -> Here:
        """Our address as somebody there is told it."""
        ...

    def send(
        self, request: SipRequest, flow: Flow, replied: Callable[[SipResponse | None], None]
    ) -> ClientTransaction:
        """Send a request."""
        ...

    def credentials(self, request: SipRequest, response: SipResponse) -> dict[str, str] | None:
        """Answer a challenge."""
        ...


class Registration:
    """One binding.

    Args:
        agent: Sends.
        account: Whose.

    Attributes:
        granted_s: For how long the registrar remembers us; 0 while it does not.
        changed: Set whenever `granted_s` or `failure` changes; whoever waits for it clears it.
        failure: Status of the last refusal, 408 where nothing came; None after a success.
    """

    def __init__(self, agent: Registrar, account: Account) -> None:
        self.granted_s = 0
        self.failure: int | None = None
        self.changed = asyncio.Event()
        self._agent = agent
        self._account = account
        self._call_id = secrets.token_hex(16)
        self._tag = secrets.token_hex(8)
        self._cseq = 0
        self._expires_s = account.expires_s
        self._retry_s = _RETRY_S[0]
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    async def start(self) -> None:
        """Send the first registration; its outcome comes later.

        Raises:
            ConfigError: The registrar has no address.
        """
        flow = uri_flow(self._account.registrar or self._account.uri)
        if flow is None:
            raise ConfigError(
                "the SIP account names no host",
                how_to_fix="write its URI as sip:name@example.org",
            )
        self._flow = await self._agent.route(flow)
        if self._account.register:
            self._send(self._expires_s)

    def stop(self) -> None:
        """Take the binding back."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self.granted_s:
            self._send(0)

    def _send(
        self, expires_s: int, credentials: dict[str, str] | None = None, tries: int = 0
    ) -> None:
        self._cseq += 1
        here = self._agent.here(self._flow)
        uri = self._account.uri
        request = make_request(
            "REGISTER",
            f"sip:{parse_uri(uri).host}",
            via=own_via(self._flow.transport, here.host, here.port),
            sender=f"<{uri}>;tag={self._tag}",
            receiver=f"<{uri}>",
            call_id=self._call_id,
            cseq=self._cseq,
            contact=here.contact(self._flow),
            headers={"Expires": str(expires_s), **(credentials or {})},
        )

        def replied(response: SipResponse | None) -> None:
            self._replied(request, response, expires_s, tries)

        self._agent.send(request, self._flow, replied)

    def _replied(
        self, request: SipRequest, response: SipResponse | None, expires_s: int, tries: int
    ) -> None:
        if response is None:
            self._fail(408)
        elif response.status_code < 200:
            return
        elif response.status_code < 300:
            self._bound(request, response, expires_s)
        elif (
            response.status_code in (401, 407)
            and tries < _DIGESTS
            and (credentials := self._agent.credentials(request, response)) is not None
        ):
            self._send(expires_s, credentials, tries + 1)
        elif response.status_code == 423 and tries < _DIGESTS and expires_s:
            least = response.headers.get_first("min-expires") or ""
            self._expires_s = int(least[:6]) if least.isdecimal() else 2 * self._expires_s
            self._send(self._expires_s, tries=tries + 1)
        else:
            self._fail(response.status_code)

    def _bound(self, request: SipRequest, response: SipResponse, asked_s: int) -> None:
        self.failure = None
        self._retry_s = _RETRY_S[0]
        self.granted_s = _granted(request, response, asked_s)
        logger.info("registered for %d s", self.granted_s)
        self.changed.set()
        if not self._stopped:
            self._again(max(self.granted_s, _SHORTEST_S) * _RENEW)

    def _fail(self, status: int) -> None:
        self.failure = status
        self.granted_s = 0
        self.changed.set()
        if self._stopped:
            return
        logger.warning("not registered, answer %d; next try in %.0f s", status, self._retry_s)
        self._again(self._retry_s)
        self._retry_s = min(2 * self._retry_s, _RETRY_S[1])

    def _again(self, after_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(after_s, self._send, self._expires_s)


def _granted(request: SipRequest, response: SipResponse, asked_s: int) -> int:
    """Seconds for which the registrar keeps our contact."""
    own = (request.headers.get_first("contact") or "").strip("<>").lower()
    for contact in response.headers.get("contact"):
        uri, _, parameters = contact.rpartition(">")
        expires = parse_params(parameters).get("expires") if uri else None
        if own in contact.lower() and expires is not None and expires.isdecimal():
            return int(expires[:6])
    value = response.headers.get_first("expires") or ""
    return int(value[:6]) if value.isdecimal() else asked_s
