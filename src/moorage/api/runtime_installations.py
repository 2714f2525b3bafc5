"""RuntimeInstallations: a runtime that nodes of a cluster are to have, and how far each is.

Cluster-scoped. The specification is the administrator's; `status.nodes` has an entry for each node,
which that node writes by server-side apply, and all else of the status is the controller's.
"""

from __future__ import annotations

import hashlib

from moorage.api.meta import Condition, Object, ObjectMeta
from moorage.api.runtime_group import GROUP

FINALIZER = f"{GROUP}/installation"
"""Finalizer of an installation, until no living node has its runtime."""

INSTALLING, INSTALLED = "Installing", "Installed"
FAILED, REMOVING = "Failed", "Removing"

READY = "Ready"
"""Condition: whether all nodes that are selected have the runtime, and no others."""
PROGRESSING = "Progressing"
"""Condition: whether there are nodes that still change."""
DEGRADED = "Degraded"
"""Condition: whether there are nodes that cannot have the runtime; its message names some."""

REMOVE, RETAIN = "Remove", "Retain"


_MANAGER = "moorage-node-"
_MANAGER_LIMIT = 128
"""Length of a field manager's name. Source: API docs, `fieldManager`."""


def node_manager(node: str) -> str:
    """Return the field manager of a node's entries, another one for each node."""
    name = f"{_MANAGER}{node}"
    if len(name) <= _MANAGER_LIMIT:
        return name
    return f"{_MANAGER}sha256:{hashlib.sha256(node.encode()).hexdigest()}"


class InstallationSource(Object, frozen=True):
    """Where a runtime comes from on one architecture: one of `path`, `url` and `package`.

    path: a file on the node; with sha256, hexadecimal. url: http or https; the same.
    package: a Debian package, installed by apt-get.
    program: the runtime's path in an archive or of a package; empty for a binary.
    version: what people call it.
    """

    architecture: str = ""
    version: str = ""
    path: str = ""
    url: str = ""
    package: str = ""
    sha256: str = ""
    program: str = ""


class RuntimeInstallationSpec(Object, frozen=True):
    """`adapter` and `options` are those of a handler file; `max_unavailable` counts nodes.

    removal_policy: whether a node's handler goes with the object, or when it is not selected.
    """

    handler: str = ""
    adapter: str = ""
    options: dict[str, str] = {}
    sources: tuple[InstallationSource, ...] = ()
    node_selector: dict[str, str] = {}
    max_unavailable: int | str = 1
    removal_policy: str = REMOVE


class NodeInstallation(Object, frozen=True):
    """What a node says: `observed_generation` is that of the specification that it followed.

    version: what is installed. program: the path of its program. since: when the phase began.
    """

    name: str = ""
    phase: str = ""
    observed_generation: int = 0
    version: str = ""
    program: str = ""
    message: str = ""
    since: str | None = None


class RuntimeInstallationStatus(Object, frozen=True):
    """`allowed` are the nodes that may change now; a node keeps its place until it is done."""

    observed_generation: int = 0
    desired: int = 0
    installed: int = 0
    failed: int = 0
    allowed: tuple[str, ...] = ()
    nodes: tuple[NodeInstallation, ...] = ()
    conditions: tuple[Condition, ...] = ()


class RuntimeInstallation(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: RuntimeInstallationSpec = RuntimeInstallationSpec()
    status: RuntimeInstallationStatus = RuntimeInstallationStatus()
