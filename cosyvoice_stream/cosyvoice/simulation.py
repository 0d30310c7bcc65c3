"""Plays the scheduler against a device that exists as a table of costs, on a clock of its own.

Shows what a policy does to first audio and underruns before a machine has to show it: the scheduler
is the real one, utterances are counters, a step takes what `Costs` says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cosyvoice_stream.cosyvoice.scheduler import Kind, Needs, Policy, Scheduler
from cosyvoice_stream.cosyvoice.utterance import blocks_for
from cosyvoice_stream.models.flow import BLOCK_TOKENS
from cosyvoice_stream.models.lookahead import LOOKAHEAD_TOKENS

TOKEN_S: Final = 0.04
AUDIBLE_UNDERRUN_S: Final = 0.1


@dataclass(frozen=True)
class Costs:
    """Milliseconds of steps on a device."""

    prepare_ms: float = 15.0
    """Each utterance."""
    decode_ms: float = 7.0
    """A step, whatever its size."""
    decode_row_ms: float = 0.05
    """Further, each utterance of it."""
    sound_ms: float = 20.0
    sound_block_ms: float = 4.0
    """Further, each block of each utterance."""

    def of(self, kind: Kind, blocks: Sequence[int]) -> float:
        """Seconds of a step.

        Args:
            kind: What it does.
            blocks: Of each utterance that takes part; their number alone counts unless it sounds.
        """
        if kind is Kind.PREPARE:
            return self.prepare_ms * len(blocks) / 1e3
        if kind is Kind.DECODE:
            return (self.decode_ms + self.decode_row_ms * len(blocks)) / 1e3
        return (self.sound_ms + self.sound_block_ms * sum(blocks)) / 1e3


@dataclass(frozen=True)
class Arrival:
    """An utterance that comes."""

    at_s: float
    tokens: int
    """Speech tokens of it."""
    background: bool = False


@dataclass
class Played:
    """What became of an utterance."""

    arrival: Arrival
    first_audio_s: float = math.inf
    """After it came."""
    underrun_s: float = 0.0
    """Time for which its listener had nothing to hear."""
    ended_s: float = math.inf
    prepared: bool = False
    drawn: int = 0
    sounded: int = 0
    _runs_dry_s: float = field(default=-math.inf)

    def needs(self, lead_s: float, first_hop: int) -> Needs:
        """As `Utterance.needs`."""
        if not self.prepared:
            return Needs(prepare=True)
        if self.sounded >= self.arrival.tokens:
            return Needs()
        blocks = self.blocks(lead_s, first_hop)
        return Needs(decode=self.drawn < self.arrival.tokens, sound=blocks or None)

    def blocks(self, lead_s: float, first_hop: int) -> int:
        """Blocks that could be sounded now."""
        if self.drawn >= self.arrival.tokens:
            left = self.arrival.tokens - self.sounded
            return min(blocks_for(lead_s), math.ceil(left / BLOCK_TOKENS))
        ready = self.drawn - LOOKAHEAD_TOKENS
        if self.sounded == 0:
            return 1 if ready >= first_hop else 0
        return min(blocks_for(lead_s), max(0, ready - self.sounded) // BLOCK_TOKENS)

    def hear(self, now_s: float, tokens: int) -> float:
        """Take audio of so many tokens; returns its seconds."""
        if self.first_audio_s == math.inf:
            self.first_audio_s = now_s - self.arrival.at_s
        else:
            self.underrun_s += max(0.0, now_s - self._runs_dry_s)
        seconds = tokens * TOKEN_S
        self._runs_dry_s = max(now_s, self._runs_dry_s) + seconds
        self.sounded += tokens
        return seconds


class InOrder(Scheduler[int]):
    """First come, first served, one after the other."""

    def _ranked(self) -> list[tuple[float, int, int]]:
        ranked = [
            (float(entry.order), entry.order, key)
            for key, entry in self._entries.items()
            if entry.needs.kind is not None
        ]
        return sorted(ranked)


def simulate(
    arrivals: Sequence[Arrival],
    costs: Costs,
    scheduler: Scheduler[int],
    *,
    first_hop: int = 10,
    slots: int = 1 << 30,
) -> list[Played]:
    """Serve arrivals to their end.

    Args:
        arrivals: In the order of their times.
        costs: Of the device.
        scheduler: Fresh; decides.
        first_hop: Tokens before the first audio, besides the lookahead.
        slots: Utterances at once; later ones wait for a free one.

    Returns:
        What became of each, in the same order.
    """
    played = [Played(arrival) for arrival in arrivals]
    waiting = list(range(len(arrivals)))
    now = 0.0

    def look(key: int) -> None:
        lead = scheduler.lead_s(key, now)
        scheduler.set_needs(key, played[key].needs(lead, first_hop))

    while waiting or len(scheduler):
        while waiting and len(scheduler) < slots and arrivals[waiting[0]].at_s <= now:
            key = waiting.pop(0)
            scheduler.add(key, arrivals[key].at_s, background=arrivals[key].background)
            look(key)
        step = scheduler.next(now)
        if step is None:
            now = arrivals[waiting[0]].at_s
            continue
        blocks = [
            played[key].blocks(scheduler.lead_s(key, now), first_hop)
            if step.kind is Kind.SOUND
            else 0
            for key in step.keys
        ]
        now += costs.of(step.kind, blocks)
        for key, count in zip(step.keys, blocks, strict=True):
            one = played[key]
            if step.kind is Kind.PREPARE:
                one.prepared = True
            elif step.kind is Kind.DECODE:
                one.drawn += 1
            else:
                hop = first_hop if one.sounded == 0 else count * BLOCK_TOKENS
                left = one.arrival.tokens - one.sounded
                scheduler.produced(key, now, one.hear(now, min(hop, left)))
            if one.sounded >= one.arrival.tokens:
                one.ended_s = now
                scheduler.remove(key)
            else:
                look(key)
    return played


def earliest_deadline() -> Scheduler[int]:
    """Deadlines alone: everybody takes part in every step, newcomers have no promise."""
    return Scheduler(Policy(first_audio_s=1.0, comfort_s=1e9))


def first_come() -> Scheduler[int]:
    """One utterance a step, in the order in which they came."""
    return InOrder(Policy(prepare_batch=1, decode_batch=1, sound_batch=1))


POLICIES: Final = {"fifo": first_come, "deadline": earliest_deadline, "ours": Scheduler[int]}
"""What the benchmark compares."""
