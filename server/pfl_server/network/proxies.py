"""The proxies that end TLS in front of the coordinator: whose calls they pass on, and from where these come."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from pfl_server.settings import Network

FORWARDED = "x-forwarded-for"
_LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))


@dataclass(frozen=True)
class Proxies:
    """The networks that the operator's proxies call from; none: sites call by themselves."""

    networks: tuple[Network, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.networks)

    def pass_on(self, host: str) -> bool:
        """Whether calls from this address are a proxy's, or this machine's own."""
        return _is_in(host, (*self.networks, *_LOOPBACK))

    def origin(self, host: str, forwarded: str | bytes | None) -> str:
        """Where a call comes from that reached us from `host`; a proxy of ours says it, nobody else is believed."""
        if not isinstance(forwarded, str) or not _is_in(host, self.networks):
            return host
        # The last one was added by the proxy itself, those before it by whoever called it.
        said = forwarded.rpartition(",")[2].strip()
        return said if _is_address(said) else host


def _is_in(host: str, networks: tuple[Network, ...]) -> bool:
    return _is_address(host) and any(ip_address(host) in network for network in networks)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
