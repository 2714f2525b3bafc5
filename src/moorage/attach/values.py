"""Values of an attachment: what a user may choose of the objects that are installed.

The chart's values.yaml has the same fields under the same names, and its schema is made from these
types: descriptions and constraints stand here alone.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from moorage import __version__
from moorage.api.runtime_group import PROBE_NAMESPACE

DEFAULT_NAMESPACE = "moorage-system"
SYSTEM_NAMESPACE = "kube-system"
OWN: Literal["own"] = "own"
CERT_MANAGER: Literal["cert-manager"] = "cert-manager"

_LABEL_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_NamespaceName = Annotated[str, Meta(pattern=_LABEL_PATTERN, max_length=63)]
_AbsolutePath = Annotated[str, Meta(pattern=r"^/[^\s]*$", max_length=4096)]
# Without "$" where a value becomes an argument: a kubelet replaces $(NAME) in it.
_Replicas = Annotated[int, Meta(ge=1, le=9)]


class Amounts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Resources of a container, as its `resources` has them."""

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class _Values(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Base of the values: immutable, camelCase in files, unknown fields refused."""


class WebhookValues(_Values, frozen=True):
    """The admission webhook."""

    replicas: Annotated[_Replicas, Meta(description="Number of webhook pods.")] = 2
    failure_policy: Annotated[
        Literal["Fail", "Ignore"],
        Meta(
            description="What the API server does with a pod while no webhook pod answers: Fail "
            "refuses it, so that floors hold; Ignore admits it unchecked. kube-system, the "
            "namespace of these parts and excludedNamespaces are never concerned."
        ),
    ] = "Fail"
    resources: Annotated[Amounts, Meta(description="Resources of its container.")] = Amounts(
        requests={"cpu": "50m", "memory": "96Mi"}, limits={"memory": "256Mi"}
    )


class ControllersValues(_Values, frozen=True):
    """The controllers of runtime.moorage.dev."""

    replicas: Annotated[
        _Replicas, Meta(description="Number of controllers pods, of which one leads.")
    ] = 2
    create_classes: Annotated[
        bool,
        Meta(description="Create a RuntimeClass for each handler that works on some node."),
    ] = True
    resources: Annotated[Amounts, Meta(description="Resources of its container.")] = Amounts(
        requests={"cpu": "50m", "memory": "128Mi"}, limits={"memory": "512Mi"}
    )


class AgentValues(_Values, frozen=True):
    """The runtime agent, which runs on each node."""

    cri: Annotated[
        str,
        Meta(
            pattern=r"^(unix:///[^\s$]+)?$",
            description="CRI endpoint of the nodes' engine, unix:///path/to.sock; found by itself "
            "if empty.",
        ),
    ] = ""
    host_paths: Annotated[
        tuple[_AbsolutePath, ...],
        Meta(
            description="Further directories of the host that the agent sees, each at its own "
            "path: where runtimes or engine configurations are in unusual places. None that the "
            "agent's container has of its own, such as /tmp and /usr.",
            extra_json_schema={"uniqueItems": True},
        ),
    ] = ()
    restart_command: Annotated[
        str,
        Meta(
            pattern=r"^([^\s$][^$]*)?$",
            max_length=4096,
            description="Command of the host that has its service manager restart the engine; "
            "by default systemd restarts the engine's service.",
        ),
    ] = ""
    tolerations: Annotated[
        tuple[dict[str, Any], ...],
        Meta(description="Tolerations of the agent's pods; by default it runs on every node."),
    ] = msgspec.field(default_factory=lambda: ({"operator": "Exists"},))
    node_selector: Annotated[
        dict[str, str], Meta(description="Labels of the nodes that get an agent.")
    ] = msgspec.field(default_factory=lambda: {"kubernetes.io/os": "linux"})
    installs_runtimes: Annotated[
        bool,
        Meta(
            description="Follow RuntimeInstallations, for which the agent may write the engine's "
            "configuration and restart it. Without it the agent only looks."
        ),
    ] = True
    resources: Annotated[Amounts, Meta(description="Resources of its container.")] = Amounts(
        requests={"cpu": "10m", "memory": "64Mi"}, limits={"memory": "256Mi"}
    )


class SchedulerValues(_Values, frozen=True):
    """Our scheduler beside the cluster's own, for pods that name it."""

    enabled: Annotated[
        bool,
        Meta(
            description="Run our scheduler for pods with schedulerName moorage-scheduler, beside "
            "the cluster's own."
        ),
    ] = False
    resources: Annotated[Amounts, Meta(description="Resources of its container.")] = Amounts(
        requests={"cpu": "50m", "memory": "128Mi"}, limits={"memory": "512Mi"}
    )


class PageValues(_Values, frozen=True):
    """The web page, to be read with the token of who looks."""

    enabled: Annotated[
        bool,
        Meta(
            description="Serve the web page of runtimes behind the Service moorage-ui. It has no "
            "rights of its own."
        ),
    ] = True
    tls_secret: Annotated[
        str,
        Meta(
            pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$",
            max_length=253,
            description="Secret of the type kubernetes.io/tls in the namespace of the parts, with "
            "whose certificate the page is served; without one it is served by plain HTTP.",
        ),
    ] = ""
    resources: Annotated[Amounts, Meta(description="Resources of its container.")] = Amounts(
        requests={"cpu": "10m", "memory": "64Mi"}, limits={"memory": "256Mi"}
    )


class Values(_Values, frozen=True):
    """All choices. The default ones are those of `moor attach` without options."""

    image: Annotated[
        str, Meta(pattern=r"^[^\s$]+$", description="Image of all parts, with tag or digest.")
    ] = f"moorage.local/moorage:{__version__}"
    image_pull_policy: Annotated[
        Literal["Always", "IfNotPresent", "Never"],
        Meta(description="When nodes pull the image."),
    ] = "IfNotPresent"
    namespace: Annotated[_NamespaceName, Meta(description="Namespace of the parts.")] = (
        DEFAULT_NAMESPACE
    )
    create_namespace: Annotated[
        bool,
        Meta(description="Have the namespace among the objects, with its pod security labels."),
    ] = True
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Log level of all parts.")
    ] = "info"
    excluded_namespaces: Annotated[
        tuple[_NamespaceName, ...],
        Meta(
            description="Namespaces whose pods are left alone, besides kube-system and that of "
            "the parts."
        ),
    ] = ()
    certificates: Annotated[
        Literal["own", "cert-manager"],
        Meta(
            description="Where the webhook's certificate comes from: own is issued and rotated by "
            "our controllers, cert-manager by a cert-manager that the cluster has."
        ),
    ] = OWN
    webhook: WebhookValues = WebhookValues()
    controllers: ControllersValues = ControllersValues()
    agent: AgentValues = AgentValues()
    scheduler: SchedulerValues = SchedulerValues()
    ui: PageValues = PageValues()

    @property
    def unguarded_namespaces(self) -> tuple[str, ...]:
        """The namespaces that the webhook leaves alone: the system's, ours, the excluded ones."""
        ours = (self.namespace, PROBE_NAMESPACE)
        return (SYSTEM_NAMESPACE, *ours, *self.excluded_namespaces)
