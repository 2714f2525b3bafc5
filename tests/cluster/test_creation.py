"""Deciding what a cluster is, once and again."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import multiprocessing
import os
import shutil
import signal
import socket
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from moorage.apiserver.storage import SqliteStore
from moorage.cluster import creation, settings
from moorage.cluster.access.credentials import Credentials
from moorage.cluster.access.kubeconfig import Access
from moorage.cluster.creation import HostNetwork, open_cluster
from moorage.cluster.engine.usage import check_engine_change, engine_in_use, note_engine
from moorage.cluster.layout import Layout
from moorage.cluster.network.subnet import SubnetTakenError
from moorage.cluster.reservations import Reservations
from moorage.cluster.settings import Choices, Settings, SettingsError, load
from moorage.cluster.supervision.supervisor import AlreadyRunningError, hold_lock
from moorage.linux.routes import Route
from tests.cli.moor import locked
from tests.cluster.access.certificate_checks import assert_pairs_fit

IMPATIENT = HostNetwork(require_port=partial(settings.require_port, patience_s=0.0))


def with_routes(*routes: Route) -> HostNetwork:
    return HostNetwork(routes=lambda: routes)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "a b" / "data")


def test_a_first_start_makes_everything(layout: Layout) -> None:
    made = open_cluster(layout, Choices(node_name="n1"))
    assert load(layout.settings) == made
    assert made.bridge == f"moor-{made.cluster_id}"
    assert layout.kubeconfig.exists()
    assert_pairs_fit(layout.pki)


def test_a_second_start_keeps_it(layout: Layout) -> None:
    made = open_cluster(layout, Choices(name="one", node_name="n1"))
    before = layout.kubeconfig.read_bytes()
    assert open_cluster(layout, Choices(name="one")) == made
    assert layout.kubeconfig.read_bytes() == before


def test_some_choices_may_change(layout: Layout) -> None:
    open_cluster(layout, Choices(node_name="n1"))
    changed = open_cluster(layout, Choices(has_node=False, gates={"RuntimeClass": False}))
    assert not changed.has_node
    assert load(layout.settings) == changed
    assert open_cluster(layout, Choices(has_node=False)) == changed


def test_a_host_that_moved_to_another_network_has_its_new_address(layout: Layout) -> None:
    for address in ("192.0.2.7", "198.51.100.7"):
        host = HostNetwork(
            ip=partial(str, address),
            require_port=lambda *_: None,
            free_port=lambda port, *_, **__: port,
        )
        assert open_cluster(layout, Choices(node_name="n1"), host=host).node_ip == address


def test_an_audit_policy_is_checked_at_every_start(layout: Layout, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}")
    made = open_cluster(layout, Choices(node_name="n1", audit_policy=str(path)))
    assert made.audit_policy == str(path)
    path.write_text("{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: All}]}")
    with pytest.raises(SettingsError, match=r'rules\[0\].level: Unsupported value: "All"'):
        open_cluster(layout, Choices())
    assert open_cluster(layout, Choices(audit_policy="")).audit_policy == ""


def test_an_admission_configuration_is_checked_at_every_start(
    layout: Layout, tmp_path: Path
) -> None:
    path = tmp_path / "admission.yaml"
    head = "apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration"
    path.write_text(f"{{{head}}}")
    made = open_cluster(layout, Choices(node_name="n1", admission_configuration=str(path)))
    assert made.admission_configuration == str(path)
    path.unlink()
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        open_cluster(layout, Choices())
    assert open_cluster(layout, Choices(admission_configuration="")).admission_configuration == ""


def test_a_start_without_a_node_is_not_remembered(layout: Layout) -> None:
    open_cluster(layout, Choices(node_name="n1", has_node=False))
    assert open_cluster(layout, Choices()).has_node


def test_parts_left_to_others_have_kubeconfigs_and_come_back_at_the_next_start(
    layout: Layout,
) -> None:
    chosen = Choices(node_name="n1", has_node=False, without=("scheduler", "node"))
    made = open_cluster(layout, chosen)
    assert made.without == ("scheduler", "node")
    for part, user in (("scheduler", "system:kube-scheduler"), ("node", "system:node:n1")):
        document = yaml.safe_load(layout.part_kubeconfig(part).read_text())
        assert document["users"][0]["name"] == f"moorage-{part}"
        encoded = document["users"][0]["user"]["client-certificate-data"]
        certificate = x509.load_pem_x509_certificate(base64.b64decode(encoded))
        (name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        assert name.value == user
        assert layout.part_kubeconfig(part).stat().st_mode & 0o077 == 0
    assert not layout.part_kubeconfig("controllers").exists()
    assert open_cluster(layout, Choices()).without == ()


def test_limits_of_pods_are_chosen_at_a_start_and_kept(layout: Layout) -> None:
    made = open_cluster(layout, Choices(node_name="n1"))
    assert (made.seccomp_default, made.pod_pids_limit) == (False, 4096)
    open_cluster(layout, Choices(seccomp_default=True, pod_pids_limit=-1))
    kept = open_cluster(layout, Choices())
    assert (kept.seccomp_default, kept.pod_pids_limit) == (True, -1)
    assert not open_cluster(layout, Choices(seccomp_default=False)).seccomp_default


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (Choices(name="other"), "has name moorage, which cannot become other"),
        (Choices(node_name="n2"), "node name n1"),
        (Choices(pod_network="10.9.0.0/24"), "pod network .* cannot become 10.9.0.0/24"),
        (Choices(service_network="10.8.0.0/16"), "--data-dir"),
    ],
)
def test_others_may_not(layout: Layout, choices: Choices, message: str) -> None:
    made = open_cluster(layout, Choices(node_name="n1"))
    with pytest.raises(SettingsError, match=message):
        open_cluster(layout, choices)
    assert load(layout.settings) == made


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (Choices(pod_network="10.244.0.1/24"), "not an IPv4 network"),
        (Choices(pod_network="fd00::/64"), "not an IPv4 network"),
        (Choices(pod_network="10.244.0.0/29"), "too small"),
        (Choices(service_network="10.96.0.1/32"), "too small"),
        (
            Choices(pod_network="172.30.4.0/24", service_network="172.30.0.0/16"),
            "overlaps service network",
        ),
        (Choices(node_name="Bad_Name"), "--node-name"),
    ],
)
def test_invalid_choices_leave_no_directory(layout: Layout, choices: Choices, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        open_cluster(layout, choices)
    assert not layout.root.exists()


def test_a_network_that_the_host_uses_is_refused(layout: Layout) -> None:
    host = with_routes(Route("docker0", ipaddress.IPv4Network("10.244.0.0/16")))
    with pytest.raises(SubnetTakenError, match="docker0"):
        open_cluster(layout, Choices(pod_network="10.244.7.0/24"), host=host)


@pytest.mark.parametrize("is_later", [False, True])
def test_port_in_use_is_rejected(layout: Layout, is_later: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        if is_later:
            # Another program took the port while the cluster was down.
            taken.close()
            open_cluster(layout, Choices(api_port=port))
        with socket.create_server(("127.0.0.1", port)) if is_later else taken:
            with pytest.raises(SettingsError, match=f"port {port} .* --api-port"):
                open_cluster(
                    layout, Choices() if is_later else Choices(api_port=port), host=IMPATIENT
                )
            other = open_cluster(layout, Choices(api_port=free(port)))
    assert other.api_port != port


def free(taken: int) -> int:
    with Reservations() as reservations:
        return settings.free_port(taken + 1, reservations)


def test_clusters_that_start_at_once_choose_different_ports_and_networks(tmp_path: Path) -> None:
    made = []
    with ExitStack() as starting:
        for name in ("a", "b", "c"):
            reservations = starting.enter_context(Reservations())
            made.append(
                open_cluster(Layout(tmp_path / name), Choices(node_name="n1"), reservations)
            )
    for field in ("api_port", "node_port", "pod_network"):
        assert len({getattr(cluster_settings, field) for cluster_settings in made}) == len(made), (
            field
        )


def test_pods_get_a_network_beside_the_service_network(layout: Layout) -> None:
    made = open_cluster(
        layout, Choices(node_name="n1", service_network="10.244.0.0/16"), host=with_routes()
    )
    assert (made.service_network, made.pod_network) == ("10.244.0.0/16", "10.245.0.0/24")


def test_a_port_that_the_cluster_itself_has_means_that_it_runs(layout: Layout) -> None:
    def taken(*_: Any) -> None:
        raise SettingsError("port 6443 is in use")

    host = HostNetwork(require_port=taken)
    with pytest.raises(SettingsError, match="port 6443 is in use"):
        open_cluster(layout, Choices(node_name="n1"), host=host)
    assert not layout.root.exists()
    layout.root.mkdir(parents=True)
    with locked(layout) as pid, pytest.raises(AlreadyRunningError, match=f"process {pid}"):
        open_cluster(layout, Choices(node_name="n1"), host=host)


def test_port_reserved_by_another_cluster_is_rejected(tmp_path: Path) -> None:
    with Reservations() as reservations:
        made = open_cluster(Layout(tmp_path / "a"), Choices(), reservations)
        with pytest.raises(SettingsError, match=r"another cluster is starting .* --api-port"):
            open_cluster(Layout(tmp_path / "b"), Choices(api_port=made.api_port), host=IMPATIENT)
    assert open_cluster(Layout(tmp_path / "b"), Choices(api_port=made.api_port))


@pytest.mark.parametrize(
    "lost", ["cluster.json", "pki/ca.key", "pki/ca.crt", "pki/service-accounts.key"]
)
@pytest.mark.parametrize("witness", ["store.mark", "db/state.db"])
def test_a_file_that_was_in_use_and_is_gone_is_not_made_silently(
    layout: Layout, lost: str, witness: str
) -> None:
    open_cluster(layout, Choices(node_name="n1"))
    asyncio.run(make_store(layout))
    (layout.root / lost).unlink()
    # An older version made no mark.
    if witness != "store.mark":
        layout.store_mark.unlink()
    files = {path: path.read_bytes() for path in layout.root.rglob("*") if path.is_file()}
    with pytest.raises(SettingsError, match=rf"{Path(lost).name} is gone.* --accept-loss"):
        open_cluster(layout, Choices())
    now = {path: path.read_bytes() for path in layout.root.rglob("*") if path.is_file()}
    # To look into the store leaves an empty log of it.
    added = {path for path in now.keys() - files.keys() if path.parent != layout.database.parent}
    assert added <= {layout.change_lock}
    layout.node_store.parent.mkdir(exist_ok=True)
    layout.node_store.write_text("store-1\n")
    open_cluster(layout, Choices(accepts_loss=True))
    assert (layout.root / lost).exists()
    assert not layout.node_store.exists()
    assert not layout.store_mark.exists()
    assert_pairs_fit(layout.pki)


async def make_store(layout: Layout) -> None:
    async with SqliteStore(layout.database, mark=layout.store_mark) as store:
        await store.put("pods/default/a", b"x", 0)


@pytest.mark.parametrize("loss", ["gone", "older", "empty", "all"])
def test_lost_store_is_an_error_before_anything_starts(layout: Layout, loss: str) -> None:
    made = open_cluster(layout, Choices(node_name="n1"))
    asyncio.run(make_store(layout))
    assert open_cluster(layout, Choices()) == made
    mark = layout.store_mark.read_text()
    if loss == "all":
        shutil.rmtree(layout.database.parent)
        layout.store_mark.unlink()
        layout.node_store.parent.mkdir()
        layout.node_store.write_text("store-1\n")
    elif loss == "gone":
        shutil.rmtree(layout.database.parent)
    elif loss == "empty":
        layout.database.write_bytes(b"")
    else:
        layout.store_mark.write_text(mark.replace("00001\n", "00002\n"))
    with pytest.raises(SettingsError, match=r"state\.db .*--accept-loss"):
        open_cluster(layout, Choices())
    assert open_cluster(layout, Choices(accepts_loss=True)) == made
    assert open_cluster(layout, Choices()) == made


def test_a_file_that_was_never_in_use_is_made_again(layout: Layout) -> None:
    open_cluster(layout, Choices(node_name="n1"))
    # As a kill between two files of the first start leaves it.
    (layout.pki / "ca.crt").unlink()
    open_cluster(layout, Choices())
    assert_pairs_fit(layout.pki)


def _open(root: str, barrier: Any, results: Any) -> None:
    barrier.wait()
    results.put(open_cluster(Layout(Path(root)), Choices(node_name="n1")).cluster_id)


def test_two_starts_at_once_make_one_cluster(layout: Layout) -> None:
    context = multiprocessing.get_context("fork")
    barrier, queue = context.Barrier(4), context.Queue()
    starts = [
        context.Process(target=_open, args=(str(layout.root), barrier, queue)) for _ in range(4)
    ]
    for start in starts:
        start.start()
    identifiers = {queue.get(timeout=20) for _ in starts}
    for start in starts:
        start.join(20)
    present = load(layout.settings)
    assert isinstance(present, Settings)
    assert identifiers == {present.cluster_id}
    assert_pairs_fit(layout.pki)


def test_a_cluster_that_runs_is_not_changed(layout: Layout) -> None:
    made = open_cluster(layout, Choices(node_name="n1"))
    ready, wake = os.pipe()
    child = os.fork()
    if child == 0:
        lock = hold_lock(layout)
        os.write(wake, b"x")
        signal.pause()
        lock.close()
    os.read(ready, 1)
    try:
        with pytest.raises(AlreadyRunningError, match=f"process {child}"):
            open_cluster(layout, Choices(has_node=False))
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert load(layout.settings) == made


OTHER = "unix:///run/other.sock"


@pytest.mark.parametrize(
    ("first", "then", "advice"),
    [
        ("", OTHER, f"run on its own engine, .*`moor up --cri {OTHER}`"),
        (OTHER, "unix:///run/third.sock", f"run on the engine at {OTHER}, .*--cri unix:///run/th"),
        (OTHER, "", "`moor up --own-engine`"),
    ],
)
def test_the_engine_changes_when_no_pod_can_be_on_the_former_one(
    layout: Layout, first: str, then: str, advice: str
) -> None:
    open_cluster(layout, Choices(node_name="n1", cri=first))
    assert open_cluster(layout, Choices()).cri == first
    with pytest.raises(SettingsError, match=f"{advice}"):
        open_cluster(layout, Choices(cri=then))
    present = load(layout.settings)
    assert present is not None
    assert present.cri == first
    note_engine(layout, None)
    assert open_cluster(layout, Choices(cri=then)).cri == then
    assert engine_in_use(layout, present) == then


def test_a_control_plane_alone_remembers_where_pods_were_left(layout: Layout) -> None:
    open_cluster(layout, Choices(node_name="n1", cri=OTHER))
    alone = open_cluster(layout, Choices(has_node=False, cri=""))
    assert engine_in_use(layout, alone) == OTHER
    with pytest.raises(SettingsError, match="moor down"):
        open_cluster(layout, Choices(has_node=True))


def test_pods_of_an_earlier_version_count_for_the_engine_it_used(layout: Layout) -> None:
    open_cluster(layout, Choices(node_name="n1", cri=OTHER))
    layout.engine_in_use.unlink()
    (layout.node / "pods" / "u1").mkdir(parents=True)
    with pytest.raises(SettingsError, match=f"run on the engine at {OTHER}"):
        open_cluster(layout, Choices(cri=""))
    (layout.node / "pods" / "u1").rmdir()
    assert open_cluster(layout, Choices(cri="")).cri == ""


def test_the_verification_of_images_is_chosen_at_a_start_and_kept(layout: Layout) -> None:
    made = open_cluster(layout, Choices(node_name="n1"))
    assert (made.image_verification, made.image_allowlist) == ("NeverVerifyPreloadedImages", ())
    listed = Choices(
        image_verification="NeverVerifyAllowlistedImages", image_allowlist=("r.example/a",)
    )
    open_cluster(layout, listed)
    assert open_cluster(layout, Choices()).image_allowlist == ("r.example/a",)
    changed = Choices(image_verification="AlwaysVerify", image_allowlist=())
    assert open_cluster(layout, changed).image_allowlist == ()


def test_every_choice_is_a_setting(layout: Layout) -> None:
    ports: list[tuple[Any, ...]] = []
    host = HostNetwork(
        ip=lambda: "192.0.2.7",
        routes=lambda: (),
        require_port=lambda *arguments: ports.append(arguments[:3]),
    )
    chosen: dict[str, Any] = {
        "name": "two", "node_name": "n2", "api_port": 6500, "node_port": 10300,
        # The smallest network.
        "pod_network": "10.9.0.0/28", "service_network": "10.8.0.0/16",
        "cri": OTHER, "has_node": True, "without": ("scheduler",),
        "filters_by_handler": False, "log_level": "debug",
        "seccomp_default": True, "pod_pids_limit": 7, "image_limit_bytes": 5,
        "image_verification": "AlwaysVerify", "image_allowlist": ("a/*",),
        "gates": {"RuntimeClass": False}, "registry_mirrors": {"docker.io": "https://m.example"},
    }  # fmt: skip
    with Reservations() as reservations:
        made = open_cluster(layout, Choices(**chosen), reservations, host)
        # Nothing is looked for that was chosen: only the two ports of metrics.
        assert len(reservations.descriptors) == 2
    assert made == Settings(
        controllers_port=made.controllers_port,
        scheduler_port=made.scheduler_port,
        cluster_id=made.cluster_id,
        node_ip="192.0.2.7",
        bridge=f"moor-{made.cluster_id}",
        **chosen,
    )
    # Checked before a directory is made, and again under its lock.
    both = [(6500, "127.0.0.1", "--api-port"), (10300, "192.0.2.7", "--node-port")]
    assert ports == both * 2
    access = creation.access(layout, made)
    credentials = Credentials(layout)
    authority = credentials.authority.certificate
    assert access == Access("two", "https://127.0.0.1:6500", authority, credentials.admin)


def test_the_parts_of_a_cluster_have_different_ports_when_the_usual_ones_are_in_use(
    layout: Layout,
) -> None:
    with ExitStack() as stack:
        for port in range(10257, 10262):
            taken = stack.enter_context(socket.socket())
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                taken.bind(("127.0.0.1", port))
            except OSError:
                continue  # Another program has it, which is as well.
            taken.listen()
        made = open_cluster(layout, Choices(node_name="n1", has_node=False))
        again = open_cluster(layout, Choices(has_node=False))
    for settings_ in (made, again):
        ports = (settings_.api_port, settings_.controllers_port, settings_.scheduler_port)
        assert len(set(ports)) == 3
        assert not set(ports) & set(range(10257, 10262))


def test_a_network_that_another_cluster_took_meanwhile_is_refused_at_a_restart(
    layout: Layout,
) -> None:
    made = open_cluster(layout, Choices(node_name="n1"))
    own = Route(made.bridge, ipaddress.IPv4Network(made.pod_network))
    open_cluster(layout, Choices(), host=with_routes(own))
    host = with_routes(own, Route("moor-another", own.network))
    with pytest.raises(
        SubnetTakenError, match=r"through moor-another; a cluster keeps its network"
    ):
        open_cluster(layout, Choices(), host=host)
    # A control plane alone has no pods, and another's engine its own network.
    open_cluster(layout, Choices(has_node=False), host=host)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (Choices(pod_network="10.244.0.0/29"),
         "10.244.0.0/29 is too small: /28 is the smallest network"),
        (Choices(pod_network="172.30.4.0/24", service_network="172.30.0.0/16"),
         "pod network 172.30.4.0/24 overlaps service network 172.30.0.0/16"),
        (Choices(pod_network="x"),
         "'x' is not an IPv4 network: Expected 4 octets in 'x'"),
    ],
)  # fmt: skip
def test_invalid_networks_are_named(layout: Layout, choices: Choices, message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        open_cluster(layout, choices, host=with_routes())
    assert str(refused.value) == message


def test_fixed_choice_is_refused_with_what_to_do(layout: Layout) -> None:
    made = open_cluster(layout, Choices(node_name="n1"))
    for name in ("name", "node_name", "pod_network", "service_network"):
        # The same again changes nothing.
        assert open_cluster(layout, Choices(**{name: getattr(made, name)})) == made
    with pytest.raises(SettingsError) as refused:
        open_cluster(layout, Choices(node_name="n2"))
    assert str(refused.value) == (
        "the cluster in this directory has node name n1, which cannot become n2; use another "
        "directory with --data-dir"
    )


def test_lost_settings_and_stores_are_refused_with_what_to_do(layout: Layout) -> None:
    open_cluster(layout, Choices(node_name="n1"))
    layout.node_store.parent.mkdir()
    layout.node_store.write_text("store-1\n")
    with pytest.raises(SettingsError) as refused:
        open_cluster(layout, Choices())
    assert str(refused.value) == (
        f"{layout.database} and {layout.store_mark} are gone, but the pods of a store run here "
        f"({layout.node_store}); put the files back from a copy, or start an empty cluster, which "
        "ends those pods, with `moor up --accept-loss`"
    )
    layout.store_mark.touch()
    layout.settings.unlink()
    with pytest.raises(SettingsError) as refused:
        open_cluster(layout, Choices())
    assert str(refused.value) == (
        f"{layout.settings} is gone, but a cluster was made in {layout.root}; put it back from a "
        "copy, or go on with new settings with `moor up --accept-loss`: networks and ports may "
        "differ, and pods that run are not found again"
    )


def test_change_of_the_engine_is_refused_with_what_to_do(layout: Layout) -> None:
    own = open_cluster(layout, Choices(node_name="n1"))
    other = msgspec.structs.replace(own, cri=OTHER)
    for used, chosen, message in (
        ("", other, f"its own engine, so it cannot go over to the engine at {OTHER} yet: end them "
         f"with `moor down`, then start them there with `moor up --cri {OTHER}`"),
        (OTHER, own, f"the engine at {OTHER}, so it cannot go over to its own engine yet: end them "
         "with `moor down`, then start them there with `moor up --own-engine`"),
    ):  # fmt: skip
        note_engine(layout, used)
        with pytest.raises(SettingsError) as refused:
            check_engine_change(layout, own, chosen)
        assert str(refused.value) == f"pods of this cluster may still run on {message}"
        # Without a node nothing is started anywhere.
        check_engine_change(layout, own, msgspec.structs.replace(chosen, has_node=False))
        note_engine(layout, chosen.cri)
        check_engine_change(layout, own, chosen)
