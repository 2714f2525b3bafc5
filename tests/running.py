"""Real clusters for tests: started and stopped by `Cluster`, used through kubectl and `moor`."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from http import HTTPStatus
from http.client import HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from moorage.api.runtime_group import GROUP, VERSION
from moorage.cluster import Choices, Cluster
from moorage.cluster.layout import Layout
from moorage.wire.client.config import load_kubeconfig
from tests.forks import run_moor
from tests.ports import free_port

MOOR = (sys.executable, "-m", "moorage.cli")
BUSYBOX = "moorage.local/busybox:1"
NGINX_STAND_IN = "moorage.local/nginx-stand-in:1"
EXAMPLES = Path(__file__).parents[1] / "examples"
KUBECTL_COLLECTS_LESS = {"GOGC": "800"}
"""Environment of kubectl: collecting garbage takes a sixth of the processor time of most starts."""
_TIMEOUT_S = 90.0
_READY_S = 60.0
_NEEDED = ("conmon", "skopeo", "runc", "crun", "ip")


_GROUP = f"/apis/{GROUP}/{VERSION}"
_STORAGE = "/apis/storage.k8s.io/v1"
_NAMESPACED = {
    **dict.fromkeys(("pod", "pods"), "/api/v1/namespaces/{}/pods"),
    "events": "/api/v1/namespaces/{}/events",
    "pvc": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "quota": "/api/v1/namespaces/{}/resourcequotas",
    "rc": "/api/v1/namespaces/{}/replicationcontrollers",
    "secret": "/api/v1/namespaces/{}/secrets",
    **dict.fromkeys(("configmap", "configmaps"), "/api/v1/namespaces/{}/configmaps"),
    **dict.fromkeys(("deployment", "deployments"), "/apis/apps/v1/namespaces/{}/deployments"),
    "replicasets": "/apis/apps/v1/namespaces/{}/replicasets",
    "statefulset": "/apis/apps/v1/namespaces/{}/statefulsets",
    "hpa": "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers",
    **dict.fromkeys(("job", "jobs"), "/apis/batch/v1/namespaces/{}/jobs"),
    "pdb": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
}
_CLUSTER_WIDE = {
    "namespace": "/api/v1/namespaces",
    **dict.fromkeys(("node", "nodes"), "/api/v1/nodes"),
    "pv": "/api/v1/persistentvolumes",
    **dict.fromkeys(("runtimeclass", "runtimeclasses"), "/apis/node.k8s.io/v1/runtimeclasses"),
    "rti": f"{_GROUP}/runtimeinstallations",
    "runtimerollout": f"{_GROUP}/runtimerollouts",
    "csidriver": f"{_STORAGE}/csidrivers",
    "csinode": f"{_STORAGE}/csinodes",
    "sc": f"{_STORAGE}/storageclasses",
    "vac": f"{_STORAGE}/volumeattributesclasses",
    "volumeattachment": f"{_STORAGE}/volumeattachments",
}
_SELECTORS = {"-l": "labelSelector", "--field-selector": "fieldSelector"}


_COLLECTIONS = {
    ("v1", "Pod"): "/api/v1/namespaces/{}/pods",
    ("v1", "ConfigMap"): "/api/v1/namespaces/{}/configmaps",
    ("v1", "Secret"): "/api/v1/namespaces/{}/secrets",
    ("v1", "Service"): "/api/v1/namespaces/{}/services",
    ("v1", "PersistentVolumeClaim"): "/api/v1/namespaces/{}/persistentvolumeclaims",
    ("v1", "Namespace"): "/api/v1/namespaces",
    ("apps/v1", "Deployment"): "/apis/apps/v1/namespaces/{}/deployments",
    ("batch/v1", "Job"): "/apis/batch/v1/namespaces/{}/jobs",
    ("node.k8s.io/v1", "RuntimeClass"): "/apis/node.k8s.io/v1/runtimeclasses",
}
"""Where objects that most tests apply are created, by apiVersion and kind."""
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def _path_of(*arguments: str) -> str | None:
    """The path of what `kubectl get` reads, one object or a namespace's; None for others."""
    kind, *names = arguments
    namespace = _taken(names, "-n") or "default"
    query = {key: value for flag, key in _SELECTORS.items() if (value := _taken(names, flag))}
    collection = _CLUSTER_WIDE.get(kind) or _NAMESPACED.get(kind)
    if collection is None or len(names) > 1 or any(name.startswith("-") for name in names):
        return None
    path = "/".join((collection.format(namespace), *names))
    return f"{path}?{urlencode(query)}" if query else path


def _taken(arguments: list[str], flag: str) -> str:
    """Take a flag and its value out of arguments; return the value, empty without the flag."""
    if flag not in arguments:
        return ""
    at = arguments.index(flag)
    value = arguments[at + 1]
    del arguments[at : at + 2]
    return value


