"""The settings of telephone lines; `Settings` has them among its own."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from cosyvoice_stream.server.setting_types import CommaList, FilePath, IpAddress, PortRange


class PhoneSettings(BaseModel):
    """How calls come in, and what becomes of them."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    phone_menu: FilePath | None = None
    """YAML file of the menu that answers calls (docs/telephony.md). Not set: the one that is built
    in, a demonstration."""
    phone_agent: str | None = None
    """Address of a program of yours that leads calls (docs/telephony.md): `ws://` or `wss://` for a
    conversation in both directions, `http://` or `https://` for one request a turn. A `phone_menu`
    then leads the calls for which the program cannot be reached."""
    phone_agent_token: SecretStr | None = None
    """Sent to that program as `Authorization: Bearer …`."""
    phone_max_calls: int = Field(100, ge=1)
    """Telephone calls at the same time, both ways; more are refused."""
    phone_max_call_s: float = Field(3600, gt=0)
    """Seconds after which a telephone call is hung up."""
    phone_lead_in_ms: int = Field(200, ge=0, le=5000)
    """Silence before the first word of a call: many lines lose what comes in their first
    moments."""
    phone_min_speech_ms: int = Field(200, ge=20, le=5000)
    """Speech of the caller that interrupts what is said."""
    phone_turn_end_ms: int = Field(600, ge=40, le=5000)
    """Silence that ends what the caller says."""
    sip_port: int | None = Field(None, ge=0, le=65535)
    """UDP and TCP port of a SIP endpoint, usually 5060; needs the extra `phone`. Not set: none."""
    sip_host: str = "127.0.0.1"
    """Address of it and of RTP."""
    sip_tls_port: int | None = Field(None, ge=0, le=65535)
    """TCP port for SIP over TLS, usually 5061, beside `sip_port`."""
    sip_tls_certificate: FilePath | None = None
    """PEM file of its certificate."""
    sip_tls_key: FilePath | None = None
    """PEM file of its key."""
    sip_public_address: IpAddress | None = None
    """IP address that other ends are told, behind NAT. Not set: the one towards them."""
    sip_allow: CommaList = ()
    """Addresses and networks that may send SIP, such as `192.0.2.0/24`, separated by commas; `*`
    allows all. Not set: this machine and private networks."""
    sip_codecs: CommaList = ()
    """Codecs of calls, the best first: `opus`, `g722`, `pcma`, `pcmu`, `l16-16k`. Not set: all."""
    sip_account: str | None = None
    """Address of an account to register, such as `sip:bot@example.org`. Not set: none."""
    sip_username: str | None = None
    """Its user name for digests. Not set: the user part of the address."""
    sip_password: SecretStr | None = None
    """Its password."""
    sip_registrar: str | None = None
    """URI of its registrar or trunk. Not set: the host of the address."""
    sip_register: bool = True
    """Register it; a trunk that knows our address needs only the password of calls."""
    sip_max_calls_per_host: int | None = Field(None, ge=1)
    """Calls from one address at the same time. Not set: no limit of its own."""
    rtp_ports: PortRange = (16384, 32767)
    """UDP ports for the audio of SIP calls; each takes two."""
