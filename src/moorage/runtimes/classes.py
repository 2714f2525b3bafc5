"""Classes of a cluster: those that it has, and the pods and templates that use them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from moorage.api.errors import OperationError
from moorage.api.meta import Object, Raw
from moorage.api.pods import ENDED_PHASES
from moorage.api.runtime_group import PROBE_NAMESPACE
from moorage.runtimeclass.temporary_classes import is_temporary
from moorage.wire.client.resources import PODS, RUNTIME_CLASSES, read_as
from moorage.wire.client.rest import Client

# Users of classes: pods that run, or will run, under a RuntimeClass.
#
# Of a cluster's pods only those that name a class are kept, and of them only what decides: there
# may be 100,000.


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


# Known classes: a command that names a class which does not exist is refused before it works.

NO_CLASS = "-"
"""A pod without `runtimeClassName`, where a command takes the name of a class."""


class UnknownClassError(OperationError):
    """A class that was named does not exist; the text has those that do."""


async def class_names(client: Client) -> list[str]:
    """Return the names of the RuntimeClasses that pods may name, without those of probes.

    Raises StatusError, UnreachableError.
    """
    metadata = [one.metadata for one in (await client.list(RUNTIME_CLASSES)).items]
    return sorted(one.name for one in metadata if not is_temporary(one.name, one.labels))


async def check_classes(client: Client, names: Iterable[str]) -> None:
    """Check that classes exist; `-`, for no class, does.

    Raises UnknownClassError, StatusError, UnreachableError.
    """
    present = await class_names(client)
    unknown = [name for name in dict.fromkeys(names) if name not in (NO_CLASS, *present)]
    if unknown:
        verb = "does" if len(unknown) == 1 else "do"
        raise UnknownClassError(
            f"RuntimeClass {', '.join(unknown)} {verb} not exist; those that do: "
            f"{', '.join(present) or 'none'}"
        )
