"""The behaviours of upstream's end-to-end RuntimeClass specs, and where Moorage is better.

Source: kubernetes `test/e2e/common/node/runtimeclass.go` and `test/e2e/node/runtimeclass.go`, as a
list of behaviours.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from moorage.inspect.demo import DETECTION_SCRIPT, detect_runtime
from tests.running import RunningCluster, pod, runtime_class, skip_without_gvisor, until

pytestmark = pytest.mark.runtime


@pytest.fixture
def name(whole_cluster: RunningCluster) -> Iterator[str]:
    """A name for a class and its pod; both are gone afterwards."""
    name = f"rc-{uuid.uuid4().hex[:8]}"
    yield name
    for kind in ("pod", "runtimeclass"):
        whole_cluster.remove(kind, name)


def _events(cluster: RunningCluster, pod_name: str) -> list[dict[str, Any]]:
    obj = cluster.get("events", "--field-selector", f"involvedObject.name={pod_name}")
    return list(obj["items"])


def _create(cluster: RunningCluster, document: dict[str, Any], *, fails: bool = False) -> str:
    done = cluster.kubectl("create", "-f", "-", stdin=json.dumps(document), fails=fails)
    return done.stderr


def test_a_pod_of_an_unknown_class_is_refused(whole_cluster: RunningCluster, name: str) -> None:
    answer = _create(whole_cluster, pod(name, runtime_class="no-such-class"), fails=True)
    assert 'pod rejected: RuntimeClass "no-such-class" not found' in answer
    assert "(Forbidden)" in answer


def test_a_handler_that_no_node_has_keeps_the_pod_pending_and_is_named(
    whole_cluster: RunningCluster, name: str
) -> None:
    whole_cluster.apply(runtime_class(name, "no-such-handler"), pod(name, runtime_class=name))
    messages: dict[str, str] = {}

    def has_both() -> bool:
        messages.update({e["reason"]: e["message"] for e in _events(whole_cluster, name)})
        return {"FailedScheduling", "FailedCreatePodSandBox"} <= messages.keys()

    until(has_both, "both events")
    assert '1 node(s) lack runtime handler "no-such-handler"' in messages["FailedScheduling"]
    # Upstream's specification looks for the handler's name in this one.
    assert "no-such-handler" in messages["FailedCreatePodSandBox"]
    assert whole_cluster.get("pod", name)["status"]["phase"] == "Pending"


@pytest.mark.parametrize(
    ("handler", "runtime"), [("runc", "runc"), ("crun", "crun"), ("gvisor", "gVisor")]
)
def test_a_pod_runs_under_the_handler_of_its_class(
    whole_cluster: RunningCluster, name: str, handler: str, runtime: str
) -> None:
    if handler == "gvisor":
        skip_without_gvisor()
    whole_cluster.apply(runtime_class(name, handler), pod(name, runtime_class=name))
    whole_cluster.wait_ready(name)
    # The container itself shows which one made it.
    output = whole_cluster.kubectl("exec", name, "--", "sh", "-c", DETECTION_SCRIPT).stdout
    assert detect_runtime(output)[1] == runtime


def test_a_class_without_overhead_leaves_the_pod_without(
    whole_cluster: RunningCluster, name: str
) -> None:
    whole_cluster.apply(runtime_class(name, "runc"), pod(name, runtime_class=name))
    whole_cluster.wait_ready(name)
    assert "overhead" not in whole_cluster.get("pod", name)["spec"]


def test_overhead_is_copied_and_charged(whole_cluster: RunningCluster, name: str) -> None:
    overhead = {"cpu": "10m", "memory": "1Mi"}
    whole_cluster.apply(
        runtime_class(name, "runc", overhead={"podFixed": overhead}),
        pod(name, runtime_class=name),
    )
    whole_cluster.wait_ready(name)
    assert whole_cluster.get("pod", name)["spec"]["overhead"] == overhead


def test_an_overhead_of_the_users_own_is_refused(whole_cluster: RunningCluster, name: str) -> None:
    whole_cluster.apply(runtime_class(name, "runc", overhead={"podFixed": {"cpu": "10m"}}))
    answer = _create(
        whole_cluster, pod(name, runtime_class=name, overhead={"cpu": "20m"}), fails=True
    )
    assert "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead" in answer


def test_a_pod_of_a_deleted_class_is_refused(whole_cluster: RunningCluster, name: str) -> None:
    whole_cluster.apply(runtime_class(name, "runc"))
    whole_cluster.kubectl("delete", "runtimeclass", name)
    answer = _create(whole_cluster, pod(name, runtime_class=name), fails=True)
    assert f'pod rejected: RuntimeClass "{name}" not found' in answer


def test_a_conflicting_node_selector_is_refused(whole_cluster: RunningCluster, name: str) -> None:
    scheduling = {"nodeSelector": {"tier": "gold"}}
    whole_cluster.apply(runtime_class(name, "runc", scheduling=scheduling))
    document = pod(name, runtime_class=name, nodeSelector={"tier": "iron"})
    answer = _create(whole_cluster, document, fails=True)
    assert "is forbidden: conflict: runtimeClass.scheduling.nodeSelector[tier] = gold; " in answer


def test_the_class_chooses_nodes_and_tolerates_their_taints(
    whole_cluster: RunningCluster, name: str
) -> None:
    whole_cluster.kubectl("label", "node", "n1", "tier=gold")
    whole_cluster.kubectl("taint", "node", "n1", "tier=gold:NoSchedule")
    toleration = {"key": "tier", "operator": "Equal", "value": "gold", "effect": "NoSchedule"}
    scheduling = {"nodeSelector": {"tier": "gold"}, "tolerations": [toleration]}
    try:
        whole_cluster.apply(
            runtime_class(name, "runc", scheduling=scheduling),
            pod(name, runtime_class=name),
        )
        whole_cluster.wait_ready(name)
    finally:
        whole_cluster.kubectl("taint", "node", "n1", "tier-")
        whole_cluster.kubectl("label", "node", "n1", "tier-")
    spec = whole_cluster.get("pod", name)["spec"]
    assert spec["nodeSelector"] == {"tier": "gold"}
    assert toleration in spec["tolerations"]


def test_class_deleted_under_a_running_pod_is_reported_until_it_returns(
    whole_cluster: RunningCluster, name: str
) -> None:
    """Upstream: restarts stop without a word."""
    crashing = {"command": ["sh", "-c", "trap 'exit 1' TERM; while :; do sleep 0.1; done"]}
    whole_cluster.apply(
        runtime_class(name, "runc"), pod(name, runtime_class=name, container=crashing)
    )
    whole_cluster.wait_ready(name)
    whole_cluster.kubectl("delete", "runtimeclass", name)
    whole_cluster.kubectl("exec", name, "--", "kill", "1")

    def restarts() -> int:
        statuses = whole_cluster.get("pod", name)["status"]["containerStatuses"]
        return int(statuses[0]["restartCount"])

    # The sandbox is there, so the container restarts in it, class or no class.
    until(lambda: restarts() == 1, "a restart")


def test_the_node_says_which_handlers_it_has(whole_cluster: RunningCluster) -> None:
    handlers = whole_cluster.get("node", "n1")["status"]["runtimeHandlers"]
    names = {handler.get("name", "") for handler in handlers}
    assert {"", "runc", "crun"} <= names
    assert ("gvisor" in names) == (shutil.which("runsc") is not None)
    assert "kata-containers" not in names


def test_explain_names_the_cause_and_what_to_do(whole_cluster: RunningCluster, name: str) -> None:
    whole_cluster.apply(pod(name, runtime_class="kata"))
    whole_cluster.kubectl(
        "wait", "--for=condition=PodScheduled=false", f"pod/{name}", "--timeout=10s"
    )
    output = whole_cluster.moor("explain", f"pod/{name}").stdout
    assert f"pod default/{name} has no node" in output
    assert 'lack runtime handler "kata-containers"' in output
    assert "what to do" in output
    explained = json.loads(whole_cluster.moor("explain", f"pod/{name}", "-o", "json").stdout)
    assert explained["runtime_class"] == "kata"
    assert explained["nodes"] == [
        {"node": "n1", "fits": False, "objections": explained["nodes"][0]["objections"]}
    ]
