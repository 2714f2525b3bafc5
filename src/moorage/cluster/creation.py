"""Deciding what a cluster is: at its first start, and what may change at later ones."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

import msgspec

from moorage.cluster.credentials import Credentials
from moorage.cluster.files import exclusive
from moorage.cluster.identities import prepare
from moorage.cluster.kubeconfig import Access, write
from moorage.cluster.layout import Layout
from moorage.cluster.network import bridge_name, choose_subnet, host_routes
from moorage.cluster.network.subnet import check_subnet
from moorage.cluster.settings import (
    DEFAULT_API_PORT,
    DEFAULT_NODE_PORT,
    Settings,
    SettingsError,
    free_port,
    host_ip,
    load,
    new_cluster_id,
    node_name,
    require_port,
    save,
)
from moorage.cluster.supervisor import AlreadyRunningError, running_pid

SERVICE_NETWORK = "10.96.0.0/16"
_LONGEST_PREFIX = 28
_FIXED = ("name", "node_name", "pod_network", "service_network")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the person who starts a cluster said; None where nothing was said."""

    name: str | None = None
    node_name: str | None = None
    api_port: int | None = None
    node_port: int | None = None
    pod_network: str | None = None
    service_network: str | None = None
    cri: str | None = None
    has_node: bool | None = None
    filters_by_handler: bool | None = None
    log_level: str | None = None
    gates: dict[str, bool] = field(default_factory=dict)
    registry_mirrors: dict[str, str] = field(default_factory=dict)

    def given(self) -> dict[str, object]:
        """Only what was said."""
        return {
            name: value
            for name in self.__dataclass_fields__
            if (value := getattr(self, name)) not in (None, {})
        }


def open_cluster(layout: Layout, choices: Choices) -> Settings:
    """The settings of the cluster in a folder, made there if absent; keys and kubeconfig too.

    Raises SettingsError for choices that cannot be, or that contradict the cluster there is;
    NoSubnetError and SubnetTakenError for its network, AlreadyRunningError while it runs. Two at
    once make one cluster: the second finds what the first decided.
    """
    # What cannot be is said before a folder is made for it.
    _decided(load(layout.settings), choices)
    layout.root.mkdir(parents=True, exist_ok=True, mode=0o711)
    with exclusive(layout.change_lock):
        pid = running_pid(layout)
        if pid is not None:
            raise AlreadyRunningError(layout, pid)
        present = load(layout.settings)
        settings = _decided(present, choices)
        if settings != present:
            save(layout.settings, settings)
        prepare(layout, settings)
        write(layout.kubeconfig, access(layout, settings))
    return settings


def access(layout: Layout, settings: Settings) -> Access:
    """How the administrator reaches the cluster."""
    credentials = Credentials(layout)
    authority = credentials.authority.certificate
    return Access(settings.name, settings.server, authority, credentials.admin)


def _decided(present: Settings | None, choices: Choices) -> Settings:
    settings = _made(choices) if present is None else _changed(present, choices)
    require_port(settings.api_port, "127.0.0.1", "--api-port")
    if settings.has_node:
        require_port(settings.node_port, settings.node_ip, "--node-port")
    return settings


def _made(choices: Choices) -> Settings:
    cluster_id = new_cluster_id()
    service_network = _network(choices.service_network or SERVICE_NETWORK)
    if choices.pod_network is None:
        pod_network = choose_subnet(host_routes(), [service_network])
    else:
        pod_network = _network(choices.pod_network)
        check_subnet(pod_network, host_routes(), bridge_name(cluster_id))
    if pod_network.overlaps(service_network):
        raise SettingsError(f"pod network {pod_network} overlaps service network {service_network}")
    node_ip = host_ip()
    defaults = Settings(
        name="moorage",
        cluster_id=cluster_id,
        node_name=node_name(choices.node_name),
        api_port=choices.api_port or free_port(DEFAULT_API_PORT),
        node_port=choices.node_port or free_port(DEFAULT_NODE_PORT, node_ip),
        node_ip=node_ip,
        pod_network=str(pod_network),
        service_network=str(service_network),
        bridge=bridge_name(cluster_id),
    )
    decided = {"pod_network": str(pod_network), "service_network": str(service_network)}
    return msgspec.structs.replace(defaults, **choices.given() | decided)


def _changed(present: Settings, choices: Choices) -> Settings:
    given = choices.given()
    for name in _FIXED:
        if name in given and given[name] != getattr(present, name):
            raise SettingsError(
                f"the cluster in this folder has {name.replace('_', ' ')} "
                f"{getattr(present, name)}, which cannot become {given[name]}; "
                "use another folder with --data-dir"
            )
    # The machine may have moved to another network since.
    return msgspec.structs.replace(present, **given, node_ip=host_ip())


def _network(text: str) -> ipaddress.IPv4Network:
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise SettingsError(f"{text!r} is no IPv4 network: {error}") from error
    if network.prefixlen > _LONGEST_PREFIX:
        raise SettingsError(f"{text} is too small: /{_LONGEST_PREFIX} is the smallest network")
    return network
