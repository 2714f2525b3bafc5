"""Server addresses: scheme, host and port of a server that the API server connects to.

What clients and nodes name becomes an address here, checked by itself: an IP address or a host
name, and a number from 1 to 65535. A URL is made from the parts, and it must divide into the same
parts again, so that no text in them (`IP:80@` is user information to a parser) leads elsewhere.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

import msgspec
from yarl import URL

_LARGEST_PORT: Final = 65535
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_HOST_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.A)
_LONGEST_NAME: Final = 253
_NUMBER = re.compile(r"[0-9]{1,5}", re.A)

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


class ServerAddress(msgspec.Struct, frozen=True):
    """Where a server is. `port` 0 is the scheme's own."""

    scheme: str
    host: str
    port: int = 0

    @property
    def authority(self) -> str:
        """Return `HOST:PORT` as it stands in a URL, or `HOST` with the scheme's own port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.port else host

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"

    def url(self, target: str) -> URL:
        """Return the URL of a path and query, which are already escaped.

        Raises ValueError if a parser would take it for the URL of another server.
        """
        url = URL(f"{self.origin}{target}", encoded=True)
        port = self.port or _DEFAULT_PORTS[self.scheme]
        parts = (url.scheme, url.raw_host, url.port, url.raw_user, url.raw_password)
        if parts != (self.scheme, self.host, port, None, None):
            raise ValueError(f"{self.authority} is not the address of a server")
        return url


def port_number(text: str) -> int | None:
    """Return the port that a decimal number names, None if the text is no port's number."""
    if not _NUMBER.fullmatch(text):
        return None
    number = int(text)
    return number if 0 < number <= _LARGEST_PORT else None


def is_port(number: object) -> bool:
    return isinstance(number, int) and 0 < number <= _LARGEST_PORT


def ip_address(text: str) -> Ip | None:
    """Return the address, None if the text is none or has a zone (`fe80::1%eth0`)."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id:
        return None
    return address


def host_name(text: str) -> str | None:
    """Return an IP address or a DNS name (RFC 1123) in its usual form, None if it is neither."""
    address = ip_address(text)
    if address is not None:
        return str(address)
    name = text.lower()
    return name if len(name) <= _LONGEST_NAME and _HOST_NAME.fullmatch(name) else None
