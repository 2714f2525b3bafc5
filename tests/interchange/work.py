"""Work for a cluster with parts of any origin: made, looked at from all sides, and taken away."""

from __future__ import annotations

from typing import Any

from tests.running import BUSYBOX, RunningCluster, pod, runtime_class, until

NAMESPACE = "interchange"
_WITHIN_S = 80.0
# Not 0, which takes a pod from the API before its node has cleaned up.
_GRACE_S = 1
_SERVER = "mkdir /www; echo page > /www/index.html; httpd -p 8080 -h /www; echo up; sleep 3600"


def _template(labels: dict[str, str], **container: Any) -> dict[str, Any]:
    body = {"name": "app", "image": BUSYBOX, **container}
    spec = {"terminationGracePeriodSeconds": _GRACE_S, "containers": [body]}
    return {"metadata": {"labels": labels}, "spec": spec}


def _workload(kind: str, name: str, template: dict[str, Any], **spec: Any) -> dict[str, Any]:
    labels = template["metadata"]["labels"]
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **spec},
    }


def _deployment() -> dict[str, Any]:
    probe = {"httpGet": {"path": "/index.html", "port": 8080}, "periodSeconds": 1}
    variable = {"name": "GREETING", "valueFrom": {"configMapKeyRef": {"name": "s", "key": "word"}}}
    template = _template(
        {"app": "web"}, command=["sh", "-c", _SERVER], readinessProbe=probe, env=[variable],
        volumeMounts=[{"name": "s", "mountPath": "/settings"}],
    )  # fmt: skip
    template["spec"]["volumes"] = [{"name": "s", "configMap": {"name": "s"}}]
    return _workload("Deployment", "web", template, replicas=2)


def _stateful_set() -> dict[str, Any]:
    template = _template(
        {"app": "db"}, command=["sh", "-c", "echo kept > /data/f; sleep 3600"],
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
    )  # fmt: skip
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "16Mi"}},
        },
    }
    return _workload(
        "StatefulSet", "db", template, replicas=1, serviceName="db", volumeClaimTemplates=[claim]
    )


def _job() -> dict[str, Any]:
    template = _template({"app": "sum"}, command=["true"])
    template["spec"]["restartPolicy"] = "Never"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "sum", "namespace": NAMESPACE},
        "spec": {"completions": 3, "parallelism": 2, "template": template},
    }


def do_work(cluster: RunningCluster, *, has_volumes: bool, has_classes: bool) -> None:
    """Run workloads of several kinds to their end.

    `has_volumes`: the node provides volumes of claims; `has_classes`: there are RuntimeClasses.
    """
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    settings = {
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"word": "hello"},
        "metadata": {"name": "s", "namespace": NAMESPACE},
    }  # fmt: skip
    # Builds of one distribution's kube-apiserver project this one into every pod.
    projected = {
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"service-ca.crt": ""},
        "metadata": {"name": "openshift-service-ca.crt", "namespace": NAMESPACE},
    }  # fmt: skip
    cluster.apply(namespace, settings, projected)
    account = ("serviceaccount", "default", "-n", NAMESPACE)
    until(lambda: _exists(cluster, *account), "the namespace's account", _WITHIN_S)
    if not has_classes:
        cluster.apply(runtime_class("runc", "runc"), runtime_class("crun", "crun"))
    grace = {"terminationGracePeriodSeconds": _GRACE_S}
    classed = [pod(name, runtime_class=name, **grace) for name in ("runc", "crun")]
    for one in classed:
        one["metadata"]["namespace"] = NAMESPACE
    volumes = [_stateful_set()] if has_volumes else []
    cluster.apply(_deployment(), _job(), *classed, *volumes)
    in_time = f"--timeout={_WITHIN_S:g}s"
    there = ("-n", NAMESPACE)
    for name in ("deployment/web", *(("statefulset/db",) if has_volumes else ())):
        cluster.kubectl("rollout", "status", name, *there, in_time)
    try:
        cluster.kubectl("wait", "--for=condition=Complete", "job/sum", *there, in_time)
    except AssertionError:
        print(cluster.kubectl("get", "pods,jobs", "-o", "yaml", *there).stdout)
        raise
    cluster.kubectl("wait", "--for=condition=Ready", "pod/runc", "pod/crun", *there, in_time)
    look_into(cluster)
    cluster.kubectl("scale", "deployment/web", "--replicas=1", *there)
    cluster.kubectl("delete", "namespace", NAMESPACE, in_time)


def look_into(cluster: RunningCluster) -> None:
    """Read a pod's log and its volume, start a command in it, and reach its port."""
    there = ("-n", NAMESPACE)
    assert cluster.kubectl("logs", "deployment/web", *there).stdout == "up\n"
    account = "/var/run/secrets/kubernetes.io/serviceaccount"
    shell = f'echo "$GREETING $(cat /settings/word)" $(ls {account})'
    said = cluster.kubectl("exec", "deployment/web", *there, "--", "sh", "-c", shell).stdout.split()
    assert said[:2] == ["hello", "hello"]
    assert {"ca.crt", "namespace", "token"} <= set(said)
    items = cluster.get("pods", "-l", "app=web", *there)["items"]
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{items[0]['metadata']['name']}:8080/proxy/"
    assert cluster.kubectl("get", "--raw", f"{path}index.html").stdout == "page\n"


def _exists(cluster: RunningCluster, *arguments: str) -> bool:
    return bool(cluster.kubectl("get", *arguments, "--ignore-not-found", "-o", "name").stdout)
