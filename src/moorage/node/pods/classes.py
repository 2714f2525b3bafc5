"""From the class a pod names to the handler its sandbox runs under, on this node.

The classes are followed by an informer; one that the informer lacks is asked for directly, so a
class made a moment ago works. A sandbox keeps the handler it was created with, whatever becomes
of its class. Source: KEP-585; kubelet `runtimeclass`, which has no such fallback.
"""

from __future__ import annotations

from collections.abc import Callable

from moorage.api.errors import NotFoundError, StatusError
from moorage.api.pods import Pod
from moorage.api.runtimeclasses import RuntimeClass
from moorage.client import Client, Informer
from moorage.client.resources import RUNTIME_CLASSES
from moorage.client.rest import UnreachableError
from moorage.node.runtime.views import PodView
from moorage.runtimeclass import ClassMissing, resolve_handler
from moorage.runtimeclass.handler import DEFAULT_HANDLER, is_implicit


class ClassUnreadableError(Exception):
    """The class may exist, but the API server did not say; worth another try."""


class RuntimeClasses:
    """The classes as this node knows them. `is_enabled` false ignores what pods name."""

    def __init__(
        self, client: Client, informer: Informer[RuntimeClass], *, is_enabled: bool
    ) -> None:
        self._client = client
        self._informer = informer
        self._is_enabled = is_enabled

    def on_change(self, handler: Callable[[str], None]) -> None:
        """Hear the name of every class that appears, changes or goes."""

        def changed(before: RuntimeClass | None, after: RuntimeClass | None) -> None:
            known = after or before
            if known is not None:
                handler(known.metadata.name)

        self._informer.add_handler(changed)

    def named_by(self, pod: Pod) -> str | None:
        """The class whose rules hold for a pod, None for the implicit one."""
        name = pod.spec.runtime_class_name
        return None if not self._is_enabled or is_implicit(name) else name

    def is_gone(self, pod: Pod) -> bool:
        """Whether the pod's class is known not to exist any more."""
        name = self.named_by(pod)
        return name is not None and self._informer.is_synced and self._informer.get(name) is None

    async def handler(self, pod: Pod, view: PodView) -> str:
        """The handler for a new sandbox of this pod.

        A pod that has had a sandbox keeps its handler when the class has gone since: it was
        admitted under that class. Raises ClassMissing, ClassUnreadableError.
        """
        name = self.named_by(pod)
        if name is None:
            return DEFAULT_HANDLER
        found = self._informer.get(name) or await self._read(name)
        try:
            return resolve_handler(name, lambda _: found)
        except ClassMissing:
            if view.sandbox is not None:
                return view.sandbox.handler
            raise

    async def _read(self, name: str) -> RuntimeClass | None:
        try:
            return await self._client.get(RUNTIME_CLASSES, name)
        except NotFoundError:
            return None
        except (StatusError, UnreachableError) as error:
            raise ClassUnreadableError(f"failed to lookup RuntimeClass {name}: {error}") from error
