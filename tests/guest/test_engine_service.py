"""The engine as a systemd service under a stock kubelet with static pods, in the guest.

The kubelet comes from MOORAGE_KUBERNETES_BIN. It has no API server: in an emulated guest one would
take minutes more, and nothing here is about it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage.cluster.images import catalogue, write_archive
from tests.cluster.test_engine_service import unit
from tests.documents import HOW_TO, blocks
from tests.guest.machine import Guest
from tests.guest.preparation import VENV
from tests.interchange.programs import required
from tests.running import BUSYBOX

_SOCKET = "unix:///run/moorage-engine/engine.sock"
_KUBELET_UNIT = """
[Unit]
After=moorage-engine.service
[Service]
ExecStart=/usr/local/bin/kubelet --config /etc/kubernetes/kubelet.json --hostname-override guest
Restart=always
"""
_KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "containerRuntimeEndpoint": _SOCKET,
    # The engine's answer goes before it.
    "cgroupDriver": "cgroupfs",
    "staticPodPath": "/etc/kubernetes/manifests",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "readOnlyPort": 10255,
    "runtimeRequestTimeout": "10m",
    "featureGates": {"PodAndContainerStatsFromCRI": True},
}
_LOAD = f"""
import asyncio, pathlib
from moorage.cluster.images.loading import load_archive
asyncio.run(load_archive({_SOCKET!r}, pathlib.Path("/root/images.tar")))
"""
_WITHIN_S = 900.0
_SLICE = "/sys/fs/cgroup/kubepods.slice"
_POD = f"{_SLICE}/kubepods-burstable.slice/kubepods-burstable-pod*.slice"


def _container(name: str, command: list[str], cpu: str, memory: str) -> dict[str, Any]:
    limits = {"cpu": cpu, "memory": memory}
    return {
        "name": name, "image": BUSYBOX, "command": command,
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": limits},
    }  # fmt: skip


def _pod(name: str, *containers: dict[str, Any]) -> bytes:
    spec = {"terminationGracePeriodSeconds": 1, "containers": list(containers)}
    metadata = {"name": name, "namespace": "default"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return yaml.safe_dump(pod).encode()


@pytest.fixture(scope="module")
def node(guest: Guest) -> Iterator[Guest]:
    """The guest with the unit of the page and a kubelet, which runs a static pod."""
    kubelet = required("kubelet")["kubelet"]
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("busybox-static is not installed: make packages")
    guest.write("/usr/local/bin/kubelet", Path(kubelet).read_bytes(), 0o755)
    (page,) = [page for page in HOW_TO if page.stem == "parts-of-kubernetes"]
    (network,) = [block.text for block in blocks(page.read_text()) if '"cniVersion"' in block.text]
    files = {
        "/etc/systemd/system/moorage-engine.service": unit(),
        "/etc/systemd/system/moorage-engine.service.d/slow.conf":
            "[Service]\nTimeoutStartSec=900\nTimeoutStopSec=300\n",
        "/etc/systemd/system/kubelet.service": _KUBELET_UNIT,
        "/etc/kubernetes/kubelet.json": json.dumps(_KUBELET),
        "/etc/cni/net.d/10-pods.conflist": network,
        "/root/load.py": _LOAD,
    }  # fmt: skip
    for path, content in files.items():
        guest.write(path, content.encode())
    images = asyncio.run(catalogue(Path(busybox), None))
    guest.write("/root/images.tar", write_archive(images))
    guest.must("systemctl daemon-reload && systemctl start moorage-engine", within_s=_WITHIN_S)
    guest.must(f"{VENV}/bin/python /root/load.py", within_s=_WITHIN_S)
    loop = "i=0; while :; do i=$((i+1)); echo $i; sleep 1; done"
    guest.write(
        "/etc/kubernetes/manifests/limited.yaml",
        _pod(
            "limited",
            _container("app", ["sh", "-c", loop], "250m", "64Mi"),
            _container("greedy", ["sh", "-c", "x=a; while :; do x=$x$x; done"], "500m", "24Mi"),
        ),
    )
    guest.must("systemctl start kubelet")
    guest.until("ls /var/log/pods/default_limited-guest_*/app/0.log", _WITHIN_S)
    yield guest
    guest.must("systemctl stop kubelet moorage-engine", within_s=_WITHIN_S)


def _pods(node: Guest) -> dict[str, Any]:
    url = "http://127.0.0.1:10255/pods"
    script = f"import urllib.request as u; print(u.urlopen({url!r}).read().decode())"
    items = json.loads(node.must(f'python3 -c "{script}"'))["items"]
    return {
        status["name"]: status
        for item in items
        for status in item["status"].get("containerStatuses") or ()
    }


def _scope(node: Guest, container: str) -> str:
    identifier = _pods(node)[container]["containerID"].removeprefix("moorage://")
    return node.must(f"ls -d {_POD}/cri-moorage-{identifier}.scope").strip()


def test_the_host_is_of_the_wanted_kind(guest: Guest) -> None:
    assert guest.must("cat /proc/1/comm").strip() == "systemd"
    assert guest.must("stat -fc %T /sys/fs/cgroup").strip() == "cgroup2fs"


def test_the_kubelet_takes_the_driver_from_the_engine(node: Guest) -> None:
    log = node.must("journalctl --unit kubelet --no-pager")
    assert 'setting received from the CRI runtime" cgroupDriver="systemd"' in log


def test_a_containers_limits_are_in_its_scope(node: Guest) -> None:
    scope = _scope(node, "app")
    assert node.must(f"cat {scope}/memory.max {scope}/cpu.max").split() == [
        str(64 * 1024**2), "25000", "100000",
    ]  # fmt: skip
    assert node.must(f"cat {scope}/../memory.max").strip() == str((64 + 24) * 1024**2)
    # A reload of systemd must not take them back.
    node.must("systemctl daemon-reload")
    assert node.must(f"cat {scope}/memory.max").strip() == str(64 * 1024**2)


def test_an_oom_kill_is_reported(node: Guest) -> None:
    node.until(
        'python3 -c "import urllib.request as u, sys; '
        "sys.exit('OOMKilled' not in u.urlopen('http://127.0.0.1:10255/pods').read().decode())\"",
        _WITHIN_S,
    )


def test_the_engine_is_the_last_that_the_kernel_kills(node: Guest) -> None:
    engine = node.must("systemctl show --property MainPID --value moorage-engine").strip()
    assert node.must(f"cat /proc/{engine}/oom_score_adj").strip() == "-999"


def test_containers_outlive_a_restart_of_the_service(node: Guest) -> None:
    scope = _scope(node, "app")
    before = node.must(f"head -1 {scope}/cgroup.procs")
    restarts = _pods(node)["app"]["restartCount"]
    log = node.must("ls /var/log/pods/default_limited-guest_*/app/*.log | tail -1").strip()
    node.must("systemctl restart moorage-engine", within_s=_WITHIN_S)
    assert node.must(f"head -1 {scope}/cgroup.procs") == before
    lines = int(node.must(f"wc -l < {log}"))
    node.until(f"[ $(wc -l < {log}) -gt {lines} ]", _WITHIN_S)
    assert _pods(node)["app"]["restartCount"] == restarts


def test_a_pod_that_is_removed_leaves_no_slice(node: Guest) -> None:
    node.must("rm /etc/kubernetes/manifests/limited.yaml")
    node.until(f"! ls -d {_POD} 2>/dev/null", _WITHIN_S)
    node.until("! systemctl list-units --no-legend 'cri-moorage-*.scope' | grep .", _WITHIN_S)
