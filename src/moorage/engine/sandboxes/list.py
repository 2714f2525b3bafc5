"""ListPodSandbox: the sandboxes that match a filter. Also StreamPodSandboxes.

Source: CRI `PodSandboxFilter`: an id prefix, a state, labels; all must match.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from moorage.engine.inventory import Sandbox
from moorage.engine.labels import has_labels
from moorage.engine.messages import sandbox_item, sandbox_state
from moorage.wire.cri import pb


def list_pod_sandboxes(
    sandboxes: Iterable[Sandbox], sandbox_filter: pb.PodSandboxFilter
) -> list[pb.PodSandbox]:
    """Return the items of the sandboxes that match the filter."""
    return [sandbox_item(match) for match in filter_sandboxes(sandboxes, sandbox_filter)]


def filter_sandboxes(
    sandboxes: Iterable[Sandbox], sandbox_filter: pb.PodSandboxFilter
) -> Iterator[Sandbox]:
    """Yield the sandboxes that match the filter."""
    for sandbox in sandboxes:
        if sandbox_filter.id and not sandbox.id.startswith(sandbox_filter.id):
            continue
        has_state = sandbox_filter.HasField("state")
        if has_state and sandbox_filter.state.state != sandbox_state(sandbox):
            continue
        if has_labels(sandbox.config.labels, sandbox_filter.label_selector):
            yield sandbox
