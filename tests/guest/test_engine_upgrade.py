"""An engine that is upgraded, stopped and started, and rebooted with its host, under running pods.

It goes on with the pods that test_engine_service.py has started, and starts those that are missing.
"""

from __future__ import annotations

import json
import re
from functools import partial

import pytest

from tests.guest.conftest import FORMER_VERSION, INSTALL, NEXT_VERSION
from tests.guest.kubelet import PODS, WITHIN_S, Node, container
from tests.guest.machine import FILES
from tests.guest.preparation import HOSTNAME, VENV
from tests.guest.test_engine_service import WITH_SCOPES
from tests.running import until

_LOOP = "trap exit TERM; i=0; while :; do i=$((i+1)); echo $i; sleep 1; done"
_DEBUG = f"""[Service]
ExecStart=
ExecStart={VENV}/bin/moor engine --cgroup-driver systemd --log-level debug
"""
_PERIODS = re.compile(
    r'^container_cpu_cfs_periods_total{container="app",.*pod="(\w+)-guest".*} (\d+)', re.MULTILINE
)
_RUN = "/run/moorage-engine"
_LEFTOVERS = """
import json
from pathlib import Path
data, run = Path("/var/lib/moorage-engine"), Path("/run/moorage-engine")
def ids(kind, runs):
    records = [json.loads(file.read_text()) for file in (data / kind).glob("*.json")]
    return {record["id"] for record in records if runs(record)}
sandboxes = ids("sandboxes", lambda record: record.get("is_ready", True))
alive = sandboxes | ids("containers", lambda record: record.get("stage") == "running")
# Networks that are made in advance are spare ones.
networks = {path.name for path in (run / "n").iterdir()}
alive |= {name for name in networks if name.startswith("spare-")}
left = sorted(networks - alive)
for line in open("/proc/mounts"):
    mount = line.split()[1]
    if mount.startswith(f"{run}/") and not any(item in mount for item in alive):
        left.append(mount)
addresses = [path.name for path in (run / "addresses" / "pods").glob("10.*")]
if len(addresses) > len(networks):
    left.append(f"{addresses} of {len(networks)} networks")
print(json.dumps(left))
"""


@pytest.fixture(scope="module")
def pods(node: Node) -> list[str]:
    """The names of pods that run."""
    if not node.pods():
        node.add("runc", container("app", _LOOP, "250m", "64Mi"))
    until(lambda: bool(node.pods()) and _are_running(node), "pods run", WITHIN_S)
    return sorted(node.pods())


def _are_running(node: Node) -> bool:
    return all("running" in node.container(pod, "app").get("state", ()) for pod in node.pods())


def _containers(node: Node, pods: list[str]) -> dict[str, tuple[str, int]]:
    """Return the id and the restart count of each pod's container."""
    found = {pod: node.container(pod, "app") for pod in pods}
    return {pod: (one["containerID"], one["restartCount"]) for pod, one in found.items()}


def _written(node: Node, pod: str) -> int:
    return int(node.guest.must(f"cat /var/log/pods/default_{pod}-guest_*/app/*.log | wc -l"))


def _has_written(node: Node, pod: str, lines: int) -> bool:
    return _written(node, pod) > lines


def _answers(node: Node, pod: str) -> bool:
    try:
        return node.run(pod, "app", "echo", "hello").strip() == "hello"
    except AssertionError as error:
        # The kubelet connects to a new engine after a pause.
        if "Unavailable" in str(error):
            return False
        raise


def _write_on(node: Node, pods: list[str]) -> None:
    """The containers write more lines to their logs than they had."""
    before = {pod: _written(node, pod) for pod in pods}
    for pod in pods:
        until(partial(_has_written, node, pod, before[pod]), f"{pod} writes on", WITHIN_S)


def test_what_is_measured_is_scraped_from_the_kubelet(node: Node, pods: list[str]) -> None:
    def measured() -> bool:
        text = node.get("/metrics/cadvisor")
        return all(
            'container_memory_working_set_bytes{container="app",' in text
            and f'pod="{pod}-{HOSTNAME}"' in text
            for pod in pods
        )

    until(measured, "every pod is measured", WITHIN_S)
    quotas = dict(_PERIODS.findall(node.get("/metrics/cadvisor")))
    # crun sets the quota below the scope.
    assert all(int(quotas[pod]) > 0 for pod in pods if pod in WITH_SCOPES), quotas
    summary = json.loads(node.get("/stats/summary"))
    assert {pod["podRef"]["name"] for pod in summary["pods"]} == {
        f"{pod}-{HOSTNAME}" for pod in pods
    }
    assert all(pod["memory"]["workingSetBytes"] > 0 for pod in summary["pods"])
    resource = node.get("/metrics/resource")
    assert all(f'pod="{pod}-{HOSTNAME}"' in resource for pod in pods)
    own = node.get("/metrics")
    for name in (
        'kubelet_runtime_operations_total{operation_type="run_podsandbox"}',
        'kubelet_runtime_operations_duration_seconds_count{operation_type="run_podsandbox"}',
        "kubelet_pleg_relist_interval_seconds_count",
    ):
        assert name in own


