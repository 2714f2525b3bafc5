"""Installations of runtimes on many nodes: which may change, and what each does. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum

import msgspec

from moorage.api.clock import format_time
from moorage.api.conditions import transitioned
from moorage.api.meta import Condition
from moorage.api.runtime_installations import (
    DEGRADED,
    FAILED,
    INSTALLED,
    PROGRESSING,
    READY,
    REMOVE,
    InstallationSource,
    NodeInstallation,
    RuntimeInstallation,
    RuntimeInstallationSpec,
    RuntimeInstallationStatus,
)
from moorage.api.text import counted

# Step of a node: what it does next about one RuntimeInstallation. Pure.
#
# A node keeps a record of what it installed for whom, so that it removes the runtime of an object
# that went while the node was away.


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


# Waves of an installation: which nodes may change now, and the status that says how far it is.
#
# Pure. A node keeps its place until it is done, so nodes that fail or vanish in the middle of their
# change use up `maxUnavailable`, and a version that does not work stops there.

PATIENCE = timedelta(minutes=5)
"""How long a deletion waits for a node that is not ready."""
_NAMED = 10


class TargetNode(msgspec.Struct, frozen=True):
    """A node of the cluster; `unready_since` is None for one that is ready."""

    facts: NodeFacts
    unready_since: datetime | None = None


class InstallationPlan(msgspec.Struct, frozen=True):
    """The status to write, without `nodes`, which are the nodes' own.

    `is_done`: an object that is being deleted waits for nothing more. `due`: when to look again.
    """

    status: RuntimeInstallationStatus
    is_done: bool = False
    due: datetime | None = None


def plan_waves(
    installation: RuntimeInstallation, nodes: Sequence[TargetNode], now: datetime
) -> InstallationPlan:
    """Return which nodes may change now, and how far the installation is."""
    spec, meta, before = installation.spec, installation.metadata, installation.status
    entries = {entry.name: entry for entry in before.nodes}
    known = {node.facts.name: node for node in nodes}
    is_ending = meta.deletion_timestamp is not None
    selected = [node for node in nodes if not is_ending and is_selected(spec, node.facts.labels)]
    unsupported = [
        node.facts.name for node in selected if source_of(spec, node.facts.architecture) is None
    ]
    names = {node.facts.name for node in selected}
    arriving = [
        name
        for name in sorted(names - set(unsupported))
        if not _is_installed(entries.get(name), meta.generation)
    ]
    leaving = sorted(name for name in entries if name in known and name not in names)
    changing = [*arriving, *leaving]
    limit = _limit(spec.max_unavailable, len(selected) + len(leaving))
    allowed = [name for name in before.allowed if name in changing]
    free = [name for name in changing if name not in allowed and known[name].unready_since is None]
    allowed += free[: max(0, limit - len(allowed))]
    failed = sorted({*unsupported, *(name for name in changing if _has_failed(entries.get(name)))})
    status = RuntimeInstallationStatus(
        observed_generation=meta.generation,
        desired=len(selected),
        installed=len(selected) - len(arriving) - len(unsupported),
        failed=len(failed),
        allowed=tuple(allowed),
        nodes=before.nodes,
    )
    conditions = _conditions(installation, status, changing, failed, unsupported, entries)
    status = msgspec.structs.replace(
        status, conditions=_stamped(conditions, before.conditions, meta.generation, now)
    )
    if not is_ending:
        return InstallationPlan(status)
    waited, due = _waited_for(leaving, known, now)
    return InstallationPlan(status, is_done=not waited, due=due)


def _limit(most: int | str, total: int) -> int:
    """Return how many nodes may change; a percentage is rounded up, and at least one may."""
    if isinstance(most, int):
        return max(1, most)
    return max(1, -(-int(most.removesuffix("%")) * total // 100))


def _is_installed(entry: NodeInstallation | None, generation: int) -> bool:
    return (
        entry is not None and entry.phase == INSTALLED and entry.observed_generation == generation
    )


def _has_failed(entry: NodeInstallation | None) -> bool:
    return entry is not None and entry.phase == FAILED


def _waited_for(
    leaving: Sequence[str], known: Mapping[str, TargetNode], now: datetime
) -> tuple[list[str], datetime | None]:
    """Return the nodes that a deletion waits for, and when it stops waiting for the next one."""
    waited, dues = [], []
    for name in leaving:
        since = known[name].unready_since
        if since is None:
            waited.append(name)
        elif since + PATIENCE > now:
            waited.append(name)
            dues.append(since + PATIENCE)
    return waited, min(dues, default=None)


def _conditions(
    installation: RuntimeInstallation,
    status: RuntimeInstallationStatus,
    changing: Sequence[str],
    failed: Sequence[str],
    unsupported: Sequence[str],
    entries: Mapping[str, NodeInstallation],
) -> dict[str, tuple[bool, str, str]]:
    """Return whether each condition holds, with its reason and message."""
    handler = installation.spec.handler
    in_all = f"{status.installed} of {status.desired} nodes have handler {handler}"
    is_ready = not changing and not unsupported
    left = [name for name in changing if name not in failed]
    ended = "NodesFailed" if failed else "Installed"
    said = [f"{name}: {_why(name, unsupported, entries)}" for name in failed[:_NAMED]]
    if len(failed) > _NAMED:
        said.append(f"and {len(failed) - _NAMED} more")
    return {
        READY: (is_ready, "Installed" if is_ready else "NotInstalled", in_all),
        PROGRESSING: (
            bool(left),
            "NodesChange" if left else ended,
            _left(len(left)) if left else in_all,
        ),
        DEGRADED: (bool(failed), "NodesFailed" if failed else "NoFailure", _sentence(said)),
    }


def _left(count: int) -> str:
    return f"{counted(count, 'node')} {'changes or waits' if count == 1 else 'change or wait'}"


def _why(name: str, unsupported: Sequence[str], entries: Mapping[str, NodeInstallation]) -> str:
    if name in unsupported:
        return "there is no source for its architecture"
    return entries[name].message


def _stamped(
    conditions: Mapping[str, tuple[bool, str, str]],
    before: Sequence[Condition],
    generation: int,
    now: datetime,
) -> tuple[Condition, ...]:
    return tuple(
        transitioned(
            before,
            type_,
            holds=holds,
            reason=reason,
            message=message,
            stamp=format_time(now),
            generation=generation,
        )
        for type_, (holds, reason, message) in conditions.items()
    )


def _sentence(said: Sequence[str]) -> str:
    return "; ".join(said) or "no node failed"
