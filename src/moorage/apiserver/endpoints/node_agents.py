"""Node agents as the API server reaches them: their address, and mutual TLS.

A node reports its own address and port. So that a node that reports another's does not receive what
is meant for that one's pods, the certificate of an agent must name its node: the common name is
`system:node:NAME`, as in what kube-controller-manager signs for `kubernetes.io/kubelet-serving`.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
from collections import OrderedDict
from pathlib import Path
from typing import Final

import msgspec
from yarl import URL

from moorage.api.errors import InternalError
from moorage.apiserver.admission.node_restriction import NODE_USER_PREFIX
from moorage.apiserver.registry.kind import Obj

# Server addresses: scheme, host and port of a server that the API server connects to.
#
# What clients and nodes name becomes an address here, checked by itself: an IP address or a host
# name, and a number from 1 to 65535. A URL is made from the parts, and it must divide into the same
# parts again, so that no text in them (`IP:80@` is user information to a parser) leads elsewhere.

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


_CONTEXTS: Final = 1024
_ADDRESS_TYPES: Final = ("InternalIP", "ExternalIP", "Hostname")


class NodeTls(msgspec.Struct, frozen=True):
    """Mutual TLS with node agents. Paths are of PEM files."""

    certificate: Path
    key: Path
    authority: Path

    def context(self, node: str) -> ssl.SSLContext:
        """Return the client context for the agent of one node.

        A handshake with a server whose certificate names another node raises
        ssl.SSLCertVerificationError. Raises OSError for files that are missing or unusable.
        """
        context = ssl.create_default_context(cafile=str(self.authority))
        context.load_cert_chain(self.certificate, self.key)
        context.sslobject_class = _object_class(node)
        return context


class AgentContexts:
    """The TLS contexts of node agents, one a node. The latest 1024 are kept."""

    def __init__(self, node_tls: NodeTls) -> None:
        self._node_tls = node_tls
        self._contexts: OrderedDict[str, ssl.SSLContext] = OrderedDict()

    def of(self, node: str) -> ssl.SSLContext:
        """Return the context for a node's agent. Raises OSError as `NodeTls.context`."""
        context = self._contexts.pop(node, None)
        if context is None:
            context = self._node_tls.context(node)
            if len(self._contexts) >= _CONTEXTS:
                self._contexts.popitem(last=False)
        self._contexts[node] = context
        return context


class NodeAgent(msgspec.Struct, frozen=True):
    """The agent of a node, where the node says that it is."""

    node: str
    address: ServerAddress


def agent_of(node: Obj) -> NodeAgent:
    """Return the agent of a node.

    Raises InternalError when the node reports no address and port, or what is none.
    """
    status, name = node.get("status", {}), node["metadata"]["name"]
    by_type = {
        address_entry["type"]: address_entry["address"]
        for address_entry in reversed(status.get("addresses", ()))
    }
    reported = next(filter(None, map(by_type.get, _ADDRESS_TYPES)), None)
    port = status.get("daemonEndpoints", {}).get("kubeletEndpoint", {}).get("Port", 0)
    if not reported:
        raise InternalError.of(f"no preferred addresses found; known addresses: {list(by_type)}")
    if not port:
        raise InternalError.of(
            f"the agent of node {name!r} has no endpoint (status.daemonEndpoints is empty)"
        )
    host = host_name(reported)
    if host is None or not is_port(port):
        raise InternalError.of(
            f"node {name!r} reports {reported!r} and port {port} as the address of its agent: "
            "not an IP address or host name, and a port"
        )
    return NodeAgent(name, ServerAddress("https", host, port))


def _object_class(node: str) -> type[ssl.SSLObject]:
    """Return the class of TLS connections that end unless the server is the agent of a node."""
    wanted = f"{NODE_USER_PREFIX}{node}"

    class OfNode(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            names = _common_names(self.getpeercert(binary_form=True))
            if names != [wanted]:
                raise ssl.SSLCertVerificationError(
                    f"the certificate is valid for {', '.join(names) or 'no name'}, not {wanted}"
                )

    return OfNode


def _common_names(certificate: bytes | None) -> list[str]:
    if certificate is None:
        return []
    # Imported at the first use: it is most of a second of a cluster's start.
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    subject = x509.load_der_x509_certificate(certificate).subject
    return [str(name.value) for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
