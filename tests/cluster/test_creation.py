"""Deciding what a cluster is, once and again."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from moorage.cluster import creation, settings
from moorage.cluster.creation import Choices, open_cluster
from moorage.cluster.layout import Layout
from moorage.cluster.network.subnet import Route, SubnetTakenError
from moorage.cluster.settings import Settings, SettingsError, load
from moorage.cluster.supervisor import AlreadyRunningError, hold_lock
from tests.cluster.certificate_checks import assert_pairs_fit


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
    assert open_cluster(layout, Choices()) == changed


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        (Choices(name="other"), "has name moorage, which cannot become other"),
        (Choices(node_name="n2"), "node name n1"),
        (Choices(pod_network="10.9.0.0/24"), "pod network .* cannot become 10.9.0.0/24"),
        (Choices(service_network="10.8.0.0/16"), "--data-dir"),
    ],
)
def test_others_may_not(layout: Layout, choices: Choices, said: str) -> None:
    made = open_cluster(layout, Choices(node_name="n1"))
    with pytest.raises(SettingsError, match=said):
        open_cluster(layout, choices)
    assert load(layout.settings) == made


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        (Choices(pod_network="10.244.0.1/24"), "no IPv4 network"),
        (Choices(pod_network="fd00::/64"), "no IPv4 network"),
        (Choices(pod_network="10.244.0.0/29"), "too small"),
        (Choices(service_network="10.96.0.1/32"), "too small"),
        (Choices(pod_network="10.96.4.0/24"), "overlaps service network"),
        (Choices(node_name="Bad_Name"), "--node-name"),
    ],
)
def test_what_cannot_be_leaves_no_folder(layout: Layout, choices: Choices, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        open_cluster(layout, choices)
    assert not layout.root.exists()


def test_a_network_that_the_host_uses_is_refused(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    route = Route("docker0", creation._network("10.244.0.0/16"))
    monkeypatch.setattr(creation, "host_routes", lambda: (route,))
    with pytest.raises(SubnetTakenError, match="docker0"):
        open_cluster(layout, Choices(pod_network="10.244.7.0/24"))


@pytest.mark.parametrize("is_later", [False, True])
def test_a_port_that_another_has_is_told_of(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, is_later: bool
) -> None:
    monkeypatch.setattr(settings, "_PORT_PATIENCE_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        if is_later:
            # Another program took the port while the cluster was down.
            taken.close()
            open_cluster(layout, Choices(api_port=port))
        with socket.create_server(("127.0.0.1", port)) if is_later else taken:
            with pytest.raises(SettingsError, match=f"port {port} .* --api-port"):
                open_cluster(layout, Choices() if is_later else Choices(api_port=port))
            other = open_cluster(layout, Choices(api_port=free(port)))
    assert other.api_port != port


def free(taken: int) -> int:
    return settings.free_port(taken + 1)


def _open(root: str, barrier: Any, found: Any) -> None:
    barrier.wait()
    found.put(open_cluster(Layout(Path(root)), Choices(node_name="n1")).cluster_id)


def test_two_starts_at_once_make_one_cluster(layout: Layout) -> None:
    context = multiprocessing.get_context("fork")
    barrier, found = context.Barrier(4), context.Queue()
    starts = [
        context.Process(target=_open, args=(str(layout.root), barrier, found)) for _ in range(4)
    ]
    for start in starts:
        start.start()
    identifiers = {found.get(timeout=20) for _ in starts}
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
