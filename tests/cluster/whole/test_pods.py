"""A pod's life on a real node: environment, volumes, init containers, probes, limits, its end."""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.images.builds import Entry, directory, layer, oci_archive
from tests.running import (
    BUSYBOX,
    NGINX_STAND_IN,
    RunningCluster,
    has_gvisor,
    pod,
    skip_without_gvisor,
    until,
)

pytestmark = pytest.mark.runtime


@pytest.fixture
def name(whole_cluster: RunningCluster) -> Iterator[str]:
    name = _unused_name()
    yield name
    _delete(whole_cluster, name)


def _unused_name() -> str:
    return f"p-{uuid.uuid4().hex[:8]}"


def _delete(cluster: RunningCluster, name: str) -> None:
    cluster.remove("pod,configmap,secret", name)


def _status(cluster: RunningCluster, name: str) -> dict[str, Any]:
    return dict(cluster.get("pod", name)["status"])


def _container(cluster: RunningCluster, name: str) -> dict[str, Any]:
    return dict(_status(cluster, name).get("containerStatuses", [{}])[0])


def _said(cluster: RunningCluster, name: str, *options: str) -> str:
    return cluster.kubectl("logs", name, *options).stdout


def _shell(script: str, **more: Any) -> dict[str, Any]:
    return {"command": ["sh", "-c", script], **more}


def test_the_environment_comes_from_everywhere(whole_cluster: RunningCluster, name: str) -> None:
    whole_cluster.kubectl("create", "configmap", name, "--from-literal=colour=red")
    whole_cluster.kubectl("create", "secret", "generic", name, "--from-literal=word=sesame")
    variables = [
        {"name": "PLAIN", "value": "a"},
        {"name": "USES", "value": "$(PLAIN)b"},
        {"name": "MAP", "valueFrom": {"configMapKeyRef": {"name": name, "key": "colour"}}},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": name, "key": "word"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "LIMIT", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}},
    ]
    container = _shell(
        'echo "$PLAIN $USES $MAP $SECRET $NODE $LIMIT"',
        env=variables,
        resources={"limits": {"memory": "64Mi"}},
    )
    whole_cluster.apply(pod(name, container=container, restartPolicy="Never"))
    until(lambda: _status(whole_cluster, name)["phase"] == "Succeeded", "its end")
    assert _said(whole_cluster, name).split() == ["a", "ab", "red", "sesame", "n1", "67108864"]


