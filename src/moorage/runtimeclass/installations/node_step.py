"""Step of a node: what it does next about one RuntimeInstallation. Pure.

A node keeps a record of what it installed for whom, so that it removes the runtime of an object
that went while the node was away.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import Enum

import msgspec

from moorage.api.runtime_installations import (
    REMOVE,
    InstallationSource,
    RuntimeInstallation,
    RuntimeInstallationSpec,
)


class Step(Enum):
    """What a node does next.

    NOTHING: it has no part in it. WAIT: until the controller allows it to change. REPORT: it has
    what it is to have. FORGET: it leaves the handler as it is, and its record goes.
    """

    NOTHING = "nothing"
    WAIT = "wait"
    REPORT = "report"
    INSTALL = "install"
    REMOVE = "remove"
    FORGET = "forget"
    UNSUPPORTED = "unsupported"


class NodeFacts(msgspec.Struct, frozen=True):
    """A node, as an installation selects it."""

    name: str
    labels: Mapping[str, str]
    architecture: str


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What a node installed: for which object, as which handler, and from what.

    `digest` is that of `source_digest`, empty while it is not complete. `removal_policy` counts
    when the object is gone.
    """

    uid: str
    handler: str
    digest: str = ""
    version: str = ""
    program: str = ""
    removal_policy: str = REMOVE


def source_of(spec: RuntimeInstallationSpec, architecture: str) -> InstallationSource | None:
    """Return the source for an architecture, None without one."""
    return next((one for one in spec.sources if one.architecture == architecture), None)


def source_digest(spec: RuntimeInstallationSpec, architecture: str) -> str:
    """Return a digest of all that decides what a node of an architecture installs."""
    wanted = (spec.handler, spec.adapter, spec.options, source_of(spec, architecture))
    return hashlib.sha256(msgspec.json.encode(wanted, order="sorted")).hexdigest()


def is_selected(spec: RuntimeInstallationSpec, labels: Mapping[str, str]) -> bool:
    """Return whether a node with these labels is to have the runtime."""
    return all(labels.get(key) == value for key, value in spec.node_selector.items())


def next_step(
    installation: RuntimeInstallation | None, record: Record | None, node: NodeFacts
) -> Step:
    """Return a node's next action for an object, None if that is gone."""
    if installation is None or (record is not None and record.uid != installation.metadata.uid):
        # The object is gone, perhaps replaced by another of its name.
        if record is None:
            return Step.NOTHING
        return Step.REMOVE if record.removal_policy == REMOVE else Step.FORGET
    spec, status, meta = installation.spec, installation.status, installation.metadata
    is_wanted = meta.deletion_timestamp is None and is_selected(spec, node.labels)
    if not is_wanted:
        if record is None:
            has_entry = any(entry.name == node.name for entry in status.nodes)
            return Step.FORGET if has_entry else Step.NOTHING
        if spec.removal_policy != REMOVE:
            return Step.FORGET
        return Step.REMOVE if node.name in status.allowed else Step.WAIT
    if source_of(spec, node.architecture) is None:
        return Step.UNSUPPORTED
    if record is not None and record.digest == source_digest(spec, node.architecture):
        return Step.REPORT
    is_allowed = status.observed_generation == meta.generation and node.name in status.allowed
    return Step.INSTALL if is_allowed else Step.WAIT
