"""RuntimeClass plugin: looks up a pod's class and merges its overhead and scheduling rules.

`moorage.runtimeclass` decides; this plugin reads the pod, looks up the class, writes the result
back and formats the refusal. With the feature gate off, class and overhead are dropped from
new pods, like every disabled field. Source: KEP-585, KEP-688.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from moorage.api.pods import Toleration
from moorage.api.runtime_group import RuntimeClass
from moorage.apiserver.admission.admission_request import refused
from moorage.apiserver.admission.chain import CREATE, Scope
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.request import Attributes
from moorage.runtimeclass import AdmissionRefusal, PodFields, admit, check_admitted
from moorage.runtimeclass.validation import is_implicit

_DISABLED_FIELDS = ("runtimeClassName", "overhead")


class RuntimeClassAdmission:
    """Merges the fields of a pod's RuntimeClass into new pods, or drops the disabled fields.

    `find` returns a RuntimeClass by name, or None; `is_enabled` is the feature gate.
    """

    name = "RuntimeClass"
    scope = Scope.of(["pods"], [CREATE])

    def __init__(
        self, find: Callable[[str], RuntimeClass | None], *, is_enabled: bool = True
    ) -> None:
        self._find = find
        self.mutate = self._admit if is_enabled else self._drop_fields
        self.validate = self._check if is_enabled else None

    def _admit(self, attributes: Attributes) -> None:
        spec = _spec(attributes)
        runtime_class = self._class_of(attributes, spec)
        if runtime_class is None:
            return
        scheduling = runtime_class.scheduling
        has_tolerations = scheduling is not None and bool(scheduling.tolerations)
        before = PodFields(
            overhead=spec.get("overhead"),
            node_selector=spec.get("nodeSelector"),
            tolerations=_typed_tolerations(spec) if has_tolerations else None,
        )
        try:
            after = admit(before, runtime_class)
        except AdmissionRefusal as refusal:
            raise refused(attributes, str(refusal)) from refusal
        if runtime_class.overhead is not None:
            _set(spec, "overhead", after.overhead)
        if scheduling is not None:
            _set(spec, "nodeSelector", after.node_selector)
            tolerations = spec.get("tolerations")
            if has_tolerations:
                tolerations = msgspec.to_builtins(list(after.tolerations or ()))
            _set(spec, "tolerations", tolerations)

    def _check(self, attributes: Attributes) -> None:
        spec = _spec(attributes)
        try:
            check_admitted(spec.get("overhead"), self._class_of(attributes, spec))
        except AdmissionRefusal as refusal:
            raise refused(attributes, str(refusal)) from refusal

    def _drop_fields(self, attributes: Attributes) -> None:
        spec = _spec(attributes)
        for field in _DISABLED_FIELDS:
            spec.pop(field, None)

    def _class_of(self, attributes: Attributes, spec: Obj) -> RuntimeClass | None:
        class_name = spec.get("runtimeClassName")
        if class_name is None or is_implicit(class_name):
            return None
        runtime_class = self._find(class_name)
        if runtime_class is None:
            raise refused(attributes, f'pod rejected: RuntimeClass "{class_name}" not found')
        return runtime_class


def _spec(attributes: Attributes) -> Obj:
    assert attributes.obj is not None
    spec: Obj = attributes.obj["spec"]
    return spec


def _typed_tolerations(spec: Obj) -> tuple[Toleration, ...]:
    return msgspec.convert(spec.get("tolerations", ()), tuple[Toleration, ...])


def _set(spec: Obj, field: str, value: Any) -> None:
    if value:
        spec[field] = value
    else:
        spec.pop(field, None)
