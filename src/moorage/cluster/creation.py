"""Creation of a cluster: settings decided at its first start, and the changes allowed later."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from moorage.apiserver.storage import StoreBrokenError, accept_loss, check_kept
from moorage.cluster.access.credentials import Credentials
from moorage.cluster.access.identities import prepare
from moorage.cluster.access.kubeconfig import Access, write
from moorage.cluster.engine.usage import check_engine_change, note_engine
from moorage.cluster.layout import Layout
from moorage.cluster.network import bridge_name, choose_subnet
from moorage.cluster.network.subnet import NoSubnetError, SubnetTakenError, check_subnet
from moorage.cluster.reservations import Reservations
from moorage.cluster.settings import (
    DEFAULT_API_PORT,
    DEFAULT_CONTROLLERS_PORT,
    DEFAULT_NODE_PORT,
    DEFAULT_SCHEDULER_PORT,
    NODE,
    RUNTIMES,
    Choices,
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
from moorage.cluster.supervision.supervisor import AlreadyRunningError, running_pid
from moorage.linux.locks import exclusive
from moorage.linux.routes import Route, host_routes
from moorage.linux.trust import make_private

# The /16 networks of kubeadm's default, so that the first cluster's is the usual one.
SERVICE_POOL = ipaddress.IPv4Network("10.96.0.0/12")
_SERVICE_PREFIX = 16
_LONGEST_PREFIX = 28
_FIXED = ("name", "node_name", "pod_network", "service_network")


@dataclass(frozen=True, slots=True)
class HostNetwork:
    """The host's address, routes and ports, as a cluster that is created finds them."""

    ip: Callable[[], str] = host_ip
    routes: Callable[[], Collection[Route]] = host_routes
    require_port: Callable[[int, str, str, Reservations], None] = require_port
    free_port: Callable[..., int] = free_port


THIS_HOST = HostNetwork()


def open_cluster(
    layout: Layout,
    choices: Choices,
    reservations: Reservations | None = None,
    host: HostNetwork = THIS_HOST,
) -> Settings:
    """Create the cluster in a directory, or apply the choices to it; return its settings.

    Writes settings, keys and kubeconfig. Reserves ports and networks in `reservations` until it is
    closed; if None, only during this call. Blocks while another process creates or stops the
    cluster; of two that create it, the second uses the first one's settings.

    Raises SettingsError for choices that are invalid or contradict the existing cluster,
    NoSubnetError and SubnetTakenError for its network, AlreadyRunningError while it runs,
    LostKeyError and AuthorityError for its keys.
    """
    if reservations is None:
        with Reservations() as temporary:
            return open_cluster(layout, choices, temporary, host)
    # Invalid choices are refused before a directory is created for them.
    with Reservations() as trial:
        _decide_exclusively(layout, _present(layout, choices), choices, trial, host)
    make_private(layout.root)
    with exclusive(layout.change_lock):
        pid = running_pid(layout)
        if pid is not None:
            raise AlreadyRunningError(layout, pid)
        present = _present(layout, choices)
        settings = _decide_exclusively(layout, present, choices, reservations, host)
        if settings != present:
            save(layout.settings, settings)
        if not choices.accepts_loss:
            _check_store(layout)
        prepare(layout, settings, is_new=choices.accepts_loss or not _was_started(layout))
        if choices.accepts_loss:
            accept_loss(layout.store_mark)
            layout.node_store.unlink(missing_ok=True)
        write(layout.kubeconfig, access(layout, settings))
        left_out = {*settings.without, *(() if settings.has_node else (NODE,))} - {RUNTIMES}
        for part in sorted(left_out):
            write(layout.part_kubeconfig(part), access(layout, settings, part))
        if settings.has_node:
            note_engine(layout, settings.cri)
    return settings


def _check_store(layout: Layout) -> None:
    """Raise SettingsError if the store is missing or older than recorded, as its server would."""
    if layout.node_store.exists() and not _was_started(layout):
        raise SettingsError(
            f"{layout.database} and {layout.store_mark} are gone, but the pods of a store run here "
            f"({layout.node_store}); put the files back from a copy, or start an empty cluster, "
            "which ends those pods, with `moor up --accept-loss`"
        )
    try:
        check_kept(layout.database, layout.store_mark)
    except StoreBrokenError as error:
        raise SettingsError(str(error)) from error


