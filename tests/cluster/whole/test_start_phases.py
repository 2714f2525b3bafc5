"""Start phases on real handlers, and the commands that show them: run, bench, top, explain."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from moorage.runtimeclass.start_phases import CONDITION, format_measured, parse_measured
from tests.forks import Fork, run_moor
from tests.running import BUSYBOX, MOOR, RunningCluster, pod, skip_without_gvisor, until

pytestmark = pytest.mark.runtime

FORGED = '{"seen":"2026-01-01T00:00:00.000000Z","sandbox":99999}'


def a_name(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:8]}"


def phases(cluster: RunningCluster, name: str) -> dict[str, float]:
    """The milliseconds in a pod's condition."""
    conditions = cluster.get("pod", name)["status"]["conditions"]
    (condition,) = [one for one in conditions if one["type"] == CONDITION]
    assert condition["status"] == "True"
    measured = parse_measured(condition["message"])
    assert measured is not None
    return measured.milliseconds


@pytest.mark.parametrize("name", ["native", "crun", "gvisor"])
def test_each_pod_keeps_the_phases_of_its_start(whole_cluster: RunningCluster, name: str) -> None:
    if name == "gvisor":
        skip_without_gvisor()
    pod_name = a_name("phases")
    # What the author writes about the start is not believed, and breaks nothing.
    body = pod(pod_name, runtime_class=name)
    body["metadata"]["annotations"] = {
        CONDITION: FORGED,
        "runtime.moorage.dev/start-phases": "[" * 9,
    }
    body["status"] = {"conditions": [{"type": CONDITION, "status": "True", "message": FORGED}]}
    whole_cluster.apply(body)
    try:
        whole_cluster.wait_ready(pod_name)
        spent = phases(whole_cluster, pod_name)
        assert set(spent) == {
            "sandbox", "volumes", "image", "create", "start", "ready", "other",
        }  # fmt: skip
        assert 0 < spent["sandbox"] < 60_000
        assert 0 < spent["start"] < 60_000
        # One write has it: the one that says Running.
        managed = whole_cluster.get("pod", pod_name, "--show-managed-fields")["metadata"]
        writers = [
            one["manager"]
            for one in managed["managedFields"]
            if CONDITION in json.dumps(one["fieldsV1"]) and one.get("subresource")
        ]
        assert len(writers) == 1
        explained = whole_cluster.moor("explain", f"pod/{pod_name}").stdout
        assert " on the node: schedule " in explained
        assert "99999" not in explained
    finally:
        whole_cluster.kubectl("delete", "pod", pod_name, "--wait=false")


def test_histograms_are_by_class_and_handler(whole_cluster: RunningCluster) -> None:
    name = a_name("phases")
    whole_cluster.apply(pod(name, runtime_class="crun"))
    whole_cluster.wait_ready(name)
    whole_cluster.kubectl("delete", "pod", name, "--wait=false")
    text = whole_cluster.kubectl("get", "--raw", "/api/v1/nodes/n1/proxy/metrics").stdout
    for phase in ("sandbox", "image", "create", "start", "ready"):
        series = "kubelet_pod_start_phase_duration_seconds_count"
        assert f'{series}{{phase="{phase}",runtime_class="crun",runtime_handler="crun"}}' in text


def moor_run(
    cluster: RunningCluster, *arguments: str, status: int
) -> subprocess.CompletedProcess[str]:
    """Run `moor run` on the cluster; what follows `--` is the container's."""
    done = run_moor("run", "--data-dir", str(cluster.data_dir), *arguments, timeout_s=120)
    assert done.returncode == status, f"moor run {arguments}: {done.stdout}{done.stderr}"
    return done


def test_one_command_under_several_classes(whole_cluster: RunningCluster) -> None:
    done = moor_run(
        whole_cluster, "--class", "native,crun,kata,nope", "-o", "json", "--limit", "memory=64Mi",
        BUSYBOX, "--", "sh", "-c", "echo $((6 * 7)); exit 3", status=1,
    )  # fmt: skip
    results = {one["runtime_class"]: one for one in json.loads(done.stdout)["results"]}
    for name, handler in (("native", "runc"), ("crun", "crun")):
        result = results[name]
        assert (result["handler"], result["exit_code"], result["output"]) == (handler, 3, "42\n")
        assert {"admit", "schedule", "sandbox", "start"} <= {
            phase["name"] for phase in result["phases"]
        }
    assert results["kata"]["outcome"] == "refused"
    assert 'lack runtime handler "kata-containers"' in results["kata"]["reason"]
    assert 'RuntimeClass "nope" not found' in results["nope"]["reason"]
    assert trials(whole_cluster) == []


def trials(cluster: RunningCluster) -> list[str]:
    selector = "app.kubernetes.io/managed-by in (moor-run,moor-bench)"
    return [one["metadata"]["name"] for one in cluster.get("pods", "-l", selector)["items"]]


def test_a_program_that_uses_too_much_memory_shows_why_it_ended(
    whole_cluster: RunningCluster,
) -> None:
    script = "x=a; while :; do x=$x$x; done"
    done = moor_run(
        whole_cluster, "--class", "crun", "--limit", "memory=16Mi",
        BUSYBOX, "--", "sh", "-c", script, status=1,
    )  # fmt: skip
    assert "exit code 137 (SIGKILL), OOMKilled" in done.stdout