@pytest.fixture(scope="module")
def volumes(whole_cluster: RunningCluster) -> Iterator[tuple[str, dict[str, str]]]:
    """A pod, and what its volumes held at first.

    Its config map is another by then, which the node notices after a while: other tests run in it.
    """
    name = _unused_name()
    whole_cluster.kubectl("create", "configmap", name, "--from-literal=key=first")
    whole_cluster.kubectl("create", "secret", "generic", name, "--from-literal=word=sesame")
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}
    label = {
        "downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}
    }
    volumes = [
        {"name": "map", "configMap": {"name": name}},
        {"name": "secret", "secret": {"secretName": name, "defaultMode": 0o400}},
        {"name": "both", "projected": {"sources": [token, label]}},
        {"name": "empty", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
    ]
    mounts = [{"name": volume["name"], "mountPath": f"/v/{volume['name']}"} for volume in volumes]
    whole_cluster.apply(pod(name, volumes=volumes, container={"volumeMounts": mounts}))
    whole_cluster.wait_ready(name)
    scripts = {
        "map": "cat /v/map/key",
        "secret": "cat /v/secret/word; stat -L -c %a /v/secret/word",
        "label": "cat /v/both/name",
        "token": "cut -d. -f2 /v/both/token | wc -c",
        "empty": "mount | grep /v/empty",
    }
    first = {volume: _read(whole_cluster, name, script) for volume, script in scripts.items()}
    patch = json.dumps({"data": {"key": "second"}})
    whole_cluster.kubectl("patch", "configmap", name, "--type=merge", "-p", patch)
    yield name, first
    _delete(whole_cluster, name)


def _read(cluster: RunningCluster, name: str, script: str) -> str:
    return cluster.kubectl("exec", name, "--", "sh", "-c", script).stdout.strip()


def test_volumes_hold_what_they_should(volumes: tuple[str, dict[str, str]]) -> None:
    name, first = volumes
    assert first["map"] == "first"
    assert first["secret"] == "sesame400"
    assert first["label"] == name
    assert first["token"].isdecimal()
    assert "tmpfs" in first["empty"]


def test_init_containers_run_first_and_one_by_one(whole_cluster: RunningCluster, name: str) -> None:
    mount = [{"name": "shared", "mountPath": "/shared"}]
    steps = [
        {"name": f"step{number}", "image": BUSYBOX, "volumeMounts": mount,
         "command": ["sh", "-c", f"echo {number} >> /shared/steps"]}
        for number in range(3)
    ]  # fmt: skip
    whole_cluster.apply(
        pod(
            name,
            initContainers=steps,
            volumes=[{"name": "shared", "emptyDir": {}}],
            container=_shell("cat /shared/steps", volumeMounts=mount),
            restartPolicy="Never",
        )
    )
    until(lambda: _status(whole_cluster, name)["phase"] == "Succeeded", "its end")
    assert _said(whole_cluster, name).split() == ["0", "1", "2"]


def test_a_failing_container_restarts_later_and_later(
    whole_cluster: RunningCluster, name: str
) -> None:
    whole_cluster.apply(pod(name, container=_shell("echo going; exit 3")))
    until(lambda: _container(whole_cluster, name).get("restartCount", 0) >= 1, "a restart")
    until(
        lambda: (
            _container(whole_cluster, name)["state"].get("waiting", {}).get("reason")
            == "CrashLoopBackOff"
        ),
        "the back-off",
    )
    last = _container(whole_cluster, name)["lastState"]["terminated"]
    assert (last["exitCode"], last["reason"]) == (3, "Error")
    assert _said(whole_cluster, name, "--previous") == "going\n"


@pytest.mark.parametrize(
    ("policy", "script", "phase"),
    [
        ("Never", "exit 0", "Succeeded"),
        ("Never", "exit 1", "Failed"),
        ("OnFailure", "exit 0", "Succeeded"),
    ],
)
def test_restart_policies_end_a_pod(
    whole_cluster: RunningCluster, name: str, policy: str, script: str, phase: str
) -> None:
    whole_cluster.apply(pod(name, container=_shell(script), restartPolicy=policy))
    until(lambda: _status(whole_cluster, name)["phase"] == phase, phase)


def test_probes_decide_readiness_and_restarts(whole_cluster: RunningCluster, name: str) -> None:
    container = {
        "image": NGINX_STAND_IN,
        "command": ["/usr/bin/serve"],
        "readinessProbe": {"exec": {"command": ["test", "-f", "/tmp/ready"]}, "periodSeconds": 1},
        "livenessProbe": {
            "httpGet": {"path": "/", "port": 80}, "periodSeconds": 1, "timeoutSeconds": 30,
        },
    }  # fmt: skip
    whole_cluster.apply(pod(name, container=container))
    until(lambda: "running" in _container(whole_cluster, name).get("state", {}), "a start")
    assert _container(whole_cluster, name)["ready"] is False
    whole_cluster.kubectl("exec", name, "--", "touch", "/tmp/ready")
    whole_cluster.wait_ready(name)
    whole_cluster.kubectl("exec", name, "--", "rm", "-r", "/www")
    until(lambda: _container(whole_cluster, name)["restartCount"] >= 1, "a restart")


def test_limits_are_kept(whole_cluster: RunningCluster, name: str) -> None:
    # The shell ends with what the kernel did to its child.
    greedy = _shell("head -c 200m /dev/zero | tail -c 200m > /dev/null")
    limits = {"limits": {"memory": "32Mi", "cpu": "200m"}}
    whole_cluster.apply(pod(name, container=greedy | {"resources": limits}, restartPolicy="Never"))
    until(lambda: _status(whole_cluster, name)["phase"] == "Failed", "its end")
    ended = _container(whole_cluster, name)["state"]["terminated"]
    assert ended["reason"] in ("OOMKilled", "Error")
    assert ended["exitCode"] != 0
    assert _status(whole_cluster, name)["qosClass"] == "Guaranteed"


def test_a_pod_cannot_take_all_process_ids(whole_cluster: RunningCluster, name: str) -> None:
    whole_cluster.apply(pod(name))
    uid = whole_cluster.get("pod", name)["metadata"]["uid"]
    limits: list[str] = []

    def is_limited() -> bool:
        cgroups = Path("/sys/fs/cgroup").glob(f"**/kubepods/besteffort/pod{uid}/pids.max")
        limits[:] = [cgroup.read_text().strip() for cgroup in cgroups]
        return bool(limits)

    until(is_limited, "the pod's cgroup")
    assert set(limits) == {"4096"}


_FILES_OF_THE_NODE = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev/termination-log")
_HANDLERS = ("native", "crun", "gvisor")


@pytest.fixture(scope="module")
def filling(
    whole_cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], str]]:
    """Pods that write more than they may, by class and by what they fill.

    They are all there at once: what pods have written is measured every ten seconds.
    """
    _load_image_with_volume(whole_cluster, tmp_path_factory.mktemp("image"))
    pods = {("", "/filled"): _filler("/filled"), ("", "log"): _RESTRICTED_FILLER}
    for handler in _HANDLERS:
        if handler != "gvisor" or has_gvisor():
            pods |= {(handler, file): _filler(file) for file in _FILES_OF_THE_NODE}
            pods[handler, "/data"] = _VOLUME_FILLER
    names = {key: _unused_name() for key in pods}
    for key, options in pods.items():
        whole_cluster.apply(pod(names[key], runtime_class=key[0], **options))
    yield names
    whole_cluster.kubectl("delete", "pod", *names.values(), "--ignore-not-found", "--wait=false")


