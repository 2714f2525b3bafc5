"""Identities of a cluster: the certificate of each part and of the administrator.

Source: API docs "PKI certificates and requirements"; the names are those RBAC's default roles and
the node authorizer know.
"""

from __future__ import annotations

from datetime import UTC, datetime

from moorage.cluster.access.certificates import Authority, Subject
from moorage.cluster.layout import CLUSTER_DOMAIN, FRONT_PROXY_NAME, NODE_CLIENT_NAME, Layout
from moorage.cluster.settings import Settings

_SERVICE_NAMES = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    f"kubernetes.default.svc.{CLUSTER_DOMAIN}",
)

_LOOPBACK = ("localhost", "127.0.0.1")


def prepare(layout: Layout, settings: Settings, *, is_new: bool) -> None:
    """Issue every certificate that is missing, about to expire, or has other names.

    Creates a missing authority or signing key only if `is_new`.

    Raises AuthorityError for damaged files of the authority, LostKeyError for missing ones.
    """
    now = datetime.now(UTC)
    authority = Authority(layout.pki, now, is_new=is_new)
    for file_name, subject in _subjects(settings).items():
        authority.issue(file_name, subject)
    authority.signing_key()
    # Extension servers read the authority from a ConfigMap: a new one takes nothing from anyone.
    Authority(layout.front_proxy, now).issue("client", Subject(FRONT_PROXY_NAME))


def _subjects(settings: Settings) -> dict[str, Subject]:
    """Return the subject of each certificate by file name, as in `credentials.Credentials`."""
    node = f"system:node:{settings.node_name}"
    api_hosts = (*_SERVICE_NAMES, "localhost", *settings.api_addresses, settings.service_ip)
    node_hosts = (settings.node_name, settings.node_ip, "127.0.0.1")
    return {
        "apiserver": Subject("kube-apiserver", hosts=_unique(api_hosts)),
        "apiserver-node-client": Subject(NODE_CLIENT_NAME),
        "admin": Subject("kubernetes-admin", "system:masters"),
        "controllers": Subject("system:kube-controller-manager"),
        "scheduler": Subject("system:kube-scheduler"),
        "controllers-server": Subject("kube-controller-manager", hosts=_LOOPBACK),
        "scheduler-server": Subject("kube-scheduler", hosts=_LOOPBACK),
        "node": Subject(node, "system:nodes"),
        "node-server": Subject(node, "system:nodes", _unique(node_hosts)),
    }


def _unique(hosts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(hosts))
