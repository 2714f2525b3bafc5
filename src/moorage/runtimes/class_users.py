"""Users of classes: pods that run, or will run, under a RuntimeClass.

Of a cluster's pods only those that name a class are kept, and of them only what decides: there may
be 100,000.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from moorage.api.meta import Object, Raw
from moorage.api.pods import ENDED_PHASES
from moorage.api.runtime_group import PROBE_NAMESPACE
from moorage.wire.client.resources import PODS, read_as
from moorage.wire.client.rest import Client


class _Metadata(Object, frozen=True):
    name: str = ""
    namespace: str = ""


class _Spec(Object, frozen=True):
    runtime_class_name: str | None = None
    node_name: str = ""


class _Status(Object, frozen=True):
    phase: str = ""


class ClassUser(Object, frozen=True):
    """A pod, as far as it matters to its class."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def is_one(self) -> bool:
        """Whether it names a class, and runs, or will run."""
        return bool(self.spec.runtime_class_name) and self.status.phase not in ENDED_PHASES


async def class_users(client: Client) -> list[ClassUser]:
    """Return the pods that use a class. Raises StatusError, UnreachableError."""
    return [
        pod
        async for page in client.pages(read_as(PODS, ClassUser))
        for pod in page.items
        if pod.is_one
    ]


def users_by_class(users: Iterable[ClassUser]) -> Counter[str]:
    """Return how many pods run, or will run, under each class."""
    return Counter(pod.spec.runtime_class_name or "" for pod in users)


def pods_under(handler: str, classes: Iterable[Raw], users: Iterable[ClassUser]) -> tuple[str, ...]:
    """Return the pods on nodes under any class of a handler, which keep it there.

    Those of probes are left out: their agent ends them.
    """
    names = {one["metadata"]["name"] for one in classes if one.get("handler") == handler}
    return tuple(
        sorted(
            f"{pod.metadata.namespace}/{pod.metadata.name}"
            for pod in users
            if pod.metadata.namespace != PROBE_NAMESPACE
            and pod.spec.runtime_class_name in names
            and pod.spec.node_name
        )
    )
