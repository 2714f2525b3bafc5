"""RuntimeClass resolution: the handler of a pod's sandboxes on this node.

The handler is decided once, before the pod's first sandbox is created, and recorded. From then on
the record is authoritative, whatever becomes of the class, the feature gate, the engine or the
agent: no sandbox of the pod is ever created under another handler. Classes come from an informer;
one that it lacks is read from the API, so a newly created class works. Source: KEP-585; kubelet
`runtimeclass`, which resolves the class again for each sandbox. Decision:
docs/decisions/037-handler-of-a-pod.md.
"""

from __future__ import annotations

from collections.abc import Callable

from moorage.api.errors import NotFoundError, StatusError
from moorage.api.logs import Log
from moorage.api.pods import Pod
from moorage.api.runtime_classes import RuntimeClass
from moorage.node.pod_facts.references import format_pod
from moorage.node.pods.handler_choice import (
    CLASS_UNREADABLE,
    HandlerError,
    HandlerInputs,
    choose_handler,
    needs_class,
    sandbox_handler,
)
from moorage.node.pods.handler_records import DamagedRecordError, HandlerRecord, HandlerRecords
from moorage.node.runtime.views import PodView
from moorage.runtimeclass.handler import DEFAULT_HANDLER, is_implicit
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import RUNTIME_CLASSES
from moorage.wire.client.rest import Client, UnreachableError

log = Log(__name__)


class RuntimeClasses:
    """RuntimeClasses as this node knows them.

    With `is_enabled` false, pods' class names are ignored.
    """

    def __init__(
        self,
        client: Client,
        informer: Informer[RuntimeClass],
        records: HandlerRecords,
        *,
        is_enabled: bool,
    ) -> None:
        self._client = client
        self._informer = informer
        self._records = records
        self._is_enabled = is_enabled

    def on_change(self, handler: Callable[[str], None]) -> None:
        """Call a function with the name of every class that is added, changed or removed."""

        def changed(before: RuntimeClass | None, after: RuntimeClass | None) -> None:
            known = after or before
            if known is not None:
                handler(known.metadata.name)

        self._informer.add_handler(changed)

    def named_by(self, pod: Pod) -> str | None:
        """Return the name of a pod's class; None for the implicit one, or when the gate is off."""
        name = pod.spec.runtime_class_name
        return None if not self._is_enabled or is_implicit(name) else name

    def is_gone(self, pod: Pod) -> bool:
        """Return whether the pod's class is known to be deleted."""
        name = self.named_by(pod)
        return name is not None and self._informer.is_synced and self._informer.get(name) is None

    def replacing_handler(self, pod: Pod, handler: str) -> str | None:
        """Return the handler of the pod's class if it differs from the pod's handler, else None."""
        name = self.named_by(pod)
        runtime_class = self._informer.get(name) if name is not None else None
        return (
            runtime_class.handler
            if runtime_class is not None and runtime_class.handler != handler
            else None
        )

    def known_handler(self, pod: Pod, view: PodView) -> str | None:
        """Return the handler a pod was admitted with, if it is in memory; does not block."""
        if is_implicit(pod.spec.runtime_class_name):
            return DEFAULT_HANDLER
        record = self._records.known(pod.metadata.uid)
        return record.handler if record is not None else sandbox_handler(view)

    def forget(self, uid: str) -> None:
        """Drop the in-memory record of a removed pod."""
        self._records.forget(uid)

    async def handler(self, pod: Pod, view: PodView) -> str:
        """Return the handler of a pod's sandboxes; the first call decides and records it.

        Raises HandlerError when it cannot be determined now; OSError when the record cannot be
        read or written.
        """
        name = pod.spec.runtime_class_name
        if name is None or is_implicit(name):
            return DEFAULT_HANDLER
        uid = pod.metadata.uid
        is_damaged = False
        try:
            record = await self._records.read(uid)
        except DamagedRecordError as error:
            log.warning("handler record not readable", pod=format_pod(pod), error=error)
            record, is_damaged = None, True
        inputs = HandlerInputs(
            pod=pod,
            view=view,
            record=record,
            is_record_damaged=is_damaged,
            is_enabled=self._is_enabled,
        )
        runtime_class = None
        if needs_class(inputs):
            runtime_class = self._informer.get(name) or await self._read(name)
        handler = choose_handler(inputs, runtime_class)
        if record is None or record.runtime_class != name:
            await self._records.write(uid, HandlerRecord(runtime_class=name, handler=handler))
        return handler

    async def _read(self, name: str) -> RuntimeClass | None:
        try:
            return await self._client.get(RUNTIME_CLASSES, name)
        except NotFoundError:
            return None
        except (StatusError, UnreachableError) as error:
            message = f"failed to lookup RuntimeClass {name}: {error}"
            raise HandlerError(CLASS_UNREADABLE, message) from error