def _was_started(layout: Layout) -> bool:
    """Return whether a store was created here, so that objects, tokens and pods may exist."""
    return layout.store_mark.exists() or layout.database.exists()


def _present(layout: Layout, choices: Choices) -> Settings | None:
    """Return the existing cluster's settings, None without one.

    Raises SettingsError if only their file is missing and the choices do not accept that.
    """
    settings = load(layout.settings)
    if settings is None and _was_started(layout) and not choices.accepts_loss:
        raise SettingsError(
            f"{layout.settings} is gone, but a cluster was made in {layout.root}; put it back from "
            "a copy, or go on with new settings with `moor up --accept-loss`: networks and ports "
            "may differ, and pods that run are not found again"
        )
    return settings


def access(layout: Layout, settings: Settings, identity: str = "admin") -> Access:
    """Return the API's URL and the certificate of the administrator or of a part."""
    credentials = Credentials(layout)
    authority = credentials.authority.certificate
    return Access(settings.name, settings.server, authority, credentials.named(identity), identity)


def _decide_exclusively(
    layout: Layout,
    present: Settings | None,
    choices: Choices,
    reservations: Reservations,
    host: HostNetwork,
) -> Settings:
    try:
        return _decide(layout, present, choices, reservations, host)
    except SettingsError as error:
        # A process that started this cluster a moment ago holds its ports.
        if pid := running_pid(layout):
            raise AlreadyRunningError(layout, pid) from error
        raise


def _decide(
    layout: Layout,
    present: Settings | None,
    choices: Choices,
    reservations: Reservations,
    host: HostNetwork,
) -> Settings:
    settings = (
        _new_settings(choices, reservations, host)
        if present is None
        else _changed_settings(present, choices, host)
    )
    if present is not None:
        check_engine_change(layout, present, settings)
        _check_network(settings, host)
    _check_option_files(settings)
    host.require_port(settings.api_port, "127.0.0.1", "--api-port", reservations)
    if settings.has_node:
        host.require_port(settings.node_port, settings.node_ip, "--node-port", reservations)
    # Nothing but readers of metrics depends on these, so another one will do.
    others = [settings.api_port, settings.node_port]
    controllers_port = host.free_port(
        settings.controllers_port or DEFAULT_CONTROLLERS_PORT, reservations, others=others
    )
    scheduler_port = host.free_port(
        settings.scheduler_port or DEFAULT_SCHEDULER_PORT,
        reservations,
        others=[*others, controllers_port],
    )
    return msgspec.structs.replace(
        settings, controllers_port=controllers_port, scheduler_port=scheduler_port
    )


class _OptionFile(NamedTuple):
    """An option with a file: its setting, how the file is loaded, and what starts without it."""

    setting: str
    load: Callable[[], Callable[[Path], object]]
    without: str


def _policy_loader() -> Callable[[Path], object]:
    # Imported here: the API server is large, and few starts need it.
    from moorage.apiserver.audit import load_policy

    return load_policy


def _admission_loader() -> Callable[[Path], object]:
    from moorage.apiserver.admission.configuration import load_configuration

    return load_configuration


def _node_loader() -> Callable[[Path], object]:
    from moorage.node.configuration import load_configuration

    return load_configuration


_OPTION_FILES = (
    _OptionFile("audit_policy", _policy_loader, "an audit log with --audit-policy ''"),
    _OptionFile(
        "admission_configuration",
        _admission_loader,
        "one with --admission-control-config-file ''",
    ),
    _OptionFile("kubelet_configuration", _node_loader, "one with --kubelet-config ''"),
)


def _check_option_files(settings: Settings) -> None:
    """Raise SettingsError if a file that an option names cannot be used."""
    for option in _OPTION_FILES:
        path = getattr(settings, option.setting)
        if not path:
            continue
        try:
            option.load()(Path(path))
        except ValueError as error:
            raise SettingsError(
                f"{error}; correct the file, or start without {option.without}"
            ) from error


