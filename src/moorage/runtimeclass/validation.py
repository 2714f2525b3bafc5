"""RuntimeClass validation, and the warnings for valid objects.

The rules hold in every API version; paths are those of v1. Source: node validation of Kubernetes
1.36, KEP-585; the reserved name is KEP-585's and upstream does not enforce it.
"""

from __future__ import annotations

from collections.abc import Callable

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.api.nodes import DEPRECATED, NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE
from moorage.api.pods import Toleration
from moorage.api.resource_names import container_limits_errors
from moorage.api.runtime_group import RuntimeClass, Scheduling

# Handler resolution: from a pod's `runtimeClassName` to its CRI handler.
#
# Source: KEP-585 "RuntimeClass". An absent or empty name, and the reserved name `legacy`, mean the
# implicit class without rules: the runtime's default handler. Upstream's API server refuses the
# empty name (HTTP 500) and gives `legacy` no meaning; see docs/differences.md.

LEGACY = "legacy"
"""The reserved name of the implicit class."""

DEFAULT_HANDLER = ""
"""Name of the runtime's default handler in the CRI."""

ClassLookup = Callable[[str], RuntimeClass | None]


class ClassMissing(LookupError):  # noqa: N818 - a state of the cluster, not a programming error
    """The class a pod names does not exist."""

    def __init__(self, class_name: str) -> None:
        super().__init__(f'runtimeclass.node.k8s.io "{class_name}" not found')
        self.class_name = class_name


def is_implicit(class_name: str | None) -> bool:
    """Return whether the name denotes the implicit class, which always exists."""
    return not class_name or class_name == LEGACY


def resolve_handler(class_name: str | None, lookup: ClassLookup) -> str:
    """Return the CRI handler of a pod's `runtimeClassName`; `""` is the runtime's default.

    Raises ClassMissing when the class does not exist (any more).
    """
    if class_name is None or is_implicit(class_name):
        return DEFAULT_HANDLER
    runtime_class = lookup(class_name)
    if runtime_class is None:
        raise ClassMissing(class_name)
    return runtime_class.handler


_EFFECTS = (NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE)
_OPERATORS = ("Equal", "Exists")


def class_errors(runtime_class: RuntimeClass) -> list[FieldError]:
    """Return the errors of a class, in the order of its fields.

    The registry checks `metadata.name` for all kinds; this adds only the reserved name.
    """
    errors: list[FieldError] = []
    if runtime_class.metadata.name == LEGACY:
        errors.append(
            FieldError.invalid(
                "metadata.name",
                LEGACY,
                "is reserved for the implicit class that uses the runtime's default handler",
            )
        )
    errors += handler_errors(runtime_class.handler)
    if runtime_class.overhead is not None:
        errors += container_limits_errors(runtime_class.overhead.pod_fixed, "overhead")
    if runtime_class.scheduling is not None:
        errors += _scheduling_errors(runtime_class.scheduling)
    return errors


def class_update_errors(new: RuntimeClass, old: RuntimeClass) -> list[FieldError]:
    """Return the errors of the new object, then those of changed immutable fields."""
    errors = class_errors(new)
    if new.handler != old.handler:
        errors.append(FieldError.invalid("handler", new.handler, "field is immutable"))
    return errors


def handler_errors(handler: str) -> list[FieldError]:
    """Require a handler that is a DNS label (since beta, in every version)."""
    if not handler:
        return [FieldError.required("handler")]
    return [
        FieldError.invalid("handler", handler, complaint)
        for complaint in names.dns_label_errors(handler)
    ]


def _scheduling_errors(scheduling: Scheduling) -> list[FieldError]:
    errors: list[FieldError] = []
    path = "scheduling.nodeSelector"
    for key, value in scheduling.node_selector.items():
        errors += [FieldError.invalid(path, key, c) for c in names.qualified_name_errors(key)]
        errors += [FieldError.invalid(path, value, c) for c in names.label_value_errors(value)]
    seen: set[Toleration] = set()
    for index, toleration in enumerate(scheduling.tolerations):
        at = f"scheduling.tolerations[{index}]"
        errors += _toleration_errors(toleration, at)
        identity = _without_seconds(toleration)
        if identity in seen:
            errors.append(FieldError.duplicate(at, _go_shape(toleration)))
        seen.add(identity)
    return errors


def _toleration_errors(toleration: Toleration, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    operator_path = f"{path}.operator"
    if toleration.key:
        errors += [
            FieldError.invalid(f"{path}.key", toleration.key, complaint)
            for complaint in names.qualified_name_errors(toleration.key)
        ]
    elif toleration.operator != "Exists":
        errors.append(
            FieldError.invalid(
                operator_path,
                toleration.operator,
                "operator must be Exists when `key` is empty, "
                'which means "match all values and all keys"',
            )
        )
    if toleration.toleration_seconds is not None and toleration.effect != NO_EXECUTE:
        errors.append(
            FieldError.invalid(
                f"{path}.effect",
                toleration.effect,
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            )
        )
    errors += _operator_errors(toleration, operator_path)
    if toleration.effect and toleration.effect not in _EFFECTS:
        errors.append(FieldError.not_supported(f"{path}.effect", toleration.effect, _EFFECTS))
    return errors


def _operator_errors(toleration: Toleration, path: str) -> list[FieldError]:
    match toleration.operator:
        case "" | "Equal":
            complaints = names.label_value_errors(toleration.value)
            if not complaints:
                return []
            return [FieldError.invalid(path, toleration.value, ";".join(complaints))]
        case "Exists":
            if not toleration.value:
                return []
            return [
                FieldError.invalid(
                    path,
                    toleration.value,
                    "value must be empty when `operator` is 'Exists'",
                )
            ]
        case _:
            return [FieldError.not_supported(path, toleration.operator, _OPERATORS)]


def _without_seconds(toleration: Toleration) -> Toleration:
    return Toleration(
        key=toleration.key,
        operator=toleration.operator,
        value=toleration.value,
        effect=toleration.effect,
    )


def _go_shape(toleration: Toleration) -> dict[str, str | int | None]:
    """Return the toleration as upstream prints it in `Duplicate value`: with its Go field names."""
    return {
        "Key": toleration.key,
        "Operator": toleration.operator,
        "Value": toleration.value,
        "Effect": toleration.effect,
        "TolerationSeconds": toleration.toleration_seconds,
    }


def class_warnings(runtime_class: RuntimeClass) -> list[str]:
    """Return the texts of the `Warning` header of a create or update."""
    scheduling = runtime_class.scheduling
    if scheduling is None:
        return []
    return [
        f"scheduling.nodeSelector: {DEPRECATED[key]}"
        for key in scheduling.node_selector
        if key in DEPRECATED
    ]