@dataclass(frozen=True)
class RunningCluster:
    """A cluster that is up, by its data directory."""

    data_dir: Path

    @property
    def kubeconfig(self) -> Path:
        return self.data_dir / "kubeconfig"

    def kubectl(
        self, *arguments: str, stdin: str | None = None, fails: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl to its end; it must succeed, or fail when `fails`."""
        done = subprocess.run(
            ["kubectl", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env=self.environment,
            check=False,
        )
        assert (done.returncode != 0) == fails, f"kubectl {arguments}: {done.stdout}{done.stderr}"
        return done

    def get(self, *arguments: str) -> Any:
        """What `kubectl get -o json` says.

        The kinds that most tests poll are read without kubectl, of which each start takes 80 ms of
        processor time.
        """
        path = _path_of(*arguments)
        if path is not None:
            return _as_shown(self._read(path))
        return json.loads(self.kubectl("get", *arguments, "-o", "json").stdout)

    def _read(self, path: str) -> Any:
        with self._requested("GET", path) as answer:
            body = answer.read()
        assert answer.status == HTTPStatus.OK, f"GET {path}: {body!r}"
        return json.loads(body)

    @contextmanager
    def _requested(
        self, method: str, path: str, document: dict[str, Any] | None = None
    ) -> Iterator[HTTPResponse]:
        """Send a request; yield its answer, whose body is read in the context."""
        body = None if document is None else json.dumps(document)
        with closing(_connection_to(self.kubeconfig)) as connection:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            with connection.getresponse() as answer:
                yield answer

    def apply(self, *documents: dict[str, Any]) -> None:
        """Apply objects as kubectl does.

        New ones of the kinds that most tests apply are created without it, by its own request.
        """
        rest = list(documents)
        while rest and self._create(rest[0]):
            del rest[0]
        if rest:
            listed = {"apiVersion": "v1", "kind": "List", "items": rest}
            self.kubectl("apply", "-f", "-", stdin=json.dumps(listed))

    def _create(self, document: dict[str, Any]) -> bool:
        """Create an object as `kubectl apply` does. Return False if that is not for this to do."""
        collection = _COLLECTIONS.get((document["apiVersion"], document["kind"]))
        if collection is None:
            return False
        metadata = document["metadata"]
        annotations = metadata.get("annotations", {})
        namespace = metadata.get("namespace", "default")
        applied = document | {"metadata": {**metadata, "annotations": annotations}}
        if "{}" in collection:
            applied["metadata"]["namespace"] = namespace
        text = json.dumps(applied, separators=(",", ":"), sort_keys=True) + "\n"
        applied["metadata"] |= {"annotations": {**annotations, _LAST_APPLIED: text}}
        query = "?fieldManager=kubectl-client-side-apply&fieldValidation=Strict"
        with self._requested("POST", collection.format(namespace) + query, applied) as answer:
            body = answer.read()
        if answer.status == HTTPStatus.CONFLICT:
            return False
        assert answer.status == HTTPStatus.CREATED, f"POST {collection}: {body!r}"
        return True

    def create_namespace(self, name: str) -> None:
        """Create a namespace that can have pods: they are refused until it has its account."""
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        path = f"/api/v1/namespaces/{name}/serviceaccounts/default"

        def has_account() -> bool:
            with self._requested("GET", path) as answer:
                answer.read()
            return answer.status == HTTPStatus.OK

        until(has_account, f"the account of namespace {name}")

    def remove(self, kinds: str, *names: str) -> None:
        """Delete objects as `kubectl delete --ignore-not-found --wait=false` does, without it."""
        for kind in kinds.split(","):
            for name in names:
                path = _path_of(kind, name)
                assert path is not None, f"no path of {kind}: add it to the tables above"
                options = {"propagationPolicy": "Background"}
                with self._requested("DELETE", path, options) as answer:
                    body = answer.read()
                expected = (HTTPStatus.OK, HTTPStatus.ACCEPTED, HTTPStatus.NOT_FOUND)
                assert answer.status in expected, f"DELETE {path}: {body!r}"

    def part(self, name: str) -> dict[str, Any]:
        """How a part of the cluster is: `pid`, `state`, `restarts` and so on."""
        return asdict(next(part for part in Cluster(self.data_dir).parts if part.part == name))

    def moor(
        self, *arguments: str, status: int = 0, timeout_s: float = _TIMEOUT_S
    ) -> subprocess.CompletedProcess[str]:
        """Run moor on this cluster; it must end with that exit status."""
        done = run_moor(*arguments, "--data-dir", str(self.data_dir), timeout_s=timeout_s)
        assert done.returncode == status, f"moor {arguments}: {done.stdout}{done.stderr}"
        return done

    @property
    def environment(self) -> dict[str, str]:
        """Of processes that shall reach the cluster; kubectl's caches stay out of the home."""
        return {
            **os.environ,
            **KUBECTL_COLLECTS_LESS,
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(self.data_dir / "kubectl-cache"),
        }

    def wait_ready(self, *pods: str, namespace: str = "default") -> None:
        """Wait until pods, which are there, are ready."""
        deadline = time.monotonic() + _READY_S
        for name in pods:
            self._wait_ready(f"/api/v1/namespaces/{namespace}/pods", name, deadline)

    def _wait_ready(self, collection: str, name: str, deadline: float) -> None:
        seen = self._read(f"{collection}/{name}")
        while not _is_ready(seen):
            left_s = deadline - time.monotonic()
            assert left_s > 0, f"pod {name} is not ready: {json.dumps(seen['status'])}"
            query = urlencode({
                "watch": 1, "fieldSelector": f"metadata.name={name}",
                "resourceVersion": seen["metadata"]["resourceVersion"],
                "timeoutSeconds": max(int(left_s), 1),
            })  # fmt: skip
            with self._requested("GET", f"{collection}?{query}") as answer:
                for line in answer:
                    event = json.loads(line)
                    assert event["type"] == "MODIFIED", f"pod {name}: {event}"
                    seen = event["object"]
                    if _is_ready(seen):
                        return


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _as_shown(answer: dict[str, Any]) -> dict[str, Any]:
    """An object or a list as kubectl prints it."""
    if "items" not in answer:
        answer["metadata"].pop("managedFields", None)
        return answer
    of_each = {"apiVersion": answer["apiVersion"], "kind": answer["kind"].removesuffix("List")}
    items = [_as_shown(of_each | item) for item in answer["items"]]
    return {"apiVersion": "v1", "kind": "List", "items": items, "metadata": {"resourceVersion": ""}}


def _connection_to(kubeconfig: Path) -> HTTPSConnection:
    """A connection to the API server of a kubeconfig, with its user's certificate."""
    host, port, context = _endpoint(kubeconfig, kubeconfig.stat().st_mtime_ns)
    return HTTPSConnection(host, port, context=context, timeout=_TIMEOUT_S)


@cache
def _endpoint(kubeconfig: Path, written_ns: int) -> tuple[str, int, ssl.SSLContext]:
    del written_ns
    config = load_kubeconfig(kubeconfig)
    server, context = urlsplit(config.server), config.ssl_context()
    assert server.hostname is not None
    assert server.port is not None
    assert context is not None
    return server.hostname, server.port, context


@contextmanager
def running(data_dir: Path, **choices: Any) -> Iterator[RunningCluster]:
    """A cluster started with these `Choices`, gone at the end with all it had.

    Its ports are its own even while it is down: those that clusters choose by themselves may be
    another's by then.
    """
    if not Layout(data_dir).settings.exists():
        choices.setdefault("api_port", free_port())
        if choices.get("has_node", True):
            choices.setdefault("node_port", free_port())
    with Cluster(data_dir, Choices(**choices)) as cluster:
        yield RunningCluster(data_dir)
    cluster.delete()


def skip_without_kubectl() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")


def skip_without_runtimes() -> None:
    if os.geteuid() != 0:
        pytest.skip("pods need root")
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: `moor up --install` brings them")


def has_gvisor() -> bool:
    return shutil.which("runsc") is not None


def skip_without_gvisor() -> None:
    if not has_gvisor():
        pytest.skip("runsc is not installed: `moor doctor --install` brings it")


def newer_runsc() -> Path | None:
    """A runsc newer than the system's: of MOORAGE_RUNSC, or as `make peers` leaves it."""
    named = os.environ.get("MOORAGE_RUNSC")
    program = Path(named or Path.home() / ".cache" / "moorage" / "peers" / "bin" / "runsc")
    return program if os.access(program, os.X_OK) else None


def until(condition: Callable[[], bool], description: str, within_s: float = 30.0) -> None:
    """Poll until `condition` is true: for conditions that send no notification.

    Most of them start a program, so that the pauses become longer: to a second.
    """
    deadline = time.monotonic() + within_s
    pause_s = 0.1
    while not condition():
        assert time.monotonic() < deadline, f"{description} not within {within_s:g} s"
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, 1.0)


def pod(name: str, *, runtime_class: str = "", **spec: Any) -> dict[str, Any]:
    """A pod of one container that sleeps, unless its spec says otherwise."""
    container = {"name": "app", "image": BUSYBOX, "command": ["sleep", "3600"]}
    container |= spec.pop("container", {})
    body: dict[str, Any] = {
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
        **spec,
    }
    if runtime_class:
        body["runtimeClassName"] = runtime_class
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body}


def runtime_class(name: str, handler: str, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name},
        "handler": handler,
        **more,
    }
