"""When a SIP call is hung up although nobody has asked for it."""

from __future__ import annotations

from cosyvoice_stream.telephony.sip_call import SipCall
from cosyvoice_stream.telephony.sip_config import SipConfig
from cosyvoice_stream.telephony.sip_signalling import CallState


def deadline(call: SipCall, config: SipConfig, now: float) -> tuple[float, str]:
    """When to look at a call again, and why to hang it up if `now` is no earlier.

    Args:
        call: In any state but ENDED.
        config: Its limits.
        now: On the loop's clock.
    """
    if call.state is not CallState.TALKING:
        return call.began_at + config.ring_s, "nobody answered"
    times = [(call.talking_at + config.max_call_s, "too long")]
    if call.expires_at is not None:
        times.append((call.expires_at, "not refreshed"))
    leg = call.leg
    if leg is None or leg.agreed is None or not leg.agreed.direction.receives:
        times.append((now + config.silence_s, "on hold"))  # look again; it may have been resumed
    else:
        heard_at = max(leg.heard_at or 0.0, leg.agreed_at)
        times.append((heard_at + config.silence_s, "no audio came"))
    return min(times)
