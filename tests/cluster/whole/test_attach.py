"""Moorage attached to a cluster without it: real pods of its image, its parts killed, detached.

The tests share one cluster, and the last of them detaches.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from moorage import __version__
from moorage.controllers.webhookcertificates.issuing import LIFE, issue_pair
from moorage.wire.client.config import load_kubeconfig
from moorage.wire.client.rest import Client
from tests.attach.cluster_dump import Dump, dump
from tests.built_image import built_image
from tests.forks import Fork
from tests.running import (
    RunningCluster,
    pod,
    running,
    runtime_class,
    skip_without_kubectl,
    skip_without_runtimes,
    until,
)

pytestmark = [pytest.mark.runtime, pytest.mark.timeout(300)]

IMAGE = f"moorage.local/moorage:{__version__}"
NAMESPACE = "moorage-system"
SECRET = "moorage-webhook-tls"
GATE = "runtime.moorage.dev/handler"
NEEDS = "runtime.moorage.dev/needs"
AGENT_DATA = Path("/var/lib/moorage-agent")
_PORT = 9443
_CHANGING = frozenset(
    ("APIService", "Endpoints", "EndpointSlice", "Event", "Lease", "Namespace", "NodeMetrics",
     "PodMetrics")
)  # fmt: skip


class Attached:
    """A cluster to which Moorage was attached, by two processes at once."""

    def __init__(self, cluster: RunningCluster, before: Dump) -> None:
        self.cluster = cluster
        self.before = before
        settings = json.loads((cluster.data_dir / "cluster.json").read_text())
        engine = f"unix:///run/moorage/{settings['cluster_id']}/engine.sock"
        arguments = ["attach", "--yes", "--set", "imagePullPolicy=Never"]
        # This machine keeps its engines: the agent only looks.
        arguments += ["--set", "agent.installsRuntimes=false", "--set", f"agent.cri={engine}"]
        command = ["moorage.cli", *arguments, "--data-dir", str(cluster.data_dir)]
        started = [
            Fork(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for _ in range(2)
        ]
        self.outputs = [process.communicate(timeout=120)[0] for process in started]
        self.statuses = [process.returncode for process in started]

    def parts(self, component: str) -> list[dict[str, Any]]:
        """The pods of a part."""
        label = f"app.kubernetes.io/component={component}"
        return list(self.cluster.get("pods", "-n", NAMESPACE, "-l", label)["items"])

    def kill(self, *pods: dict[str, Any]) -> None:
        """Kill all processes of these pods at once."""
        for pid in [pid for each in pods for pid in _pids(each["metadata"]["uid"])]:
            os.kill(pid, signal.SIGKILL)

    def wait_parts(self) -> None:
        """Wait until all parts are ready."""
        self.cluster.kubectl(
            "wait", "--for=condition=Ready", "pods", "-n", NAMESPACE, "--timeout=60s",
            "-l", "app.kubernetes.io/part-of=moorage",
        )  # fmt: skip

    def runs(self, name: str, runtime_class: str) -> None:
        """Create a pod of a class as soon as it is admitted; any refusal says why."""
        document = json.dumps(pod(name, runtime_class=runtime_class))

        def is_created() -> bool:
            done = subprocess.run(
                ["kubectl", "create", "-f", "-"], input=document, text=True, capture_output=True,
                env=self.cluster.environment, timeout=60, check=False,
            )  # fmt: skip
            assert done.returncode == 0 or "failed calling webhook" in done.stderr, done.stderr
            return done.returncode == 0

        until(is_created, f"pod {name} admitted")
        self.cluster.wait_ready(name)
        assert f"runtime.moorage.dev/{runtime_class}" in json.dumps(
            self.cluster.get("pod", name)["spec"]["affinity"]
        )

    def holder(self) -> str:
        """The pod of the controllers that leads."""
        lease = self.cluster.get("lease", "moorage-controllers", "-n", NAMESPACE)
        return str(lease["spec"].get("holderIdentity", "")).partition("_")[0]


def _pids(uid: str) -> list[int]:
    """The processes of a pod, by their cgroups."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cgroup"):
        try:
            text = path.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if uid in text or uid.replace("-", "_") in text:
            found.append(int(path.parent.name))
    return found


def _container(cluster: RunningCluster, name: str) -> tuple[Any, ...]:
    status = cluster.get("pod", name)["status"]["containerStatuses"][0]
    return status["containerID"], status["restartCount"], status["state"]


async def _dump(kubeconfig: Path) -> Dump:
    async with Client(load_kubeconfig(kubeconfig), user_agent="test") as client:
        return await dump(client, _CHANGING)


