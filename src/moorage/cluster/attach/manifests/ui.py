"""Web page among the objects of an attachment: a Deployment without rights, behind a Service.

Its account is bound to no role and its pods mount no token. Each request brings the token of who
looks, with which the page is read.
"""

from __future__ import annotations

from moorage.api.meta import Raw
from moorage.cluster.attach.manifests.identity import (
    UI,
    Obj,
    account,
    metadata,
    part_name,
    selector,
)
from moorage.cluster.attach.manifests.workloads import (
    ONE_MORE_FIRST,
    container,
    deployment,
    http_probe,
)
from moorage.cluster.attach.values import Values

PORT = 8080
SERVICE = part_name(UI)
_AUTHORITY = "/authority"
_AUTHORITY_MAP = "kube-root-ca.crt"
"""ConfigMap that each namespace has. Source: API docs "Service account token volume projection"."""


def objects(values: Values) -> list[Obj]:
    """Return the objects of the page; none if it is turned off."""
    if not values.ui.enabled:
        return []
    own_account = {**account(values, UI), "automountServiceAccountToken": False}
    return [own_account, _service(values), _deployment(values)]


def _deployment(values: Values) -> Obj:
    return deployment(
        values,
        UI,
        _container(values),
        replicas=1,
        strategy=ONE_MORE_FIRST,
        is_critical=False,
        automountServiceAccountToken=False,
        terminationGracePeriodSeconds=5,
        volumes=[{"name": "authority", "configMap": {"name": _AUTHORITY_MAP}}],
    )


def _container(values: Values) -> Raw:
    arguments = [
        "ui",
        "--in-cluster",
        f"--certificate-authority={_AUTHORITY}/ca.crt",
        f"--port={PORT}",
        f"--log-level={values.log_level}",
    ]
    return {
        **container(values, UI, values.ui.resources),
        "args": arguments,
        "ports": [{"name": "http", "containerPort": PORT}],
        "readinessProbe": http_probe("/readyz", PORT, period_s=10),
        "livenessProbe": http_probe("/livez", PORT, period_s=10),
        "volumeMounts": [{"name": "authority", "mountPath": _AUTHORITY, "readOnly": True}],
    }


def _service(values: Values) -> Obj:
    port = {"name": "http", "port": 80, "targetPort": PORT, "protocol": "TCP"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(SERVICE, UI, namespace=values.namespace),
        "spec": {"selector": selector(UI), "ports": [port]},
    }
