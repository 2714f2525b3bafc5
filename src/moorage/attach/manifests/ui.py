"""Web page among the objects of an attachment: a Deployment without rights, behind a Service.

Its account is bound to no role and its pods mount no token. Each request brings the token of who
looks, with which the page is read. It is served by HTTPS with the certificate of `ui.tlsSecret`.
"""

from __future__ import annotations

from moorage.api.meta import Raw
from moorage.attach.manifests.identity import UI, Obj, account, metadata, part_name, selector
from moorage.attach.manifests.workloads import ONE_MORE_FIRST, container, deployment, http_probe
from moorage.attach.values import Values

PORT = 8080
SERVICE = part_name(UI)
_AUTHORITY, _CERTIFICATES = "/authority", "/certificates"
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
        volumes=[
            {"name": "authority", "configMap": {"name": _AUTHORITY_MAP}},
            *_certificate_volumes(values),
        ],
    )


def _certificate_volumes(values: Values) -> list[Raw]:
    if not values.ui.tls_secret:
        return []
    return [{"name": "certificates", "secret": {"secretName": values.ui.tls_secret}}]


def _container(values: Values) -> Raw:
    arguments = [
        "ui",
        "--in-cluster",
        f"--certificate-authority={_AUTHORITY}/ca.crt",
        f"--port={PORT}",
        f"--log-level={values.log_level}",
    ]
    mounts = [{"name": "authority", "mountPath": _AUTHORITY, "readOnly": True}]
    scheme = "HTTP"
    if values.ui.tls_secret:
        arguments += [
            f"--tls-cert-file={_CERTIFICATES}/tls.crt",
            f"--tls-private-key-file={_CERTIFICATES}/tls.key",
        ]
        mounts.append({"name": "certificates", "mountPath": _CERTIFICATES, "readOnly": True})
        scheme = "HTTPS"
    return {
        **container(values, UI, values.ui.resources),
        "args": arguments,
        "ports": [{"name": scheme.lower(), "containerPort": PORT}],
        "readinessProbe": http_probe("/readyz", PORT, scheme=scheme, period_s=10),
        "livenessProbe": http_probe("/livez", PORT, scheme=scheme, period_s=10),
        "volumeMounts": mounts,
    }


def _service(values: Values) -> Obj:
    name, number = ("https", 443) if values.ui.tls_secret else ("http", 80)
    port = {"name": name, "port": number, "targetPort": PORT, "protocol": "TCP"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(SERVICE, UI, namespace=values.namespace),
        "spec": {"selector": selector(UI), "ports": [port]},
    }