@pytest.fixture(scope="module")
def attached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attached]:
    skip_without_kubectl()
    skip_without_runtimes()
    archive = built_image()
    had_data = AGENT_DATA.exists()
    place = tmp_path_factory.mktemp("attached") / "data"
    with running(place, node_name="n1", without=("runtimes",)) as cluster:
        cluster.moor("image", "load", str(archive))
        cluster.apply(pod("stays"))
        cluster.wait_ready("stays")
        made = Attached(cluster, asyncio.run(_dump(cluster.kubeconfig)))
        assert made.statuses == [0, 0], "\n".join(made.outputs)
        until(lambda: "crun" in _classes(cluster), "class crun")
        made.runs("stays-crun", "crun")
        yield made
    if not had_data:
        shutil.rmtree(AGENT_DATA, ignore_errors=True)


@pytest.fixture(scope="module")
def handler(attached: Attached) -> Iterator[str]:
    """The name of a handler, and class, that no node has at first."""
    name = f"late-{uuid.uuid4().hex[:8]}"
    yield name
    _file(attached.cluster, name).unlink(missing_ok=True)


def _file(cluster: RunningCluster, handler: str) -> Path:
    return cluster.data_dir / "engine" / "handlers.d" / f"{handler}.toml"


def _add(cluster: RunningCluster, handler: str) -> None:
    path = _file(cluster, handler)
    scratch = path.with_suffix(".new")
    scratch.write_text(f'adapter = "oci"\nbinary = "{shutil.which("crun")}"\n')
    scratch.replace(path)


def test_two_that_attach_at_once_both_say_what_works(attached: Attached) -> None:
    for output in attached.outputs:
        assert "moorage-webhook: 2 of 2 pods are ready" in output
        (row,) = [line for line in output.splitlines() if line.startswith("n1 ")]
        assert "crun (shared-kernel)" in row
        assert "runc (shared-kernel)" in row
    configuration = attached.cluster.get("mutatingwebhookconfigurations", "moorage")
    assert all(webhook["clientConfig"]["caBundle"] for webhook in configuration["webhooks"])


def test_a_pod_that_names_a_class_runs_under_it(attached: Attached) -> None:
    attached.runs("named", "crun")


def _classes(cluster: RunningCluster) -> set[str]:
    return {one["metadata"]["name"] for one in cluster.get("runtimeclasses")["items"]}


def test_a_pod_that_states_needs_gets_a_class(attached: Attached) -> None:
    fitted = pod("fitted")
    fitted["metadata"]["annotations"] = {NEEDS: "isolation=shared-kernel"}
    attached.cluster.apply(fitted)
    attached.cluster.wait_ready("fitted")
    assert attached.cluster.get("pod", "fitted")["spec"]["runtimeClassName"]


def test_a_pod_waits_for_a_node_with_its_handler(attached: Attached, handler: str) -> None:
    cluster = attached.cluster
    cluster.apply(runtime_class(handler, handler))
    # The webhook reads classes by a watch.
    until(lambda: _is_held(cluster, handler), "a pod that is held")
    cluster.kubectl(
        "wait", "--for=condition=runtime.moorage.dev/HandlerAvailable=false",
        "pod/held", "--timeout=20s",
    )  # fmt: skip
    (condition,) = [
        one for one in cluster.get("pod", "held")["status"]["conditions"] if "/" in one["type"]
    ]
    assert f'the handler "{handler}" of RuntimeClass {handler}' in condition["message"]
    _add(cluster, handler)
    cluster.wait_ready("held")
    assert "schedulingGates" not in cluster.get("pod", "held")["spec"]


def _is_held(cluster: RunningCluster, handler: str) -> bool:
    cluster.kubectl("delete", "pod", "held", "--ignore-not-found")
    cluster.apply(pod("held", runtime_class=handler))
    gates = cluster.get("pod", "held")["spec"].get("schedulingGates", [])
    return {"name": GATE} in gates


@pytest.mark.parametrize("loss", ["deleted", "expired"])
def test_a_certificate_that_is_lost_is_issued_again(attached: Attached, loss: str) -> None:
    cluster = attached.cluster
    before = _data(cluster)["tls.crt"]
    if loss == "deleted":
        cluster.kubectl("delete", "secret", SECRET, "-n", NAMESPACE)
    else:
        _write_expired(cluster)
    until(lambda: _data(cluster).get("tls.crt", before) != before, "another certificate")
    attached.runs(f"after-{loss}", "crun")


def _data(cluster: RunningCluster) -> dict[str, str]:
    found = cluster.get("secrets", "-n", NAMESPACE, f"--field-selector=metadata.name={SECRET}")
    return dict(found["items"][0]["data"]) if found["items"] else {}