def test_the_engine_opens_a_port_of_the_loopback_alone(node: Node) -> None:
    engine = node.guest.must("systemctl show --property MainPID --value moorage-engine").strip()
    lines = node.guest.must("ss -tulnpH").splitlines()
    ports = [line.split()[4] for line in lines if f"pid={engine}," in line]
    assert [port.rpartition(":")[0] for port in ports] == ["127.0.0.1"]


@pytest.mark.parametrize("version", [FORMER_VERSION, NEXT_VERSION])
def test_pods_outlive_another_version(node: Node, pods: list[str], version: str) -> None:
    if node.guest.run(f"ls {FILES}/{version}").code:
        pytest.skip("this clone has no former commit")
    before = _containers(node, pods)
    node.guest.must(f"{INSTALL} {FILES}/{version}/*.whl")
    # The engine that runs has the files of another one now.
    for pod in pods:
        until(partial(_answers, node, pod), f"{pod} runs a command", WITHIN_S)
    drop_in = "/etc/systemd/system/moorage-engine.service.d/debug.conf"
    node.guest.write(drop_in, _DEBUG.encode())
    node.guest.must(
        "systemctl daemon-reload && systemctl restart moorage-engine", within_s=WITHIN_S
    )
    assert version in node.guest.must(f"{VENV}/bin/moor --version")
    _write_on(node, pods)
    for pod in pods:
        until(partial(_answers, node, pod), f"{pod} runs a command", WITHIN_S)
    assert _containers(node, pods) == before


def test_the_log_names_the_version_and_at_debug_each_call(node: Node) -> None:
    log = node.guest.must("journalctl --unit moorage-engine --no-pager --output cat --lines 600")
    assert f"engine ready version={NEXT_VERSION}" in log
    assert "answered call=ExecSync" in log
    assert "runtime command" in log


def test_pods_outlive_a_stop_of_the_engine(node: Node, pods: list[str]) -> None:
    before = _containers(node, pods)
    node.guest.must("systemctl stop moorage-engine", within_s=WITHIN_S)
    _write_on(node, pods)
    reason = "journalctl --unit kubelet --no-pager --since -2min | grep 'container runtime is down'"
    node.guest.until(reason, WITHIN_S)
    node.guest.must("systemctl start moorage-engine", within_s=WITHIN_S)
    _write_on(node, pods)
    until(lambda: _containers(node, pods) == before, "the containers are the same", WITHIN_S)


def _leftovers(node: Node) -> list[str]:
    """Return what belongs to no sandbox or container that the engine runs."""
    left = node.guest.must("python3 -", stdin=_LEFTOVERS.encode())
    return list(json.loads(left))


def test_pods_come_back_after_a_reboot_and_nothing_is_stale(node: Node, pods: list[str]) -> None:
    before = _containers(node, pods)
    node.guest.reboot()

    def are_back() -> bool:
        if set(node.pods()) != set(pods) or not _are_running(node):
            return False
        now = _containers(node, pods)
        return all(now[pod][0] != before[pod][0] for pod in pods)

    until(are_back, "the pods are back", WITHIN_S)
    _write_on(node, pods)
    until(lambda: not _leftovers(node), "nothing is stale", WITHIN_S)


@pytest.mark.usefixtures("pods")
def test_pods_that_are_removed_leave_nothing(node: Node) -> None:
    node.guest.must("rm /etc/kubernetes/manifests/*.yaml")
    node.guest.until(f"! ls -d {PODS} 2>/dev/null", WITHIN_S)
    node.guest.until("! systemctl list-units --no-legend 'cri-moorage-*.scope' | grep .", WITHIN_S)
    node.guest.until(f"! ls {_RUN}/n | grep -v ^spare-", WITHIN_S)
    # The kubelet removes containers that have exited once a minute, and their mounts go with them.
    until(lambda: not _leftovers(node), "nothing is left", WITHIN_S)
    assert node.guest.run(f"ls {_RUN}/n").output.count("spare-") == len(
        node.guest.must("ip -o link show type veth").splitlines()
    )
