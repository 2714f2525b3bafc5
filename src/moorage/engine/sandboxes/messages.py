"""Sandboxes in the CRI's words."""

from __future__ import annotations

from collections.abc import Iterable

from moorage.cri import pb
from moorage.engine.inventory import Sandbox
from moorage.engine.labels import has_labels


def sandbox_item(sandbox: Sandbox) -> pb.PodSandbox:
    """A sandbox as a list tells of it."""
    record, config = sandbox.record, sandbox.config
    return pb.PodSandbox(
        id=record.id,
        metadata=config.metadata,
        state=_state(sandbox),
        created_at=record.created_at_ns,
        labels=config.labels,
        annotations=config.annotations,
        runtime_handler=record.handler,
    )


def sandbox_status(sandbox: Sandbox) -> pb.PodSandboxStatus:
    """A sandbox as its status tells of it; no addresses on the host's network, or once stopped."""
    record, config = sandbox.record, sandbox.config
    addresses = record.attachment.addresses if record.attachment and record.is_ready else ()
    network = pb.PodSandboxNetworkStatus(
        ip=addresses[0] if addresses else "",
        additional_ips=[pb.PodIP(ip=each) for each in addresses[1:]],
    )
    return pb.PodSandboxStatus(
        id=record.id,
        metadata=config.metadata,
        state=_state(sandbox),
        created_at=record.created_at_ns,
        network=network,
        linux=pb.LinuxPodSandboxStatus(namespaces=pb.Namespace(options=sandbox.namespace_options)),
        labels=config.labels,
        annotations=config.annotations,
        runtime_handler=record.handler,
    )


def chosen_sandboxes(
    sandboxes: Iterable[Sandbox], wanted: pb.PodSandboxFilter
) -> Iterable[Sandbox]:
    """Those that a filter lets through; an id may be shortened."""
    for sandbox in sandboxes:
        if wanted.id and not sandbox.id.startswith(wanted.id):
            continue
        if wanted.HasField("state") and wanted.state.state != _state(sandbox):
            continue
        if has_labels(sandbox.config.labels, wanted.label_selector):
            yield sandbox


def _state(sandbox: Sandbox) -> pb.PodSandboxState.ValueType:
    return pb.SANDBOX_READY if sandbox.record.is_ready else pb.SANDBOX_NOTREADY
