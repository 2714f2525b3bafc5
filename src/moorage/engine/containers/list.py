"""ListContainers: the containers that match a filter. Also StreamContainers.

Source: CRI `ContainerFilter`: an id prefix, a state, a sandbox id prefix, labels; all must match.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from moorage.engine.inventory import Container
from moorage.engine.labels import has_labels
from moorage.engine.messages import container_item, container_state
from moorage.wire.cri import pb


def list_containers(
    containers: Iterable[Container], container_filter: pb.ContainerFilter
) -> list[pb.Container]:
    """Return the items of the containers that match the filter."""
    return [container_item(match) for match in filter_containers(containers, container_filter)]


def filter_containers(
    containers: Iterable[Container], container_filter: pb.ContainerFilter
) -> Iterator[Container]:
    """Yield the containers that match the filter."""
    for container in containers:
        if container_filter.id and not container.id.startswith(container_filter.id):
            continue
        has_state = container_filter.HasField("state")
        if has_state and container_filter.state.state != container_state(container):
            continue
        if not container.record.sandbox_id.startswith(container_filter.pod_sandbox_id):
            continue
        if has_labels(container.config.labels, container_filter.label_selector):
            yield container
