"""Who is believed about where a call comes from, and whose calls are heard at all behind a proxy."""

from __future__ import annotations

import pytest

from pfl_common.errors import Refused
from pfl_server.network.proxies import Proxies
from pfl_server.network.rpc import Callers
from pfl_server.settings import read_proxies
from tests.network.federation import Federation

OURS = Proxies(read_proxies("10.0.0.5, 10.2.0.0/16,fd00::/8"))


@pytest.mark.parametrize(
    ("host", "said", "expected"),
    [
        ("10.0.0.5", "192.0.2.7", "192.0.2.7"),
        ("10.2.200.1", "198.51.100.1, 192.0.2.7", "192.0.2.7"),
        ("fd00::1", "2001:db8::1", "2001:db8::1"),
        ("10.0.0.6", "192.0.2.7", "10.0.0.6"),
        ("10.0.0.5", "<script>", "10.0.0.5"),
        ("10.0.0.5", None, "10.0.0.5"),
        ("unix", "192.0.2.7", "unix"),
    ],
)
def test_where_a_call_comes_from(host: str, said: str | None, expected: str) -> None:
    """The last address that a proxy of ours added; another caller's word, or no address, counts nothing."""
    assert expected == OURS.origin(host, said)


def test_whose_calls_are_passed_on() -> None:
    """Our proxies' and this machine's own; none named: there is no proxy."""
    assert [True, True, True, False, False] == [
        OURS.pass_on(host) for host in ("10.0.0.5", "127.0.0.1", "::1", "10.0.0.4", "unknown")
    ]
    assert (True, False) == (bool(OURS), bool(Proxies()))


class Called:
    """A call from somewhere."""

    def peer(self) -> str:
        return "ipv4:192.0.2.7:4711"

    def invocation_metadata(self) -> tuple[()]:
        return ()


def test_a_call_past_the_proxy_is_refused(federation: Federation) -> None:
    """The port asks nobody for a certificate then: who reaches it by another way is not heard."""
    callers = Callers(federation.callers().book, proxied=True, proxies=OURS)
    with pytest.raises(Refused) as refused:
        callers.site(Called(), "Join", b"")
    assert "not_a_site" == refused.value.code