def _write_expired(cluster: RunningCluster) -> None:
    hosts = (
        "moorage-webhook.moorage-system.svc",
        "moorage-webhook.moorage-system.svc.cluster.local",
    )
    pair = issue_pair(hosts, datetime.now(UTC) - 2 * LIFE)
    data = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": pair.authority}
    patch = json.dumps({"stringData": data})
    cluster.kubectl("patch", "secret", SECRET, "-n", NAMESPACE, "--type=merge", "-p", patch)


def test_the_other_controllers_take_over_when_those_that_lead_are_killed(
    attached: Attached,
) -> None:
    before = attached.holder()
    attached.kill(*(one for one in attached.parts("controllers") if _name(one) == before))
    until(lambda: attached.holder() not in ("", before), "another that leads", within_s=40)


def _name(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["name"])


@pytest.mark.parametrize("component", random.sample(("webhook", "controllers", "runtime-agent"), 3))
def test_a_part_that_is_killed_disturbs_no_pod(attached: Attached, component: str) -> None:
    cluster = attached.cluster
    names = ("stays", "stays-crun")
    before = [_container(cluster, name) for name in names]
    attached.kill(*attached.parts(component))
    # A create that names no class asks nothing of Moorage.
    cluster.apply(pod(f"free-{component}"))
    attached.runs(f"named-{component}", "crun")
    cluster.wait_ready(f"free-{component}")
    assert [_container(cluster, name) for name in names] == before
    for each in (f"free-{component}", f"named-{component}"):
        cluster.kubectl("delete", "pod", each, "--wait=false")


def test_parts_recover_when_the_api_server_was_killed(attached: Attached, handler: str) -> None:
    cluster = attached.cluster
    cluster.apply(runtime_class(handler, handler))
    killed = cluster.part("apiserver")
    os.kill(killed["pid"], signal.SIGKILL)
    until(lambda: cluster.part("apiserver")["restarts"] > killed["restarts"], "its restart")
    until(lambda: cluster.part("apiserver")["state"] == "ready", "the API server again")
    _file(cluster, handler).unlink(missing_ok=True)
    attached.runs("after-restart", "crun")
    # The agent says that the handler is gone, the webhook knows it, and the controllers let it go.
    until(lambda: _is_held(cluster, handler), "a pod that is held", within_s=60)
    _add(cluster, handler)
    cluster.wait_ready("held")
    attached.wait_parts()


def test_both_replicas_serve_the_new_certificate(attached: Attached) -> None:
    # A node agent looks for changed Secrets now and then, as a kubelet does.
    until(lambda: _is_served(attached), "the new certificate, by both replicas", within_s=100)
    attached.runs("served", "crun")


def _is_served(attached: Attached) -> bool:
    """Whether API servers trust what each replica of the webhook serves now, and it is the last."""
    data = _data(attached.cluster)
    context = ssl.create_default_context(cadata=_text(data["ca.crt"]))
    name = "moorage-webhook.moorage-system.svc"
    for each in attached.parts("webhook"):
        try:
            with (
                closing(socket.create_connection((each["status"]["podIP"], _PORT), 5)) as plain,
                context.wrap_socket(plain, server_hostname=name) as secure,
            ):
                served = secure.getpeercert(binary_form=True)
        except OSError:
            return False
        if served != ssl.PEM_cert_to_DER_cert(_text(data["tls.crt"])):
            return False
    return True


def _text(encoded: str) -> str:
    return base64.b64decode(encoded).decode()


def test_detaching_leaves_what_it_says_and_running_pods(attached: Attached, handler: str) -> None:
    cluster = attached.cluster
    names = ("stays", "stays-crun")
    before = [_container(cluster, name) for name in names]
    others = [_name(one) for one in cluster.get("pods")["items"] if _name(one) not in names]
    cluster.kubectl("delete", "pod", "--ignore-not-found", "none", *others)
    cluster.kubectl("delete", "runtimeclass", "--ignore-not-found", handler)
    output = cluster.moor("detach", "--yes", timeout_s=120).stdout
    left = [line for line in output.splitlines() if line.startswith("left: ")]
    assert len(left) == 2
    assert left[0].startswith(f"left: the empty directory {AGENT_DATA} on each node")
    assert left[1].startswith("left: RuntimeClass crun: 1 pod uses it")
    # An agent that installs nothing may not remove the directory itself.
    assert not AGENT_DATA.exists() or not any(AGENT_DATA.iterdir())
    assert [_container(cluster, name) for name in names] == before
    cluster.kubectl("delete", "pod", "stays-crun")
    cluster.kubectl("delete", "runtimeclass", "crun")
    after = asyncio.run(_dump(cluster.kubeconfig))
    assert after.keys() == attached.before.keys()
    assert after == attached.before
    cluster.apply(pod("without"))
    cluster.wait_ready("without", "stays")
