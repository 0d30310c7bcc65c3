"""The messages of a Realtime conversation, as many as are needed to say one."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from cosyvoice_stream.server.error_shapes import WrongField
from cosyvoice_stream.server.realtime_events import ItemPart
from cosyvoice_stream.server.wire_replies import WordTime

MAX_ITEMS: Final = 200
"""The oldest go first."""


@dataclass(slots=True)
class Item:
    """One message."""

    item_id: str
    role: str
    text: str
    spoken: bool = False
    """There is nothing more to say of it."""
    answer: bool = False
    """It is what the server said: its text is a transcript of audio."""
    status: str = "completed"
    audio_ms: float = 0.0
    """Of the audio that was sent."""
    words: list[WordTime] = field(default_factory=list)
    """Of the audio, as far as the engine knows them."""

    def to_json(self) -> dict[str, Any]:
        """Return it as the API has it."""
        if self.answer:
            content = [{"type": "output_audio", "transcript": self.text}]
        else:
            kind = "output_text" if self.role == "assistant" else "input_text"
            content = [{"type": kind, "text": self.text}]
        return {
            "id": self.item_id,
            "object": "realtime.item",
            "type": "message",
            "status": self.status,
            "role": self.role,
            "content": content,
        }

    def truncate(self, audio_end_ms: float) -> None:
        """Forget what was not heard.

        Raises:
            WrongField: There is less audio.
        """
        if not self.answer or audio_end_ms > self.audio_ms:
            raise WrongField("audio_end_ms", f"the item has {self.audio_ms:g} ms of audio")
        if self.words:
            heard = [word for word in self.words if word.end_ms <= audio_end_ms]
            self.text = self.text[: heard[-1].char_end] if heard else ""
        elif self.audio_ms:
            self.text = self.text[: int(len(self.text) * audio_end_ms / self.audio_ms)]
        self.audio_ms = audio_end_ms


def new_id(prefix: str) -> str:
    """Draw an id."""
    return f"{prefix}_{secrets.token_hex(10)}"


class Conversation:
    """The items of one connection, in order."""

    def __init__(self) -> None:
        self._items: OrderedDict[str, Item] = OrderedDict()

    def create(self, part: ItemPart, after: str | None) -> tuple[str | None, Item]:
        """Add a message of the client.

        Args:
            part: The message.
            after: Where: behind this item, first of all for ``"root"``, last for None.

        Returns:
            The id of the item before it, and the item.

        Raises:
            WrongField: The id is in use, or `after` is unknown.
        """
        if part.type != "message":
            raise WrongField("item.type", "only messages can be added")
        if part.id is not None and part.id in self._items:
            raise WrongField("item.id", "an item has this id already")
        if after not in (None, "root") and after not in self._items:
            raise WrongField("previous_item_id", "there is no such item")
        item = Item(part.id or new_id("item"), part.role, text_of([part]))
        before = self.add(item)
        if after is not None:
            self._move(item.item_id, after)
            before = None if after == "root" else after
        return before, item

    def add(self, item: Item) -> str | None:
        """Append an item; return the id of the one before it."""
        before = next(reversed(self._items), None)
        self._items[item.item_id] = item
        while len(self._items) > MAX_ITEMS:
            self._items.popitem(last=False)
        return before

    def get(self, item_id: str) -> Item:
        """Find an item.

        Raises:
            WrongField: There is none with this id.
        """
        if item_id not in self._items:
            raise WrongField("item_id", "there is no such item")
        return self._items[item_id]

    def delete(self, item_id: str) -> None:
        """Remove an item; see `get` for the error."""
        self.get(item_id)
        del self._items[item_id]

    def take_text(self, asked: Iterable[ItemPart] | None) -> str:
        """Return what a response is to say.

        Args:
            asked: Messages and references of the request; None takes the newest message that was
                not spoken.

        Raises:
            WrongField: There is nothing to say, or no such item.
        """
        if asked is None:
            item = next((i for i in reversed(self._items.values()) if not i.spoken), None)
            if item is not None:
                item.spoken = True
            text = item.text if item is not None else ""
        else:
            text = " ".join(
                self.get(part.id or "").text if part.type == "item_reference" else text_of([part])
                for part in asked
            )
        if not text.strip():
            raise WrongField(
                "response.input",
                "there is nothing to say",
                how_to_fix="add a message with conversation.item.create, or send it in "
                "response.input: its text is spoken, no language model answers it",
            )
        return text

    def _move(self, item_id: str, after: str) -> None:
        order = [each for each in self._items if each != item_id]
        order.insert(0 if after == "root" else order.index(after) + 1, item_id)
        self._items = OrderedDict((each, self._items[each]) for each in order)


def text_of(parts: Iterable[ItemPart]) -> str:
    """Return the text of messages."""
    return " ".join(piece.text for part in parts for piece in part.content)
