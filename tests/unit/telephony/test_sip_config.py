"""Settings of a SIP user agent: who may call, which ports, whose certificate."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosyvoice_stream.errors import ConfigError
from cosyvoice_stream.telephony.sip_config import (
    Account,
    SipConfig,
    parse_networks,
    parse_ports,
    server_tls,
)

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("host", "admitted"),
    [
        ("127.0.0.1", True),
        ("192.168.7.7", True),
        ("::ffff:10.1.2.3", True),
        ("fe80::1%eth0", True),
        ("198.51.100.9", False),
        ("2001:db8::1", False),
        ("no address", False),
    ],
)
def test_only_the_own_network_may_call_unless_told_otherwise(host: str, admitted: bool) -> None:
    assert SipConfig().admits(host) is admitted


def test_an_allow_list_is_exact() -> None:
    config = SipConfig(allow=parse_networks(["198.51.100.0/24", "2001:db8::7"]))
    assert config.admits("198.51.100.9")
    assert config.admits("2001:db8::7")
    assert not config.admits("127.0.0.1")
    assert SipConfig(allow=parse_networks(["*"])).admits("203.0.113.1")
    with pytest.raises(ConfigError, match="'example' is no network"):
        parse_networks(["example"])


def test_a_range_of_ports_holds_a_pair_at_least() -> None:
    assert parse_ports("16384-32767") == (16_384, 32_767)
    assert parse_ports("4000-4001") == (4000, 4001)
    for wrong in ("", "4000", "4001-4002", "80-90", "5000-4000", "1024-70000", "a-b"):
        with pytest.raises(ConfigError, match="no range of RTP ports"):
            parse_ports(wrong)


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "pem").write_text("nonsense")
    for path in (tmp_path / "absent", tmp_path / "pem"):
        with pytest.raises(ConfigError, match="certificate of the SIP endpoint"):
            server_tls(path, path)


def test_a_password_is_never_shown() -> None:
    account = Account("sip:a@b", "a", "secret word")
    assert "secret word" not in repr(account)