def _new_settings(choices: Choices, reservations: Reservations, host: HostNetwork) -> Settings:
    cluster_id = new_cluster_id()
    if choices.service_network is None:
        service_network = _free_service_network(reservations, host)
    else:
        service_network = _network(choices.service_network)
    if choices.pod_network is None:
        pod_network = _free_subnet(service_network, reservations, host)
    else:
        pod_network = _network(choices.pod_network)
        check_subnet(pod_network, host.routes(), bridge_name(cluster_id))
    if pod_network.overlaps(service_network):
        raise SettingsError(f"pod network {pod_network} overlaps service network {service_network}")
    node_ip = host.ip()
    defaults = Settings(
        name="moorage",
        cluster_id=cluster_id,
        node_name=node_name(choices.node_name),
        api_port=choices.api_port or host.free_port(DEFAULT_API_PORT, reservations),
        node_port=choices.node_port or host.free_port(DEFAULT_NODE_PORT, reservations, node_ip),
        node_ip=node_ip,
        pod_network=str(pod_network),
        service_network=str(service_network),
        bridge=bridge_name(cluster_id),
    )
    decided = {"pod_network": str(pod_network), "service_network": str(service_network)}
    return msgspec.structs.replace(defaults, **choices.given() | decided)


def _free_service_network(reservations: Reservations, host: HostNetwork) -> ipaddress.IPv4Network:
    """Choose and reserve a network for services that no other cluster on this host routes.

    Raises NoSubnetError.
    """
    for candidate in SERVICE_POOL.subnets(new_prefix=_SERVICE_PREFIX):
        is_used = any(
            candidate.overlaps(route.network) for route in host.routes() if route.network.prefixlen
        )
        if not is_used and reservations.take(f"service network {candidate}"):
            return candidate
    raise NoSubnetError(SERVICE_POOL)


def _free_subnet(
    service_network: ipaddress.IPv4Network, reservations: Reservations, host: HostNetwork
) -> ipaddress.IPv4Network:
    """Choose and reserve a free network for the pods. Raises NoSubnetError."""
    routes, reserved = host.routes(), [service_network]
    while True:
        subnet = choose_subnet(routes, reserved)
        if reservations.take(f"pod network {subnet}"):
            return subnet
        reserved.append(subnet)


def _changed_settings(present: Settings, choices: Choices, host: HostNetwork) -> Settings:
    changes = choices.given()
    for name in _FIXED:
        if name in changes and changes[name] != getattr(present, name):
            raise SettingsError(
                f"the cluster in this directory has {name.replace('_', ' ')} "
                f"{getattr(present, name)}, which cannot become {changes[name]}; "
                "use another directory with --data-dir"
            )
    # `--no-node` and `--without` are given at each start: they are no property of the cluster. The
    # host may have another address since the last start.
    present_parts = {"has_node": True, "without": ()}
    return msgspec.structs.replace(present, **present_parts | changes, node_ip=host.ip())


def _check_network(settings: Settings, host: HostNetwork) -> None:
    """Raise SubnetTakenError if the network of an existing cluster is meanwhile used by another.

    Both would have a bridge with the same address, and pods could not be reached.
    """
    if not settings.has_node or settings.cri:
        return
    try:
        check_subnet(ipaddress.IPv4Network(settings.pod_network), host.routes(), settings.bridge)
    except SubnetTakenError as error:
        remedy = (
            "a cluster keeps its network: remove what uses it (`moor down` for another cluster), "
            "or start a new cluster with --data-dir"
        )
        raise SubnetTakenError(error.subnet, error.route, remedy) from error


def _network(text: str) -> ipaddress.IPv4Network:
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise SettingsError(f"{text!r} is not an IPv4 network: {error}") from error
    if network.prefixlen > _LONGEST_PREFIX:
        raise SettingsError(f"{text} is too small: /{_LONGEST_PREFIX} is the smallest network")
    return network
