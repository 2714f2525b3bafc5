"""gVisor by other handler files: cut off from every network, and newer than the system's."""

from __future__ import annotations

import os
import re
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import (
    RunningCluster,
    newer_runsc,
    pod,
    runtime_class,
    skip_without_gvisor,
    until,
)

pytestmark = pytest.mark.runtime

_HOW_TO = Path(__file__).parents[3] / "docs" / "how-to"


@pytest.fixture
def name(whole_cluster: RunningCluster) -> Iterator[str]:
    """The name of a handler, its file, its class and a pod; all are gone afterwards."""
    skip_without_gvisor()
    name = f"v-{uuid.uuid4().hex[:8]}"
    yield name
    for kind in ("pod", "runtimeclass"):
        whole_cluster.kubectl("delete", kind, name, "--ignore-not-found")
    _file(whole_cluster, name).unlink(missing_ok=True)


def _file(cluster: RunningCluster, name: str) -> Path:
    return cluster.data_dir / "engine" / "handlers.d" / f"{name}.toml"


def _definition(page: str) -> str:
    """The handler file that a page of the documentation shows."""
    match = re.search(r"^ *```toml\n(.*?)^ *```$", (_HOW_TO / page).read_text(), re.DOTALL | re.M)
    assert match
    return textwrap.dedent(match[1])


def _start(cluster: RunningCluster, name: str, definition: str) -> None:
    """Run a pod under a handler of that definition."""
    scratch = _file(cluster, name).with_suffix(".new")
    scratch.write_text(definition)
    scratch.replace(_file(cluster, name))
    until(lambda: name in _handlers(cluster), "the handler")
    cluster.apply(runtime_class(name, name), pod(name, runtime_class=name))
    cluster.wait_ready(name)


def _handlers(cluster: RunningCluster) -> set[str]:
    status = cluster.get("node", "n1")["status"]
    return {handler.get("name", "") for handler in status["runtimeHandlers"]}


def _sh(cluster: RunningCluster, name: str, script: str) -> str:
    return cluster.kubectl("exec", name, "--", "sh", "-c", script).stdout.strip()


def test_a_sandbox_without_a_network_has_no_way_out(
    whole_cluster: RunningCluster, name: str
) -> None:
    _start(whole_cluster, name, _definition("cut-off-a-sandbox.md"))
    assert "gVisor" in _sh(whole_cluster, name, "dmesg")
    interfaces = _sh(whole_cluster, name, "tail -n +3 /proc/net/dev | cut -d: -f1").split()
    assert set(interfaces) <= {"lo"}
    routes = _sh(whole_cluster, name, "ip route").splitlines()
    assert all("dev lo " in f"{route} " for route in routes), routes
    api = _sh(whole_cluster, name, "echo $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT")
    for place in (
        api,
        f"{whole_cluster.get('node', 'n1')['status']['addresses'][0]['address']} 22",
    ):
        answer = _sh(whole_cluster, name, f"nc -w 2 {place} </dev/null 2>&1; echo status $?")
        assert answer.endswith("status 1"), answer
        assert "No route to host" in answer or "unreachable" in answer, answer
    # Loopback is the pod's own.
    send = "until echo hi | nc -w 2 127.0.0.1 7000; do sleep 0.1; done"
    assert _sh(whole_cluster, name, f"nc -l -p 7000 >/tmp/got & {send}; wait; cat /tmp/got") == "hi"
    # gVisor gives the streams of a start to user 65534, and this pod has no input.
    null = os.stat("/dev/null")
    assert (null.st_uid, null.st_gid, null.st_mode & 0o777) == (0, 0, 0o666)


def test_the_same_pod_with_a_network_reaches_the_api(
    whole_cluster: RunningCluster, name: str
) -> None:
    """What the test above would not notice otherwise: that nothing can be reached anyway."""
    network = _definition("cut-off-a-sandbox.md").replace('"none"', '"host"')
    _start(whole_cluster, name, network)
    place = "$KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT"
    answer = _sh(whole_cluster, name, f"nc -w 2 {place} </dev/null 2>&1; echo status $?")
    assert answer.endswith("status 0"), answer


@pytest.fixture
def added(whole_cluster: RunningCluster, name: str) -> Iterator[str]:
    """The name of a handler that `moor runtime add` made of a newer gVisor, and of its class."""
    program = newer_runsc()
    if program is None:
        pytest.skip("no newer runsc: set MOORAGE_RUNSC, or run `make peers`")
    whole_cluster.moor("runtime", "add", name, "--binary", str(program))
    yield name
    whole_cluster.kubectl("delete", "pod", name, "--ignore-not-found", "--now")
    whole_cluster.moor("runtime", "remove", name, "--force")


def test_ls_of_debian_12_works_under_a_gvisor_that_was_added(
    whole_cluster: RunningCluster, added: str
) -> None:
    """The remedy that `moor up` and `moor runtimes` print, to the letter."""
    until(lambda: added in _handlers(whole_cluster), "the handler")
    _start_with_debian(whole_cluster, added)
    assert _debian(whole_cluster, added, "ls -ld /tmp").startswith("drwx")


def _start_with_debian(cluster: RunningCluster, name: str) -> None:
    """Run a pod that has the host's /usr, as programs of Debian are in no image of ours."""
    mount = {"name": "usr", "mountPath": "/host", "readOnly": True}
    volume = {"name": "usr", "hostPath": {"path": "/usr"}}
    cluster.apply(
        runtime_class(name, name),
        pod(name, runtime_class=name, container={"volumeMounts": [mount]}, volumes=[volume]),
    )
    cluster.wait_ready(name)


def _debian(cluster: RunningCluster, name: str, command: str) -> str:
    """Run a program of the host's /usr/bin in the pod, with the host's libraries."""
    loader = "$(ls /host/lib/*/ld-linux-*.so.* /host/lib64/ld-linux-*.so.* 2>/dev/null | head -1)"
    libraries = "$(ls -d /host/lib/*-linux-gnu)"
    return _sh(cluster, name, f"{loader} --library-path {libraries} /host/bin/{command}")


def test_a_newer_gvisor_takes_no_automount_from_statx(
    whole_cluster: RunningCluster, name: str
) -> None:
    """Debian 12's `stat` and `ls` pass AT_NO_AUTOMOUNT, which older versions refuse."""
    program = newer_runsc()
    if program is None:
        pytest.skip("no newer runsc: set MOORAGE_RUNSC, or run `make peers`")
    definition = _definition("newer-gvisor.md").replace("/usr/local/bin/runsc", str(program))
    _file(whole_cluster, name).write_text(definition)
    until(lambda: name in _handlers(whole_cluster), "the handler")
    _start_with_debian(whole_cluster, name)
    assert _debian(whole_cluster, name, "stat -c %F /tmp") == "directory"
    listed = whole_cluster.moor("runtimes", "-o", "json").stdout
    assert os.fspath(program) in listed