def _filler(file: str) -> dict[str, Any]:
    script = f"head -c 8m /dev/zero >> {file}; sleep 1000"
    return {"container": _shell(script, resources=_FOUR_MEGABYTES)}


_FOUR_MEGABYTES = {"limits": {"ephemeral-storage": "4Mi"}}
_VOLUME_FILLER = {
    "container": {
        "image": "moorage.local/declares:1",
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", "read x </data/file; echo $x; head -c 8m /dev/zero >/data/filled; "
                        "sleep 1000"],
        "resources": _FOUR_MEGABYTES,
        "securityContext": {"readOnlyRootFilesystem": True},
    }
}  # fmt: skip
_RESTRICTED_FILLER = {
    "container": _shell(
        "head -c 12m /dev/zero >> /dev/termination-log; sleep 1000",
        securityContext={
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    ),
    "securityContext": {
        "runAsUser": 1000,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
}


def _load_image_with_volume(cluster: RunningCluster, directory_of_archive: Path) -> None:
    busybox = Path(shutil.which("busybox") or "busybox").read_bytes()
    files = layer(
        directory("bin"), Entry("bin/sh", busybox, mode=0o755),
        directory("data"), Entry("data/file", b"from the image"),
    )  # fmt: skip
    archive = oci_archive(
        directory_of_archive / "a.tar",
        ["moorage.local/declares:1"], [files], {"Volumes": {"/data": {}}},
    )  # fmt: skip
    cluster.moor("image", "load", str(archive))


def _message_of_eviction(cluster: RunningCluster, name: str) -> str:
    """Wait until a pod is evicted; return why it was."""
    try:
        until(lambda: _status(cluster, name).get("reason") == "Evicted", "eviction", 90)
    except AssertionError as error:
        shown = cluster.kubectl("describe", "pod", name).stdout
        raise AssertionError(f"{error}:\n{shown}") from error
    status = _status(cluster, name)
    assert status["phase"] == "Failed"
    return str(status["message"])


# The pod's total is looked at before each container's own limit, as upstream does.
_TOO_MUCH = "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. "


def test_a_pod_beyond_its_ephemeral_storage_is_evicted(
    whole_cluster: RunningCluster, filling: dict[tuple[str, str], str]
) -> None:
    assert _message_of_eviction(whole_cluster, filling["", "/filled"]) == _TOO_MUCH


@pytest.mark.parametrize("handler", _HANDLERS)
def test_what_is_written_to_the_files_of_the_node_counts(
    whole_cluster: RunningCluster, filling: dict[tuple[str, str], str], handler: str
) -> None:
    if handler == "gvisor":
        skip_without_gvisor()
    for file in _FILES_OF_THE_NODE:
        assert _message_of_eviction(whole_cluster, filling[handler, file]) == _TOO_MUCH


@pytest.mark.parametrize("handler", _HANDLERS)
def test_a_volume_of_the_image_can_be_written_in_a_read_only_root_and_counts(
    whole_cluster: RunningCluster, filling: dict[tuple[str, str], str], handler: str
) -> None:
    if handler == "gvisor":
        skip_without_gvisor()
    assert _message_of_eviction(whole_cluster, filling[handler, "/data"]) == _TOO_MUCH


def test_a_termination_log_is_bounded_in_a_restricted_pod(
    whole_cluster: RunningCluster, filling: dict[tuple[str, str], str]
) -> None:
    message = _message_of_eviction(whole_cluster, filling["", "log"])
    assert message == 'Termination log of container app exceeds the limit "10Mi". '


@pytest.mark.parametrize("handler", ["native", "crun", "gvisor"])
def test_an_ordinary_pod_is_debugged_with_a_privileged_container(
    whole_cluster: RunningCluster, name: str, handler: str
) -> None:
    if handler == "gvisor":
        skip_without_gvisor()
    whole_cluster.apply(pod(name, runtime_class=handler))
    whole_cluster.wait_ready(name)
    whole_cluster.kubectl(
        "debug", name, "--profile=sysadmin", f"--image={BUSYBOX}", "-c", "debugger",
        "--image-pull-policy=IfNotPresent", "--", "grep", "CapEff", "/proc/self/status",
    )  # fmt: skip

    def has_ended() -> bool:
        statuses = _status(whole_cluster, name).get("ephemeralContainerStatuses", [])
        return any(item["state"].get("terminated") for item in statuses)

    until(has_ended, "the debug container", 60)
    output = _said(whole_cluster, name, "-c", "debugger")
    assert int(output.split()[1], 16) >> 21 & 1, "CAP_SYS_ADMIN"


def test_a_pod_gets_its_time_to_end(whole_cluster: RunningCluster, name: str) -> None:
    script = "trap 'echo bye; sleep 1; echo gone; exit 0' TERM; while :; do sleep 0.1; done"
    whole_cluster.apply(pod(name, container=_shell(script), terminationGracePeriodSeconds=60))
    whole_cluster.wait_ready(name)
    began = time.monotonic()
    whole_cluster.kubectl("delete", "pod", name, "--timeout=30s")
    assert time.monotonic() - began >= 1


def test_an_image_that_is_nowhere_says_so(whole_cluster: RunningCluster, name: str) -> None:
    container = {"image": "moorage.local/no-such-image:1", "imagePullPolicy": "Never"}
    whole_cluster.apply(pod(name, container=container))
    until(
        lambda: (
            _container(whole_cluster, name).get("state", {}).get("waiting", {}).get("reason")
            == "ErrImageNeverPull"
        ),
        "the reason",
    )


def test_pods_reach_the_api_and_their_token_opens_it(
    whole_cluster: RunningCluster, name: str
) -> None:
    whole_cluster.apply(pod(name))
    whole_cluster.wait_ready(name)

    def run(script: str) -> str:
        return whole_cluster.kubectl("exec", name, "--", "sh", "-c", script).stdout.strip()

    # busybox speaks no TLS that a P-256 certificate needs, so the pod only connects.
    assert run("nc -w 3 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null && echo yes")
    directory = "/var/run/secrets/kubernetes.io/serviceaccount"
    token = run(f"cat {directory}/token")
    assert "BEGIN CERTIFICATE" in run(f"cat {directory}/ca.crt")
    answer = whole_cluster.kubectl(
        "auth", "whoami", "--kubeconfig", "/dev/null", "--token", token, "--server",
        _server(whole_cluster), "--insecure-skip-tls-verify",
    )  # fmt: skip
    assert "system:serviceaccount:default:default" in answer.stdout
    assert name in answer.stdout


def _server(cluster: RunningCluster) -> str:
    view = json.loads(cluster.kubectl("config", "view", "-o", "json").stdout)
    return str(view["clusters"][0]["cluster"]["server"])


def test_pods_reach_each_other(whole_cluster: RunningCluster, name: str) -> None:
    whole_cluster.apply(
        pod(name, container={"image": NGINX_STAND_IN, "command": ["/usr/bin/serve"]})
    )
    whole_cluster.wait_ready(name)
    address = _status(whole_cluster, name)["podIP"]
    caller = f"{name}-caller"
    whole_cluster.apply(pod(caller, runtime_class="crun"))
    whole_cluster.wait_ready(caller)
    page = whole_cluster.kubectl(
        "exec", caller, "--", "wget", "-q", "-O", "-", f"http://{address}/"
    )
    assert "Stand-in for nginx" in page.stdout
    whole_cluster.kubectl("delete", "pod", caller, "--wait=false")


def test_a_restarted_agent_adopts_what_runs(whole_cluster: RunningCluster, name: str) -> None:
    whole_cluster.apply(pod(name))
    whole_cluster.wait_ready(name)
    before = _container(whole_cluster, name)
    whole_cluster.moor("down", "--keep-pods")
    whole_cluster.moor("up", "--detach")
    whole_cluster.wait_ready(name)
    after = _container(whole_cluster, name)
    for field in ("containerID", "restartCount", "state"):
        assert after[field] == before[field]


def test_output_without_end_of_hooks_and_probes_costs_their_pods_alone(
    whole_cluster: RunningCluster,
) -> None:
    flood = {"exec": {"command": ["sh", "-c", "head -c 17000000 /dev/zero; echo why >&2; exit 1"]}}
    floods = [
        pod(f"hook-{number}", container={"lifecycle": {"postStart": flood}}) for number in range(6)
    ]
    floods.append(pod("probe", container={"livenessProbe": {**flood, "periodSeconds": 1}}))
    names = [body["metadata"]["name"] for body in floods]
    agent = whole_cluster.part("node")
    try:
        whole_cluster.apply(*floods)

        def have_failed() -> bool:
            reasons = {
                (event["involvedObject"]["name"], event["reason"])
                for event in whole_cluster.get("events")["items"]
            }
            wanted = {(name, "FailedPostStartHook") for name in names[:-1]}
            return wanted | {("probe", "Unhealthy")} <= reasons

        until(have_failed, "every hook and probe has failed", within_s=90)
        whole_cluster.apply(pod("beside"))
        whole_cluster.wait_ready("beside")
        after = whole_cluster.part("node")
        assert (after["pid"], after["restarts"]) == (agent["pid"], agent["restarts"])
        status = Path(f"/proc/{agent['pid']}/status").read_text()
        (most_kib,) = [
            int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")
        ]
        assert most_kib < 200 * 1024
    finally:
        whole_cluster.remove("pod", *names, "beside")


def test_a_volume_follows_its_config_map(
    whole_cluster: RunningCluster, volumes: tuple[str, dict[str, str]]
) -> None:
    name, _ = volumes
    script = "cat /v/map/key"
    until(lambda: _read(whole_cluster, name, script) == "second", "the new value", within_s=90)
