"""One phone call: a line on one side, a session on the other, a dialogue that leads it.

::

    leg ──hear, press, mark_played──► PhoneCall ──► turns, keys ──► dialogue
                                          │                             │ say, stop, transfer
                                          ▼                             ▼
    leg ◄──line.send_frame◄── LineAudio ◄── LineTransport ◄── Session ◄─┘

What a call says, how it is interrupted and what of it was heard are the session's; the call knows
the line. It ends when the dialogue returns, behind the last word that the caller heard, or when the
leg is gone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from cosyvoice_stream.errors import PeerGone, VoiceStreamError
from cosyvoice_stream.server.client_connect import server_error
from cosyvoice_stream.server.client_messages import Text, control_message, fragments
from cosyvoice_stream.server.error_map import log_internal
from cosyvoice_stream.server.observability import SessionLog
from cosyvoice_stream.server.sessions import Sessions
from cosyvoice_stream.server.wire import (
    ErrorMessage,
    OutputSettings,
    ServerMessage,
    UtteranceCancelled,
    UtteranceDone,
    UtteranceStarted,
    VadEvent,
    parse_server_message,
)
from cosyvoice_stream.streaming import pcm
from cosyvoice_stream.streaming.resample import Resampler
from cosyvoice_stream.telephony.beep import beep_frames
from cosyvoice_stream.telephony.call_events import (
    CallEvent,
    EventQueue,
    Interruption,
    KeyPressed,
    Said,
    Saying,
    SpeechBegan,
    TurnEnded,
)
from cosyvoice_stream.telephony.call_options import CallOptions
from cosyvoice_stream.telephony.line import CallInfo, Line, Pcm, pcm_to_s16le
from cosyvoice_stream.telephony.line_audio import LineAudio
from cosyvoice_stream.telephony.line_transport import LineTransport, OnMessage
from cosyvoice_stream.telephony.turns import RATE_HZ, TurnRecorder
from cosyvoice_stream.types import Flush

logger = logging.getLogger(__name__)

_MARK_S: Final = 5.0
"""A mark that has not come back so long after its audio should have been heard is given up."""

Dialogue = Callable[["PhoneCall"], Coroutine[Any, Any, None]]
"""Leads a call; when it returns, the call is hung up behind the last word."""
Listen = Callable[["PhoneCall"], Coroutine[Any, Any, None]]
"""Feeds `hear`, `press` and `mark_played` from the leg; returns when the caller has hung up."""


class PhoneCall:
    """A call between `run`'s start and its end. Used on the event loop only.

    Args:
        line: The leg.
        info: About the call.
        sessions: Makes its session.
        options: How it is led.

    Attributes:
        tap: Takes every message of the session, besides the call itself.
    """

    def __init__(
        self, line: Line, info: CallInfo, sessions: Sessions, options: CallOptions | None = None
    ) -> None:
        self.line = line
        self.info = info
        self.options = options or CallOptions()
        self.log = SessionLog(logger, secrets.token_hex(4))
        self.tap: OnMessage | None = None
        self._sessions = sessions
        self._audio = LineAudio(line, self._heard)
        self._transport = LineTransport(self._audio, self._on_message)
        self._events = EventQueue()
        self._turns = TurnRecorder()
        self._vad_base = 0
        self._barge_in: bool | None = None
        self._sayings: dict[str, Saying] = {}
        self._by_number: dict[int, str] = {}
        self._marks: dict[str, Saying] = {}
        self._count = 0
        self._quiet = asyncio.Event()
        self._left = asyncio.Event()
        self._ears: list[Callable[[Pcm], None]] = []
        form = line.format
        self._resampler = Resampler(form.input_rate or form.sample_rate, RATE_HZ)
        self._group: asyncio.TaskGroup | None = None

    # For whoever has the leg

    async def run(self, dialogue: Dialogue, listen: Listen) -> None:
        """Lead the call to its end; then nothing of it is left.

        Args:
            dialogue: Leads it.
            listen: Feeds it.
        """
        self.log.info("%s call begins", self.info.carrier)
        reason = "the caller hung up"
        try:
            async with asyncio.timeout(self.options.max_call_s), asyncio.TaskGroup() as group:
                self._group = group
                session = group.create_task(self._serve(), name="call session")
                speaking = group.create_task(self._audio.run(), name="call audio")
                listening = group.create_task(listen(self), name="call listen")
                self._watch_for_speech(True)
                talking = group.create_task(dialogue(self), name="call dialogue")
                left = group.create_task(self._left.wait(), name="call left")
                await asyncio.wait(
                    (session, listening, talking, left), return_when=asyncio.FIRST_COMPLETED
                )
                if talking.done() and not talking.cancelled() and not talking.exception():
                    reason = "the dialogue is over"
                    rest = group.create_task(self.all_heard(), name="call rest")
                    await asyncio.wait((rest, listening), return_when=asyncio.FIRST_COMPLETED)
                    rest.cancel()
                self._transport.lose()
                for task in (talking, listening, speaking, left):
                    task.cancel()
        except* TimeoutError:
            reason = "it lasted too long"
        except* PeerGone:
            pass
        except* VoiceStreamError as failures:
            reason = f"failed: {failures.exceptions[0]}"
        except* Exception as failures:
            reason = "failed"
            for failure in failures.exceptions:
                log_internal(self.log, failure)
        finally:
            self._group = None
            self._transport.lose()
            for saying in self._sayings.values():
                saying.finish(Said("", error=PeerGone("the call is over")))
            with suppress(PeerGone):
                await self.line.hang_up()
            self.log.info("call ends: %s", reason)

    def hear(self, samples: Pcm) -> None:
        """Take the caller's audio, at the rate of the line."""
        for piece in self._resampler.push(pcm.from_int16(samples)):
            heard = pcm.to_int16(piece)
            self._turns.push(heard)
            for ear in self._ears:
                ear(heard)
            self._transport.hear(pcm_to_s16le(heard))

    def press(self, symbol: str) -> None:
        """The caller has pressed a key."""
        for saying in self._sayings.values():
            if saying.by_key:
                self._stop(saying, "key")
        self._events.put(KeyPressed(symbol))

    def mark_played(self, name: str) -> None:
        """The far end has played everything before a mark."""
        saying = self._marks.pop(name, None)
        if saying is not None:
            saying.last_heard = True
            self._settle(saying)

    def leave(self) -> None:
        """End the call at once."""
        self._left.set()

    @property
    def says_something(self) -> bool:
        """Whether anything that was said has not been heard yet."""
        return bool(self._sayings)

    # For dialogues

    async def say(
        self, text: Text, *, barge_in: bool = True, by_key: bool = True, **options: Any
    ) -> Saying:
        """Begin to say something, behind what is being said.

        Args:
            text: The text, or its fragments as they come.
            barge_in: Whether the caller's voice interrupts this, and whatever is said with it.
            by_key: Whether a key does.
            options: As in docs/protocol.md, without `output`.

        Returns:
            The utterance, which says when it was heard.

        Raises:
            PeerGone: The call is over.
            InvalidOption: A number is not finite.
        """
        self._count += 1
        saying = Saying(f"say-{self._count}", by_key=by_key)
        if self._count == 1 and self.options.lead_in_ms and "sound" not in options:
            options["sound"] = {"lead_in_ms": self.options.lead_in_ms}
        self._watch_for_speech(barge_in)
        if isinstance(text, str):
            self.ask(control_message("speak", {**options}, id=saying.name, text=text))
        else:
            self.ask(control_message("utterance.start", options, id=saying.name))
            assert self._group is not None
            self._group.create_task(self._send_text(saying, fragments(text)), name="call text")
        self._sayings[saying.name] = saying
        return saying

    async def next_event(self, timeout_s: float | None = None) -> CallEvent | None:
        """Wait for what the caller does next; None when nothing happens in time."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._events.get()
        except TimeoutError:
            return None

    def forget_events(self) -> None:
        """What the caller has done so far does not count any more."""
        self._events.forget()

    def stop_speaking(self) -> None:
        """Cancel everything that is being said."""
        self.ask({"type": "utterance.cancel"})

    async def all_heard(self) -> None:
        """Wait until the caller has heard everything that was said."""
        while self._sayings:
            self._quiet.clear()
            await self._quiet.wait()

    async def beep(self) -> None:
        """Play a short tone behind what was said."""
        await self.all_heard()
        for frame in beep_frames(self.line.format):
            await self._audio.put(frame)

    @contextmanager
    def hearing(self, ear: Callable[[Pcm], None]) -> Iterator[None]:
        """Listen to the caller: 16-bit mono at `RATE_HZ`, piece by piece."""
        self._ears.append(ear)
        try:
            yield
        finally:
            self._ears.remove(ear)

    def ask(self, message: dict[str, Any]) -> None:
        """Send the session a message of docs/protocol.md.

        Raises:
            PeerGone: The call is over.
        """
        self._transport.say(json.dumps(message))

    def relay(self, message: dict[str, Any]) -> None:
        """Pass a message of docs/protocol.md on for a peer that leads the call.

        What it opens counts as said by the call: hanging up waits for it.

        Raises:
            PeerGone: The call is over.
        """
        name = message.get("id")
        if message["type"] in ("speak", "utterance.start") and isinstance(name, str):
            self._sayings.setdefault(name, Saying(name, by_key=False))
        self.ask(message)

    # Inside

    async def _serve(self) -> None:
        form = self.line.format
        output = OutputSettings(
            encoding="pcm_s16le", sample_rate=form.sample_rate, frame_ms=form.frame_ms, buffer_ms=0
        )
        await self._sessions.serve(self._transport, raw_framing=False, fixed_output=output)

    def _watch_for_speech(self, barge_in: bool) -> None:
        if barge_in is self._barge_in:
            return
        self._barge_in = barge_in
        self._vad_base = self._turns.heard
        self.ask(
            {
                "type": "vad.start",
                "min_speech_ms": self.options.min_speech_ms,
                "stop_ms": self.options.turn_end_ms,
                "cancel": barge_in,
                **({} if barge_in else {"duck_db": 0.0}),
            }
        )

    async def _send_text(self, saying: Saying, pieces: AsyncGenerator[str | Flush, None]) -> None:
        try:
            async for piece in pieces:
                if saying.ended:
                    return
                if isinstance(piece, Flush):
                    self.ask({"type": "text.flush", "id": saying.name})
                else:
                    self.ask({"type": "text.delta", "id": saying.name, "text": piece})
            self.ask({"type": "utterance.end", "id": saying.name})
        except VoiceStreamError as error:
            self._stop(saying, "asked")
            self._finish(saying, Said("", error=error))
        finally:
            await pieces.aclose()

    def _stop(self, saying: Saying, why: Interruption) -> None:
        saying.why = why
        with suppress(PeerGone):
            self.ask({"type": "utterance.cancel", "id": saying.name})

    async def _on_message(self, text: str) -> None:
        message = parse_server_message(text)
        if message is not None:
            await self._take(message)
        if self.tap is not None:
            await self.tap(text)

    async def _take(self, message: ServerMessage) -> None:
        match message:
            case UtteranceStarted():
                self._by_number[message.number] = message.id
            case UtteranceDone():
                await self._handed_over(message)
            case UtteranceCancelled(id=str(name)):
                await self._audio.clear()
                if (saying := self._sayings.get(name)) is not None:
                    why = message.reason or saying.why
                    self._finish(saying, Said(message.spoken_text, interrupted=why))
            case ErrorMessage():
                saying = self._sayings.get(message.id or "")
                if saying is not None:
                    self._finish(saying, Said("", error=server_error(message)))
            case VadEvent():
                self._detected(message)

    async def _handed_over(self, message: UtteranceDone) -> None:
        saying = self._sayings.get(message.id)
        if saying is None:
            return
        saying.done = True
        if self.line.format.has_marks and message.audio_ms:
            self._marks[saying.name] = saying
            await self._audio.send_mark(saying.name)
            lead_s = self._audio.clock.lead_s(asyncio.get_running_loop().time())
            asyncio.get_running_loop().call_later(lead_s + _MARK_S, self.mark_played, saying.name)
        else:
            saying.last_heard = saying.last_heard or not message.audio_ms
            self._settle(saying)

    def _heard(self, number: int, sample: int, last: bool) -> None:
        """Tell the session what the caller hears; see `Heard`."""
        name = self._by_number.get(number)
        if name is None:
            return
        if last:
            del self._by_number[number]
        played_ms = sample * 1000 / self.line.format.sample_rate
        with suppress(PeerGone):
            self.ask({"type": "playback", "id": name, "played_ms": played_ms})
        saying = self._sayings.get(name)
        if saying is not None and last and not self.line.format.has_marks:
            saying.last_heard = True
            self._settle(saying)

    def _settle(self, saying: Saying) -> None:
        if saying.done and saying.last_heard:
            self._finish(saying, Said(None))

    def _finish(self, saying: Saying, said: Said) -> None:
        saying.finish(said)
        self._sayings.pop(saying.name, None)
        self._marks.pop(saying.name, None)
        self._quiet.set()

    def _detected(self, event: VadEvent) -> None:
        at_ms = event.at_ms + self._vad_base * 1000 / RATE_HZ
        if event.state == "speech":
            self._turns.begin(at_ms)
            self._events.put(SpeechBegan())
        elif event.state == "silence" and (turn := self._turns.end(at_ms)) is not None:
            self._events.put(TurnEnded(turn))
