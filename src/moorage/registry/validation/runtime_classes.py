"""RuntimeClasses: the rules are the core's, read from a typed object."""

from __future__ import annotations

import msgspec

from moorage.api.errors import FieldError
from moorage.api.runtime_classes import RuntimeClass
from moorage.registry.kind import Obj
from moorage.runtimeclass import class_errors, class_update_errors


def validate_runtime_class(obj: Obj) -> list[FieldError]:
    return class_errors(typed_class(obj))


def validate_runtime_class_update(new: Obj, old: Obj) -> list[FieldError]:
    return class_update_errors(typed_class(new), typed_class(old))


def typed_class(obj: Obj) -> RuntimeClass:
    return msgspec.convert(obj, RuntimeClass)
