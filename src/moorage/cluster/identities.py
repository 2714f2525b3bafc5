"""Who is who in a cluster: the certificate of each part and of its administrator.

Source: API docs "PKI certificates and requirements"; the names are those RBAC's default roles and
the node authorizer know.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from moorage.cluster.certificates import Authority, Pair, Subject
from moorage.cluster.layout import Layout
from moorage.cluster.settings import Settings

CLUSTER_DOMAIN = "cluster.local"
ISSUER = f"https://kubernetes.default.svc.{CLUSTER_DOMAIN}"
NODE_CLIENT_NAME = "kube-apiserver-kubelet-client"

_SERVICE_NAMES = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    f"kubernetes.default.svc.{CLUSTER_DOMAIN}",
)


class Identities:
    """The certificates of a cluster, made when first asked for, renewed when they have to be."""

    def __init__(self, layout: Layout, settings: Settings) -> None:
        self._authority = Authority(layout.pki, datetime.now(UTC))
        self._settings = settings

    @property
    def authority(self) -> Pair:
        return self._authority.pair

    @property
    def signing_key(self) -> Path:
        """What service account tokens are signed with."""
        return self._authority.signing_key()

    def api_server(self) -> Pair:
        settings = self._settings
        hosts = (*_SERVICE_NAMES, "localhost", *settings.api_addresses, settings.service_ip)
        subject = Subject("kube-apiserver", hosts=tuple(dict.fromkeys(hosts)))
        return self._authority.issue("apiserver", subject)

    def admin(self) -> Pair:
        return self._authority.issue("admin", Subject("kubernetes-admin", "system:masters"))

    def controllers(self) -> Pair:
        return self._authority.issue("controllers", Subject("system:kube-controller-manager"))

    def scheduler(self) -> Pair:
        return self._authority.issue("scheduler", Subject("system:kube-scheduler"))

    def node(self) -> Pair:
        name = self._settings.node_name
        return self._authority.issue("node", Subject(f"system:node:{name}", "system:nodes"))

    def node_server(self) -> Pair:
        settings = self._settings
        hosts = tuple(dict.fromkeys((settings.node_name, settings.node_ip, "127.0.0.1")))
        subject = Subject(f"system:node:{settings.node_name}", "system:nodes", hosts)
        return self._authority.issue("node-server", subject)

    def node_client(self) -> Pair:
        """What the API server shows to node agents."""
        return self._authority.issue("apiserver-node-client", Subject(NODE_CLIENT_NAME))

    def prepare(self) -> None:
        """Make whatever is missing now, so that parts that start together only read."""
        for make in (
            self.api_server, self.admin, self.controllers, self.scheduler, self.node,
            self.node_server, self.node_client,
        ):  # fmt: skip
            make()
        self._authority.signing_key()
