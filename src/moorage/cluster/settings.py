"""What one cluster is: decided at its first start, kept in its data directory ever after."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import time
from pathlib import Path

import msgspec

from moorage.api import names
from moorage.api.host_ports import Listener
from moorage.api.image_verification import NEVER_VERIFY_PRELOADED
from moorage.cluster.claims import Claims
from moorage.cluster.errors import ClusterError
from moorage.cluster.files import write_private
from moorage.linux.address import own_address

DEFAULT_API_PORT = 6443
DEFAULT_NODE_PORT = 10250
DEFAULT_IMAGE_LIMIT_BYTES = 128 << 30
DEFAULT_POD_PIDS_LIMIT = 4096
"""How many processes and threads one pod may have; the kubelet's own default is no limit."""
_PORT_TRIES = 50
_PORT_PATIENCE_S = 5.0
_PORT_POLL_S = 0.05


class SettingsError(ClusterError, ValueError):
    """Settings that contradict each other or the cluster there is."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cluster's settings. Addresses are IPv4.

    `cri` is the endpoint of a running engine, empty for an engine of our own; `has_node` is false
    for a control plane alone. `gates` are feature gates that differ from their default.
    `seccomp_default` and `pod_pids_limit` (-1: unlimited) are KubeletConfiguration's
    `seccompDefault` and `podPidsLimit`, `image_verification` and `image_allowlist` its
    `imagePullCredentialsVerificationPolicy` and `preloadedImagesVerificationAllowlist`.
    `image_limit_bytes` is the most an image may take on disk with an engine of our own.
    """

    name: str
    cluster_id: str
    node_name: str
    api_port: int
    node_port: int
    node_ip: str
    pod_network: str
    service_network: str
    bridge: str
    has_node: bool = True
    cri: str = ""
    gates: dict[str, bool] = {}
    filters_by_handler: bool = True
    registry_mirrors: dict[str, str] = {}
    log_level: str = "info"
    seccomp_default: bool = False
    pod_pids_limit: int = DEFAULT_POD_PIDS_LIMIT
    image_verification: str = NEVER_VERIFY_PRELOADED
    image_allowlist: tuple[str, ...] = ()
    image_limit_bytes: int = DEFAULT_IMAGE_LIMIT_BYTES

    @property
    def gateway(self) -> str:
        """The pods' gateway: the host's address on the bridge, where pods reach the API."""
        return str(ipaddress.IPv4Network(self.pod_network)[1])

    @property
    def service_ip(self) -> str:
        """The address of the service `kubernetes`."""
        return str(ipaddress.IPv4Network(self.service_network)[1])

    @property
    def api_addresses(self) -> tuple[str, ...]:
        """Where the API listens: for this machine, and where pods reach it.

        Pods of our own engine come over their bridge; those of another one by the node's address.
        """
        if not self.has_node:
            return ("127.0.0.1",)
        return tuple(dict.fromkeys(("127.0.0.1", self.pod_facing_address)))

    @property
    def pod_facing_address(self) -> str:
        """The API's address that pods are told."""
        return self.node_ip if self.cri else self.gateway

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Where the cluster's parts listen on this machine."""
        api = (Listener("API server", address, self.api_port) for address in self.api_addresses)
        agent = Listener(f"agent of node {self.node_name}", self.node_ip, self.node_port)
        return (*api, agent) if self.has_node else tuple(api)

    @property
    def server(self) -> str:
        """The API's URL on this machine."""
        return f"https://127.0.0.1:{self.api_port}"

    def is_enabled(self, gate: str) -> bool:
        return self.gates.get(gate, True)


def load(path: Path) -> Settings | None:
    """The settings of an existing cluster. Raises SettingsError for a damaged file."""
    try:
        settings = msgspec.json.decode(path.read_bytes(), type=Settings)
        for network in (settings.pod_network, settings.service_network):
            ipaddress.IPv4Network(network)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise SettingsError(
            f"{path} is damaged ({error}); restore it, or start in another directory with "
            "--data-dir"
        ) from error
    return settings


def save(path: Path, settings: Settings) -> None:
    write_private(path, msgspec.json.format(msgspec.json.encode(settings), indent=2) + b"\n")


def new_cluster_id() -> str:
    """Eight hex digits that tell this cluster's things on the machine from another's."""
    return secrets.token_hex(4)


def node_name(chosen: str | None = None) -> str:
    """The chosen name, else the host's. Raises SettingsError when it cannot be a node's."""
    name = socket.gethostname().lower() if chosen is None else chosen
    complaints = names.dns_subdomain_errors(name)
    if complaints:
        what = "the host name" if chosen is None else "--node-name"
        advice = "; give one with --node-name" if chosen is None else ""
        raise SettingsError(f"{what} {name!r} is no node name ({complaints[0]}){advice}")
    return name


def free_port(preferred: int, claims: Claims, address: str = "127.0.0.1") -> int:
    """Claim the preferred port of an address, or the next that is free. Raises SettingsError."""
    for port in range(preferred, preferred + _PORT_TRIES):
        if not _port_complaint(port, address, claims):
            return port
    raise SettingsError(f"no free port from {preferred} on")


def require_port(port: int, address: str, option: str, claims: Claims) -> None:
    """Claim a port. Raises SettingsError if it is in use; `option` chooses another port.

    The parts of a cluster that was killed a moment ago let go of theirs one by one, and nothing
    announces that, so a port gets a few seconds.
    """
    deadline = time.monotonic() + _PORT_PATIENCE_S
    while complaint := _port_complaint(port, address, claims):
        if time.monotonic() > deadline:
            raise SettingsError(
                f"port {port} of {address} cannot be used ({complaint}); "
                f"choose another with {option}"
            )
        time.sleep(_PORT_POLL_S)


def _port_complaint(port: int, address: str, claims: Claims) -> str:
    """Return why the port cannot be used, empty when it can: it is claimed then."""
    claim = f"port {address}:{port}"
    if not claims.take(claim):
        # Any local user may bind an abstract name, so the error says how to find who did.
        return (
            "another cluster starts with it, or runs "
            f"(`ss -xap | grep '@moorage/{claim}'` shows the process that claims it)"
        )
    complaint = _bind_complaint(port, address)
    if complaint:
        claims.release(claim)
    return complaint


def _bind_complaint(port: int, address: str) -> str:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            return error.strerror or str(error)
    return ""


def host_ip() -> str:
    """Return the IPv4 address of this host towards others; loopback without a route."""
    return own_address((socket.AF_INET,))
