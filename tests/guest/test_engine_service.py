"""The engine as a systemd service under a stock kubelet, with a pod under each runtime.

The kubelet comes from MOORAGE_KUBERNETES_BIN.
"""

from __future__ import annotations

import pytest

from tests.guest.kubelet import PODS, WITHIN_S, Node, container
from tests.guest.machine import Guest
from tests.guest.preparation import HOSTNAME
from tests.running import until

HANDLERS = {"runc": "/runc", "crun": "/crun", "gvisor": "/runsc"}
"""The handlers of Debian's runtimes, and how the path of each program ends."""
WITH_SCOPES = ("runc", "crun")
"""Those whose containers have scopes; Debian's gVisor sets no cgroups."""
_LOOP = "trap exit TERM; i=0; while :; do i=$((i+1)); echo $i; sleep 1; done"
_GREEDY = "sleep 5; x=a; while :; do x=$x$x; done"
_MEMORY = 64 * 1024**2


@pytest.fixture(scope="module", params=HANDLERS)
def pod(node: Node, request: pytest.FixtureRequest) -> str:
    """A static pod under a handler, which has the handler's name; it runs on."""
    handler = str(request.param)
    if handler == "gvisor" and node.guest.is_user_mode:
        pytest.skip("gVisor does not start on user-mode Linux: decision 160")
    node.use(handler)
    containers = [container("app", _LOOP, "250m", "64Mi")]
    if handler in WITH_SCOPES:
        containers.append(container("greedy", _GREEDY, "500m", "24Mi"))
    node.add(handler, *containers)
    until(
        lambda: "running" in node.container(handler, "app").get("state", ()),
        f"{handler} runs", WITHIN_S,
    )  # fmt: skip
    return handler


def _slice(node: Node, pod: str) -> str:
    uid = node.pods()[pod]["metadata"]["uid"].replace("-", "_")
    return node.guest.must(f"ls -d {PODS.replace('*', uid)}").strip()


def _scope(node: Node, pod: str) -> str:
    identifier = node.container(pod, "app")["containerID"].removeprefix("moorage://")
    scope = f"{_slice(node, pod)}/cri-moorage-{identifier}.scope"
    # crun makes another cgroup in the scope, which has the limits.
    return node.guest.must(f"ls -d {scope}/container 2>/dev/null || ls -d {scope}").strip()


def test_the_host_is_of_the_wanted_kind(guest: Guest) -> None:
    assert guest.must("cat /proc/1/comm").strip() == "systemd"
    assert guest.must("stat -fc %T /sys/fs/cgroup").strip() == "cgroup2fs"


def test_the_kubelet_takes_the_driver_from_the_engine(node: Node) -> None:
    line = 'setting received from the CRI runtime" cgroupDriver="systemd"'
    # It asks some seconds after its start.
    node.guest.until(f"journalctl --unit kubelet --no-pager | grep '{line}'", WITHIN_S)


def test_the_engine_is_the_last_that_the_kernel_kills(node: Node) -> None:
    engine = node.guest.must("systemctl show --property MainPID --value moorage-engine").strip()
    assert node.guest.must(f"cat /proc/{engine}/oom_score_adj").strip() == "-999"


def test_a_pod_runs_under_its_handler(node: Node, pod: str) -> None:
    log = node.guest.must("journalctl --unit moorage-engine --no-pager --output cat")
    lines = [
        line for line in log.splitlines() if f"sandbox created pod=default/{pod}-guest" in line
    ]
    assert lines
    assert lines[-1].endswith(HANDLERS[pod])


def test_a_containers_limits_are_in_its_scope(node: Node, pod: str) -> None:
    if pod not in WITH_SCOPES:
        pytest.skip("this gVisor sets no cgroups: the pod's slice is the limit")
    scope = _scope(node, pod)
    assert node.guest.must(f"cat {scope}/memory.max {scope}/cpu.max").split() == [
        str(_MEMORY), "25000", "100000",
    ]  # fmt: skip
    # A reload of systemd must not take them back.
    node.guest.must("systemctl daemon-reload")
    assert node.guest.must(f"cat {scope}/memory.max").strip() == str(_MEMORY)


def test_a_pods_limits_are_in_its_slice_with_all_its_processes(node: Node, pod: str) -> None:
    directory = _slice(node, pod)
    memory = _MEMORY + (24 * 1024**2 if pod in WITH_SCOPES else 0)
    assert node.guest.must(f"cat {directory}/memory.max").strip() == str(memory)
    processes = node.guest.must(f"find {directory} -name cgroup.procs -exec cat {{}} +")
    assert processes.strip()


def test_an_oom_kill_is_reported(node: Node, pod: str) -> None:
    if pod not in WITH_SCOPES:
        pytest.skip("gVisor's sandbox is killed as a whole")

    def reasons() -> set[str]:
        status = node.container(pod, "greedy")
        states = [status.get("state", {}), status.get("lastState", {})]
        return {state["terminated"]["reason"] for state in states if "terminated" in state}

    until(lambda: "OOMKilled" in reasons(), f"{pod} has an OOM kill", WITHIN_S)


def test_a_command_runs_in_a_container(node: Node, pod: str) -> None:
    kernel = node.run(pod, "app", "uname", "-r").strip()
    is_the_hosts = kernel == node.guest.must("uname -r").strip()
    assert is_the_hosts == (pod != "gvisor")


def test_logs_are_read_through_the_kubelet(node: Node, pod: str) -> None:
    lines = node.get(f"/containerLogs/default/{pod}-{HOSTNAME}/app").split()
    # runc may have written a warning before.
    assert [line for line in lines if line.isdigit()][:2] == ["1", "2"]
