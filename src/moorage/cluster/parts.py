"""What each process of a cluster runs.

Imports happen inside the functions, so that a process carries only its own part's code.
"""

from __future__ import annotations

from datetime import UTC, datetime

from moorage.api.logs import Log
from moorage.cluster.certificates import Authority, Pair, Subject
from moorage.cluster.layout import Layout
from moorage.cluster.settings import Settings

CLUSTER_DOMAIN = "cluster.local"
ISSUER = f"https://kubernetes.default.svc.{CLUSTER_DOMAIN}"
NODE_CLIENT_NAME = "kube-apiserver-kubelet-client"
_API_WAIT_S = 30.0
_API_POLL_S = 0.02

log = Log(__name__)


class Identities:
    """The certificates of a cluster's parts, made when first asked for."""

    def __init__(self, layout: Layout, settings: Settings) -> None:
        self._authority = Authority(layout.pki, datetime.now(UTC))
        self._settings = settings

    @property
    def authority(self) -> Pair:
        return self._authority.pair

    @property
    def signing_key(self):  # type: ignore[no-untyped-def]
        return self._authority.signing_key()

    def api_server(self) -> Pair:
        settings = self._settings
        names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc",
                 f"kubernetes.default.svc.{CLUSTER_DOMAIN}", "localhost")  # fmt: skip
        hosts = (*names, "127.0.0.1", settings.gateway, settings.service_ip)
        return self._authority.issue("apiserver", Subject("kube-apiserver", hosts=hosts))

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
        return self._authority.issue(
            "node-server", Subject(f"system:node:{settings.node_name}", "system:nodes", hosts)
        )

    def node_client(self) -> Pair:
        """What the API server shows to node agents."""
        return self._authority.issue("apiserver-node-client", Subject(NODE_CLIENT_NAME))
