"""DashScope's socket for CosyVoice, without I/O: tasks, one after the other on a connection."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cosyvoice_stream.errors import InvalidState, VoiceStreamError
from cosyvoice_stream.server.dashscope_messages import Command, Parameters, task_of
from cosyvoice_stream.server.error_map import error_json
from cosyvoice_stream.server.error_shapes import dashscope_code, sentence
from cosyvoice_stream.server.json_body import parse_body
from cosyvoice_stream.server.vendor_socket import Codec
from cosyvoice_stream.server.wire import (
    AudioHeader,
    ErrorMessage,
    Marks,
    ServerMessage,
    UtteranceDone,
    UtteranceStarted,
    WordTime,
)

_IDLE_S: Final = 60.0
"""Between two tasks, and before the first."""
_GAP_S: Final = 23.0
"""Between two messages of a task that takes text."""
_NORMAL: Final = 1000
_SENTENCE_END: Final = re.compile(r"[。！？!?…\n]|\.(?!\d)")
_WIDE: Final = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
"""Characters that count twice."""


@dataclass
class _Sentence:
    """What the events of one sentence say."""

    index: int
    begins: int
    """Index of its first character in the text of the task."""
    words: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class _Task:
    """One utterance of the session."""

    task_id: str
    utterance_id: str
    parameters: Parameters
    options: dict[str, Any]
    text: str = ""
    is_open: bool = False
    """The session knows it."""
    takes_text: bool = True
    number: int | None = None
    sentence: _Sentence | None = None
    read: int = 0
    """Index behind the last word that was spoken."""


class DashScopeCodec(Codec):
    """Translates one connection.

    Args:
        aliases: Other names of voices.
        new_id: Draws ids of requests.
    """

    def __init__(
        self,
        aliases: Mapping[str, str] | None = None,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        super().__init__()
        self._aliases = aliases or {}
        self._new_id = new_id
        self._task: _Task | None = None
        self._tasks = 0

    @property
    def patience_s(self) -> float | None:
        """See `Codec.patience_s`."""
        if self._task is None:
            return _IDLE_S
        return _GAP_S if self._task.takes_text else None

    def timed_out(self) -> None:
        """See `Codec.timed_out`."""
        if self._task is not None:
            text = f"request timeout after {_GAP_S:g} seconds"
            self._fail(self._task.task_id, "RequestTimeOut", text)
        self.part(_NORMAL, "idle")

    def from_peer(self, frame: str | bytes) -> None:
        """See `Codec.from_peer`."""
        try:
            self._handle(parse_body(Command, frame))
        except VoiceStreamError as error:
            said = error_json(error)
            self._fail(task_of(frame), dashscope_code(said["code"]), sentence(said))

    def on_message(self, message: ServerMessage) -> None:
        """See `Codec.on_message`."""
        task = self._task
        if task is None or getattr(message, "id", None) != task.utterance_id:
            return
        match message:
            case UtteranceStarted():
                task.number = message.number
            case Marks():
                for word in message.words:
                    self._on_word(task, word)
            case UtteranceDone():
                self._finish(task)
            case ErrorMessage():
                said = message.model_dump(exclude_none=True)
                self._fail(task.task_id, dashscope_code(message.code), sentence(said))

    def on_audio(self, header: AudioHeader, data: bytes) -> None:
        """See `Codec.on_audio`."""
        task = self._task
        if task is None or header.number != task.number or not data:
            return
        told = self._sentence(task)
        self._generated(task, "sentence-synthesis", told)
        self.to_peer.append(data)

    def _handle(self, command: Command) -> None:
        task_id, payload = command.header.task_id, command.payload
        if command.header.action == "run-task":
            self._run(command)
            return
        task = self._task
        if task is None or task.task_id != task_id:
            if payload.input.directive == "cancel":
                return  # it has just ended by itself
            raise InvalidState("no such task runs on this connection")
        if command.header.action == "finish-task":
            self._end_text(task, cancelled=payload.input.directive == "cancel")
        elif task.takes_text:
            self._write(task, payload.input.text or "", flush=bool(payload.input.flush))

    def _run(self, command: Command) -> None:
        """Begin a task; one that still runs is given up."""
        self._give_up()
        parameters = command.payload.parameters
        options = parameters.options(self._aliases)
        self._tasks += 1
        task = _Task(command.header.task_id, f"t{self._tasks}", parameters, options)
        self._task = task
        self._tell(task.task_id, "task-started", {})
        if command.payload.input.text:
            self._write(task, command.payload.input.text, flush=False)
            if command.header.streaming != "duplex":
                self._end_text(task, cancelled=False)

    def _write(self, task: _Task, text: str, *, flush: bool) -> None:
        if not task.is_open and text.strip():
            task.is_open = True
            options = {**task.options, "ssml": task.parameters.is_ssml(text)}
            self.ask("utterance.start", id=task.utterance_id, **options)
        if text and task.is_open:
            task.text += text
            self.ask("text.delta", id=task.utterance_id, text=text)
        if flush and task.is_open:
            self.ask("text.flush", id=task.utterance_id)

    def _end_text(self, task: _Task, *, cancelled: bool) -> None:
        if cancelled or not task.is_open:
            self._give_up()
            self._finish(task)
        elif task.takes_text:
            task.takes_text = False
            self.ask("utterance.end", id=task.utterance_id)

    def _give_up(self) -> None:
        if self._task is not None and self._task.is_open:
            self.ask("utterance.cancel", id=self._task.utterance_id)
        self._task = None

    def _sentence(self, task: _Task) -> _Sentence:
        """The sentence that is spoken; begins the first one."""
        if task.sentence is None:
            self._begin_sentence(task, 0, 0)
            assert task.sentence is not None
        return task.sentence

    def _begin_sentence(self, task: _Task, index: int, begins: int) -> None:
        task.sentence = _Sentence(index, begins)
        self._generated(task, "sentence-begin", task.sentence)

    def _on_word(self, task: _Task, word: WordTime) -> None:
        """Note a word; one behind the end of a sentence begins the next."""
        sentence = self._sentence(task)
        if task.read and _SENTENCE_END.search(task.text, task.read, word.char_start):
            self._end_sentence(task, sentence)
            self._begin_sentence(task, sentence.index + 1, word.char_start)
            sentence = self._sentence(task)
        task.read = max(task.read, word.char_end)
        sentence.words.append(
            {
                "text": word.text,
                "begin_index": word.char_start - sentence.begins,
                "end_index": word.char_end - sentence.begins,
                "begin_time": round(word.start_ms),
                "end_time": round(word.end_ms),
            }
        )

    def _end_sentence(self, task: _Task, sentence: _Sentence) -> None:
        self._generated(task, "sentence-end", sentence, usage=_usage(task.text[: task.read]))

    def _finish(self, task: _Task) -> None:
        """Say that all of a task has been said."""
        output: dict[str, Any] = {}
        if task.sentence is not None:
            if self._task is task:
                self._end_sentence(task, task.sentence)
            output = {"sentence": _sentence_json(task, task.sentence)}
        self._task = None
        payload = {"output": output, "usage": _usage(task.text)}
        attributes = {"request_uuid": self._new_id()}
        self._tell(task.task_id, "task-finished", payload, attributes)

    def _generated(self, task: _Task, kind: str, sentence: _Sentence, **more: Any) -> None:
        told = _sentence_json(task, sentence)
        if kind == "sentence-begin":
            told["words"] = []
        output = {"type": kind, "sentence": told, "original_text": _text_of(task, sentence)}
        self._tell(task.task_id, "result-generated", {"output": output, **more})

    def _fail(self, task_id: str, code: str, text: str) -> None:
        """Say what is wrong; the connection ends with it."""
        self._give_up()
        header = {"task_id": task_id, "event": "task-failed", "error_code": code}
        self.tell(header={**header, "error_message": text, "attributes": {}}, payload={})
        self.part(_NORMAL, code)

    def _tell(
        self,
        task_id: str,
        event: str,
        payload: dict[str, Any],
        attributes: dict[str, Any] | None = None,
    ) -> None:
        header = {"task_id": task_id, "event": event, "attributes": attributes or {}}
        self.tell(header=header, payload=payload)


def _sentence_json(task: _Task, sentence: _Sentence) -> dict[str, Any]:
    words = list(sentence.words) if task.parameters.word_timestamp_enabled else []
    return {"index": sentence.index, "words": words}


def _text_of(task: _Task, sentence: _Sentence) -> str:
    """The sentence as it was written, as far as it has come."""
    end = _SENTENCE_END.search(task.text, max(sentence.begins, task.read))
    return task.text[sentence.begins : end.end() if end else len(task.text)]


def _usage(text: str) -> dict[str, int]:
    return {"characters": len(text) + len(_WIDE.findall(text))}