def test_a_timeout_is_a_result(whole_cluster: RunningCluster) -> None:
    done = moor_run(
        whole_cluster, "--class", "crun", "--timeout", "4", BUSYBOX, "--", "sleep", "100", status=1
    )
    assert "timed out" in done.stdout
    assert trials(whole_cluster) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_removes_its_pods(
    whole_cluster: RunningCluster, number: signal.Signals
) -> None:
    arguments = ["--class", "crun,native", "--parallel", BUSYBOX, "--", "sleep", "1000"]
    running = Fork(
        ["moorage.cli", "run", "--data-dir", str(whole_cluster.data_dir), *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        until(lambda: len(trials(whole_cluster)) == 2, "two pods")
        running.send_signal(number)
        output, _ = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode != 0
    assert "Traceback" not in output
    assert trials(whole_cluster) == []


def test_a_bench_of_classes_keeps_every_sample(
    whole_cluster: RunningCluster, tmp_path: Path
) -> None:
    samples = tmp_path / "samples.json"
    done = whole_cluster.moor(
        "bench", "classes", "--class", "native,crun", "--starts", "2", "--rounds", "1",
        "--density", "2", "--samples", str(samples), timeout_s=300,
    )  # fmt: skip
    assert "SYSCALLS 1/S" in done.stdout
    document = json.loads(samples.read_text())
    assert document["failures"] == []
    taken = {(one["runtime_class"], one["metric"]) for one in document["samples"]}
    for name in ("native", "crun"):
        for metric in ("start", "phase:sandbox", "syscalls", "files", "write", "network",
                       "density", "memory"):  # fmt: skip
            assert (name, metric) in taken
    assert all(one["value"] >= 0 for one in document["samples"])
    assert trials(whole_cluster) == []


def test_top_in_a_script(whole_cluster: RunningCluster) -> None:
    name = a_name("top")
    whole_cluster.apply(pod(name, runtime_class="native"))
    try:
        whole_cluster.wait_ready(name)
        rows: Any = json.loads(whole_cluster.moor("top", "-o", "json").stdout)
        (row,) = [one for one in rows if one["runtime_class"] == "native"]
        assert row["handler"] == "runc"
        assert row["running"] >= 1
        assert row["is_exact"]
        assert row["start_p50_ms"] > 0
        table = whole_cluster.moor("top", "--once", "--filter", "native").stdout.splitlines()
        assert table[0].split()[:3] == ["CLASS", "HANDLER", "PODS"]
        assert [line.split()[0] for line in table[1:]] == ["native"]
        assert "needs a terminal" in whole_cluster.moor("top", status=1).stderr
    finally:
        whole_cluster.kubectl("delete", "pod", name, "--wait=false")


def test_top_in_a_terminal(whole_cluster: RunningCluster) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        options = ["--interval", "0.3", "--filter", "crun"]
        arguments = [*MOOR, "top", *options, "--data-dir", str(whole_cluster.data_dir)]
        os.execvpe(arguments[0], arguments, {**os.environ, "TERM": "xterm", "COLUMNS": "160"})
    shown = ""

    def read_until(text: str) -> None:
        nonlocal shown
        deadline = time.monotonic() + 60
        while text not in shown:
            assert time.monotonic() < deadline, shown
            if select.select([terminal], [], [], 1)[0]:
                shown += os.read(terminal, 65536).decode(errors="replace")

    try:
        read_until("filter 'crun'")
        # Later drawings send only what has changed.
        os.write(terminal, b"/")
        read_until("filter: crun_")
        os.write(terminal, b"\n ")
        read_until("paused")
        os.write(terminal, b"q")
        _, status = os.waitpid(pid, 0)
        pid = 0
        assert os.waitstatus_to_exitcode(status) == 0
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(terminal)


def a_deployment(name: str, container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "containers": [{"name": "app", "image": BUSYBOX, **container}],
                    "terminationGracePeriodSeconds": 0,
                    **spec,
                },
            },
        },
    }


@pytest.mark.parametrize(
    ("container", "spec", "texts"),
    [
        ({"command": ["sh", "-c", "exit 7"]}, {},
         ["0 of 2 replicas are ready", "container app ended with exit code 7"]),
        ({"command": ["sh", "-c", "x=a; while :; do x=$x$x; done"],
          "resources": {"limits": {"memory": "16Mi"}}}, {},
         ["exit code 137 (SIGKILL), OOMKilled", "raise resources.limits.memory (16Mi)"]),
        ({"command": ["sleep", "1000"],
          "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}}, {},
         ["2 running, not ready", "connection refused", "nothing listens on port 8080"]),
        ({}, {"runtimeClassName": "kata"},
         ["2 no node: 0/1 nodes are available", 'n1: node(s) lack runtime handler']),
    ],
)  # fmt: skip
def test_workloads_are_explained(
    whole_cluster: RunningCluster,
    container: dict[str, Any],
    spec: dict[str, Any],
    texts: list[str],
) -> None:
    name = a_name("explained")
    whole_cluster.apply(a_deployment(name, container, **spec))
    shown = ""

    def has_all() -> bool:
        nonlocal shown
        shown = whole_cluster.moor("explain", f"deployment/{name}").stdout
        return all(text in shown for text in texts)

    try:
        until(has_all, f"{texts} in the explanation", within_s=60)
    except AssertionError as error:
        raise AssertionError(shown) from error
    finally:
        whole_cluster.kubectl("delete", "deployment", name, "--wait=false")


def test_the_forged_text_would_be_believed_in_a_condition() -> None:
    """The tests above would show nothing otherwise."""
    measured = parse_measured(FORGED)
    assert measured is not None
    assert parse_measured(format_measured(measured)) == measured
