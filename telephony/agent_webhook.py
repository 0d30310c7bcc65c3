"""A program of the user's leads a call over HTTP: one request a turn, the answer is spoken."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx

from cosyvoice_stream.errors import PeerGone, UnsupportedFormat
from cosyvoice_stream.telephony.call import PhoneCall
from cosyvoice_stream.telephony.call_events import CallEvent, KeyPressed, TurnEnded
from cosyvoice_stream.telephony.speech_choice import wav_of
from cosyvoice_stream.telephony.turns import RATE_HZ

_TIMEOUT_S: Final = 30.0
"""Between two pieces of an answer."""
_MAX_JSON_BYTES: Final = 1 << 20


class AgentWebhook:
    """Leads calls; `run` is a `Dialogue`.

    Args:
        url: ``http://`` or ``https://``.
        token: Sent as a bearer token.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        self._url = url
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    async def run(self, call: PhoneCall) -> None:
        """Lead a call until the program ends it.

        Raises:
            PeerGone: The program cannot be reached at the start.
        """
        name, info = secrets.token_hex(8), call.info
        started = {
            "call": name,
            "event": "started",
            "carrier": info.carrier,
            "caller": info.caller,
            "called": info.called,
            "parameters": info.parameters,
        }
        async with httpx.AsyncClient(headers=self._headers, timeout=_TIMEOUT_S) as client:
            waiting = asyncio.create_task(call.next_event(), name="agent: event")
            answering: asyncio.Task[bool] | None = asyncio.create_task(
                self._turn(call, client, started, first=True), name="agent: answer"
            )
            try:
                while True:
                    tasks = [waiting] if answering is None else [waiting, answering]
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    if answering is not None and answering.done():
                        if not answering.result():
                            return
                        answering = None
                    if not waiting.done():
                        continue
                    body = _body(waiting.result())
                    waiting = asyncio.create_task(call.next_event(), name="agent: event")
                    if body is None:
                        continue
                    await _given_up(answering)
                    call.stop_speaking()
                    answering = asyncio.create_task(
                        self._turn(call, client, {"call": name, **body}), name="agent: answer"
                    )
            finally:
                waiting.cancel()
                await _given_up(answering)

    async def _turn(
        self,
        call: PhoneCall,
        client: httpx.AsyncClient,
        body: dict[str, Any],
        *,
        first: bool = False,
    ) -> bool:
        """Ask, and speak the answer while it comes; return whether the call goes on."""
        try:
            async with client.stream("POST", self._url, json=body) as response:
                response.raise_for_status()
                kind = response.headers.get("content-type", "").partition(";")[0].strip()
                if kind == "application/json":
                    return await self._obey(call, _object(await _limited(response)))
                saying = await call.say(_text(response))
                await saying.said()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            if first:
                raise PeerGone(
                    f"the program that leads calls cannot be reached ({type(error).__name__})"
                ) from error
            call.log.warning("the program that leads calls fails: %s", type(error).__name__)
        return True

    async def _obey(self, call: PhoneCall, answer: dict[str, Any]) -> bool:
        text, target = answer.get("text"), answer.get("transfer")
        options = {
            name: answer[name]
            for name in ("voice", "language")
            if isinstance(answer.get(name), str)
        }
        if isinstance(text, str) and text:
            saying = await call.say(text, barge_in=answer.get("barge_in") is not False, **options)
            if answer.get("hang_up") is not True and not target:
                await saying.said()
        if isinstance(target, str) and target:
            await call.all_heard()
            try:
                await call.line.transfer(target)
            except UnsupportedFormat as error:
                call.log.warning("a transfer failed: %s", error)
                return True
            return False
        return answer.get("hang_up") is not True


def _body(event: CallEvent | None) -> dict[str, Any] | None:
    """What the program is told of an event; None where that is nothing."""
    if isinstance(event, KeyPressed):
        return {"event": "key", "key": event.symbol}
    if isinstance(event, TurnEnded):
        data = base64.b64encode(wav_of(event.turn)).decode()
        return {
            "event": "turn",
            "audio": {"encoding": "wav", "sample_rate": RATE_HZ, "data": data},
        }
    return None


async def _given_up(task: asyncio.Task[bool] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _text(response: httpx.Response) -> AsyncIterator[str]:
    try:
        async for piece in response.aiter_text():
            yield piece
    except (httpx.HTTPError, httpx.StreamError) as error:
        raise PeerGone("the answer broke off") from error


async def _limited(response: httpx.Response) -> bytes:
    data = bytearray()
    async for piece in response.aiter_bytes():
        data += piece
        if len(data) > _MAX_JSON_BYTES:
            return b""
    return bytes(data)


def _object(data: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}
