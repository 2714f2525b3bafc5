"""Container validation: init, main and ephemeral containers.

Field paths are passed as text and completed only for an error. Source: core validation
`validateContainers` and its callees, Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from moorage.api import names, quantity
from moorage.api.errors import FieldError
from moorage.api.remembered import remembered_by_json
from moorage.api.resource_names import (
    amount_errors,
    container_resource_name_errors,
    is_extended,
    is_hugepages,
)
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.metadata import key_complaints
from moorage.apiserver.registry.validation.probes import lifecycle_errors, probe_errors
from moorage.apiserver.registry.validation.restart_policy import (
    init_restart_policy_errors,
    restart_policy_errors,
)
from moorage.apiserver.registry.validation.security import container_security_errors

_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_PROPAGATIONS = ("None", "HostToContainer", "Bidirectional")
_RESIZE_POLICIES = ("NotRequired", "RestartContainer")
_RESIZABLE = ("cpu", "memory")

_FIELD_PATHS = frozenset({
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
    "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
})  # fmt: skip
_SUBSCRIPTED = re.compile(r"(metadata\.(?:annotations|labels))\['([^']*)'\]")
_BYTE_UNITS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_DIVISORS = {
    "cpu": ("cpu", ("1m", "1")),
    "memory": ("memory", _BYTE_UNITS),
    "ephemeral-storage": ("local ephemeral storage", _BYTE_UNITS),
    "hugepages": ("hugepages", _BYTE_UNITS),
}
_CONTAINER_RESOURCES = frozenset({
    "limits.cpu", "limits.memory", "limits.ephemeral-storage", "requests.cpu", "requests.memory",
    "requests.ephemeral-storage",
})  # fmt: skip


class Scope:
    """State shared while validating the containers of one pod: its volumes, names in use."""

    __slots__ = ("grace_s", "names", "restart_policy", "volumes")

    def __init__(
        self, volumes: dict[str, Obj], restart_policy: str, grace_s: int | None = None
    ) -> None:
        self.volumes = volumes
        self.restart_policy = restart_policy
        self.grace_s = grace_s
        self.names: set[str] = set()


def container_errors(containers: list[Obj], path: str, scope: Scope) -> list[FieldError]:
    """Validate the main containers, of which there must be at least one."""
    if not containers:
        return [FieldError.required(path)]
    errors: list[FieldError] = []
    ports: set[tuple[Any, ...]] = set()
    for index, container in enumerate(containers):
        at = f"{path}[{index}]"
        errors += _common_errors(container, at, scope, in_init=False)
        errors += _host_port_conflicts(container, at, ports)
        errors += restart_policy_errors(container, at)
    return errors


def init_container_errors(containers: list[Obj], path: str, scope: Scope) -> list[FieldError]:
    """Validate init containers; only those that restart (sidecars) may have probes and hooks."""
    errors: list[FieldError] = []
    for index, container in enumerate(containers):
        at = f"{path}[{index}]"
        is_sidecar = container.get("restartPolicy") == "Always"
        errors += init_restart_policy_errors(container, at)
        errors += _common_errors(container, at, scope, in_init=not is_sidecar)
        if not is_sidecar:
            errors += _init_resize_errors(container, at)
    return errors


def _init_resize_errors(container: Obj, path: str) -> list[FieldError]:
    """Return the errors of resize policies of an init container that ends, so is not restarted."""
    return [
        FieldError.invalid(
            f"{path}.resizePolicy[{index}].restartPolicy",
            policy["restartPolicy"],
            "must not be set to 'RestartContainer' for non-sidecar initContainers",
        )
        for index, policy in enumerate(container.get("resizePolicy", ()))
        if policy.get("restartPolicy") == "RestartContainer"
    ]


def ephemeral_container_errors(containers: list[Obj], path: str, scope: Scope) -> list[FieldError]:
    """Validate ephemeral containers: no ports, probes, hooks or resources; an existing target."""
    targets = set(scope.names)
    errors: list[FieldError] = []
    for index, container in enumerate(containers):
        at = f"{path}[{index}]"
        for field in ("ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle",
                      "resizePolicy", "restartPolicy", "restartPolicyRules"):  # fmt: skip
            if field in container:
                errors.append(
                    FieldError.forbidden(
                        f"{at}.{field}", "cannot be set for an Ephemeral Container"
                    )
                )
        if container.get("resources"):
            errors.append(
                FieldError.forbidden(f"{at}.resources", "cannot be set for an Ephemeral Container")
            )
        target = container.get("targetContainerName")
        if target and target not in targets:
            errors.append(FieldError.not_found(f"{at}.targetContainerName", target))
        errors += [
            FieldError.forbidden(
                f"{at}.volumeMounts[{number}].{field}", "cannot be set for an Ephemeral Container"
            )
            for number, mount in enumerate(container.get("volumeMounts", ()))
            for field in ("subPath", "subPathExpr")
            if mount.get(field)
        ]
        errors += _common_errors(container, at, scope, in_init=False)
    return errors


def _common_errors(container: Obj, path: str, scope: Scope, *, in_init: bool) -> list[FieldError]:
    errors = _name_errors(container, path, scope)
    image = container.get("image", "")
    if not image:
        errors.append(FieldError.required(f"{path}.image"))
    elif image != image.strip():
        errors.append(
            FieldError.invalid(
                f"{path}.image", image, "must not have leading or trailing whitespace"
            )
        )
    if "lifecycle" in container:
        if in_init:
            errors.append(
                FieldError.forbidden(
                    f"{path}.lifecycle",
                    "may not be set for init containers without restartPolicy=Always",
                )
            )
        else:
            errors += lifecycle_errors(container["lifecycle"], f"{path}.lifecycle", scope.grace_s)
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe not in container:
            continue
        if in_init:
            errors.append(
                FieldError.forbidden(
                    f"{path}.{probe}",
                    "may not be set for init containers without restartPolicy=Always",
                )
            )
        else:
            errors += probe_errors(
                container[probe], f"{path}.{probe}", is_readiness=probe == "readinessProbe"
            )
    errors += _choice(container, "terminationMessagePolicy", path, _MESSAGE_POLICIES)
    errors += _choice(container, "imagePullPolicy", path, _PULL_POLICIES)
    for field, check in _PART_CHECKS.items():
        if field in container:
            errors += check(container[field], f"{path}.{field}")
    if "volumeMounts" in container:
        errors += _mount_errors(container, f"{path}.volumeMounts", scope.volumes)
    if "volumeDevices" in container:
        errors += _device_errors(container, f"{path}.volumeDevices", scope.volumes)
    errors += resource_errors(container.get("resources") or {}, f"{path}.resources")
    if "resizePolicy" in container:
        errors += _resize_errors(
            container["resizePolicy"], f"{path}.resizePolicy", scope.restart_policy
        )
    if "securityContext" in container:
        errors += container_security_errors(container["securityContext"], f"{path}.securityContext")
    return errors


def _name_errors(container: Obj, path: str, scope: Scope) -> list[FieldError]:
    name = container.get("name", "")
    if not name:
        return [FieldError.required(f"{path}.name")]
    if name in scope.names:
        return [FieldError.duplicate(f"{path}.name", name)]
    scope.names.add(name)
    return [
        FieldError.invalid(f"{path}.name", name, complaint)
        for complaint in names.dns_label_errors(name)
    ]


def _choice(obj: Obj, field: str, path: str, allowed: tuple[str, ...]) -> list[FieldError]:
    value = obj.get(field, "")
    if value in allowed:
        return []
    if not value:
        return [FieldError.required(f"{path}.{field}")]
    return [FieldError.not_supported(f"{path}.{field}", value, allowed)]


def _port_errors(ports: list[Obj], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        at = f"{path}[{index}]"
        name = port.get("name", "")
        if name:
            complaints = names.port_name_errors(name)
            errors += [FieldError.invalid(f"{at}.name", name, detail) for detail in complaints]
            if not complaints and name in seen:
                errors.append(FieldError.duplicate(f"{at}.name", name))
            seen.add(name)
        number = port.get("containerPort", 0)
        if number == 0:
            errors.append(FieldError.required(f"{at}.containerPort"))
        else:
            errors += port_number_errors(number, f"{at}.containerPort")
        if port.get("hostPort"):
            errors += port_number_errors(port["hostPort"], f"{at}.hostPort")
        protocol = port.get("protocol", "")
        if not protocol:
            errors.append(FieldError.required(f"{at}.protocol"))
        elif protocol not in _PROTOCOLS:
            errors.append(FieldError.not_supported(f"{at}.protocol", protocol, sorted(_PROTOCOLS)))
    return errors


def port_number_errors(number: int, path: str) -> list[FieldError]:
    """Validate a port number: 1 to 65535."""
    if 1 <= number <= 65535:
        return []
    return [FieldError.invalid(path, number, "must be between 1 and 65535, inclusive")]


def _host_port_conflicts(
    container: Obj, path: str, taken: set[tuple[Any, ...]]
) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, port in enumerate(container.get("ports", ())):
        host_port = port.get("hostPort", 0)
        if not host_port:
            continue
        key = (port.get("protocol"), port.get("hostIP", ""), host_port)
        if key in taken:
            shown = f"{port.get('protocol')}//{host_port}"
            errors.append(FieldError.duplicate(f"{path}.ports[{index}].hostPort", shown))
        taken.add(key)
    return errors


def _env_errors(variables: list[Obj], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, variable in enumerate(variables):
        at = f"{path}[{index}]"
        name = variable.get("name", "")
        if not name:
            errors.append(FieldError.required(f"{at}.name"))
        else:
            errors += [
                FieldError.invalid(f"{at}.name", name, detail)
                for detail in names.env_name_errors(name)
            ]
        if "valueFrom" in variable:
            errors += _value_source_errors(variable, f"{at}.valueFrom")
    return errors


def _value_source_errors(variable: Obj, path: str) -> list[FieldError]:
    source = variable["valueFrom"]
    errors: list[FieldError] = []
    for field, check in _SOURCE_CHECKS.items():
        if field in source:
            errors += check(source[field], f"{path}.{field}")
    if not source:
        errors.append(
            FieldError.invalid(
                path,
                "",
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, "
                "`secretKeyRef` or `fileKeyRef`",
            )
        )
    elif variable.get("value"):
        errors.append(
            FieldError.invalid(path, "", "may not be specified when `value` is not empty")
        )
    elif len(source) > 1:
        errors.append(
            FieldError.invalid(path, "", "may not have more than one field specified at a time")
        )
    return errors


def field_ref_errors(
    reference: Obj, path: str, allowed: Collection[str] = _FIELD_PATHS
) -> list[FieldError]:
    """Validate a downward API reference to one of the pod's fields."""
    if not reference.get("apiVersion"):
        return [FieldError.required(f"{path}.apiVersion")]
    field = reference.get("fieldPath", "")
    if not field:
        return [FieldError.required(f"{path}.fieldPath")]
    subscripted = _SUBSCRIPTED.fullmatch(field)
    if subscripted:
        base, key = subscripted.groups()
        checked = key.lower() if base.endswith("annotations") else key
        return [FieldError.invalid(path, key, detail) for detail in key_complaints(checked)]
    if field in allowed:
        return []
    if field in ("metadata.labels", "metadata.annotations") or "." in field:
        return [FieldError.not_supported(f"{path}.fieldPath", field, sorted(allowed))]
    return [
        FieldError.invalid(
            f"{path}.fieldPath",
            field,
            f"error converting fieldPath: field label not supported: {field}",
        )
    ]


def resource_ref_errors(reference: Obj, path: str, *, in_volume: bool = False) -> list[FieldError]:
    """Validate a downward API reference to one of a container's resources."""
    errors: list[FieldError] = []
    if in_volume and not reference.get("containerName"):
        errors.append(FieldError.required(f"{path}.containerName"))
    resource = reference.get("resource", "")
    if not resource:
        errors.append(FieldError.required(f"{path}.resource"))
    elif resource not in _CONTAINER_RESOURCES and not _is_hugepages_ref(resource):
        errors.append(
            FieldError.not_supported(f"{path}.resource", resource, sorted(_CONTAINER_RESOURCES))
        )
    else:
        errors += _divisor_errors(resource, reference.get("divisor", "0"), f"{path}.divisor")
    return errors


def _divisor_errors(resource: str, divisor: str, path: str) -> list[FieldError]:
    """Validate the divisor: the units allowed for the resource."""
    name = resource.partition(".")[2]
    kind = "hugepages" if is_hugepages(name) else name
    shown, units = _DIVISORS[kind]
    if divisor in ("0", *units):
        return []
    listed = " and ".join(units) if kind == "cpu" else ", ".join(units)
    return [
        FieldError.invalid(
            path,
            resource,
            f"only divisor's values {listed} are supported with the {shown} resource",
        )
    ]


def _is_hugepages_ref(resource: str) -> bool:
    return is_hugepages(resource.partition(".")[2])


def _key_ref_errors(reference: Obj, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    name = reference.get("name", "")
    errors += [
        FieldError.invalid(f"{path}.name", name, e) for e in names.dns_subdomain_errors(name)
    ]
    key = reference.get("key", "")
    if not key:
        errors.append(FieldError.required(f"{path}.key"))
    else:
        errors += [
            FieldError.invalid(f"{path}.key", key, detail)
            for detail in names.config_key_errors(key)
        ]
    return errors


def _env_from_errors(sources: list[Obj], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, source in enumerate(sources):
        at = f"{path}[{index}]"
        prefix = source.get("prefix", "")
        if prefix:
            errors += [
                FieldError.invalid(f"{at}.prefix", prefix, detail)
                for detail in names.env_name_errors(prefix)
            ]
        reference_fields = [field for field in ("configMapRef", "secretRef") if field in source]
        for field in reference_fields:
            if not source[field].get("name"):
                errors.append(FieldError.required(f"{at}.{field}.name"))
        if not reference_fields:
            errors.append(
                FieldError.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
            )
        elif len(reference_fields) > 1:
            errors.append(
                FieldError.invalid(path, "", "may not have more than one field specified at a time")
            )
    return errors


def _mount_errors(container: Obj, path: str, volumes: dict[str, Obj]) -> list[FieldError]:
    errors: list[FieldError] = []
    places: set[str] = set()
    for index, mount in enumerate(container["volumeMounts"]):
        at = f"{path}[{index}]"
        name = mount.get("name", "")
        if not name:
            errors.append(FieldError.required(f"{at}.name"))
        if name not in volumes:
            errors.append(FieldError.not_found(f"{at}.name", name))
        place = mount.get("mountPath", "")
        if not place:
            errors.append(FieldError.required(f"{at}.mountPath"))
        if place in places:
            errors.append(FieldError.invalid(f"{at}.mountPath", place, "must be unique"))
        places.add(place)
        # Upstream gives the rest no index.
        errors += _sub_path_errors(mount, path, at)
        errors += _propagation_errors(mount, container, path)
        errors += _recursive_errors(mount, path)
    return errors


def _sub_path_errors(mount: Obj, path: str, mount_path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for field in ("subPath", "subPathExpr"):
        if mount.get(field):
            errors += local_path_errors(mount[field], f"{path}.{field}")
    if mount.get("subPath") and mount.get("subPathExpr"):
        errors.append(
            FieldError.invalid(
                f"{mount_path}.subPathExpr",
                mount["subPathExpr"],
                "subPathExpr and subPath are mutually exclusive",
            )
        )
    return errors


def local_path_errors(value: str, path: str) -> list[FieldError]:
    """Validate a path that must not leave its directory: relative, without `..`."""
    errors: list[FieldError] = []
    if value.startswith("/"):
        errors.append(FieldError.invalid(path, value, "must be a relative path"))
    if ".." in value.split("/"):
        errors.append(FieldError.invalid(path, value, "must not contain '..'"))
    return errors


def _propagation_errors(mount: Obj, container: Obj, path: str) -> list[FieldError]:
    propagation = mount.get("mountPropagation")
    if propagation is None:
        return []
    at = f"{path}.mountPropagation"
    if propagation not in _PROPAGATIONS:
        return [FieldError.not_supported(at, propagation, sorted(_PROPAGATIONS))]
    if propagation == "Bidirectional" and not (container.get("securityContext") or {}).get(
        "privileged"
    ):
        return [
            FieldError.forbidden(
                at, "Bidirectional mount propagation is available only to privileged containers"
            )
        ]
    return []


def _recursive_errors(mount: Obj, path: str) -> list[FieldError]:
    mode = mount.get("recursiveReadOnly")
    if mode in (None, "Disabled"):
        return []
    at = f"{path}.recursiveReadOnly"
    if mode not in ("Enabled", "IfPossible"):
        return [FieldError.not_supported(at, mode, ("Disabled", "Enabled", "IfPossible"))]
    errors: list[FieldError] = []
    if not mount.get("readOnly"):
        errors.append(FieldError.forbidden(at, "may only be specified when readOnly is true"))
    if mount.get("mountPropagation") not in (None, "None"):
        errors.append(
            FieldError.forbidden(
                at, "may only be specified when mountPropagation is None or not specified"
            )
        )
    return errors


def _device_errors(container: Obj, path: str, volumes: dict[str, Obj]) -> list[FieldError]:
    """Validate raw block devices: each on a claim's volume, with a unique name and path."""
    errors: list[FieldError] = []
    seen_names: set[str] = set()
    seen_places: set[str] = set()
    mounted = {mount.get("name") for mount in container.get("volumeMounts", ())}
    for index, device in enumerate(container["volumeDevices"]):
        at = f"{path}[{index}]"
        name, place = device.get("name", ""), device.get("devicePath", "")
        volume = volumes.get(name)
        if not name:
            errors.append(FieldError.required(f"{at}.name"))
        if name in seen_names:
            errors.append(FieldError.invalid(f"{at}.name", name, "must be unique"))
        seen_names.add(name)
        if volume is None:
            errors.append(FieldError.not_found(f"{at}.name", name))
        elif not volume.keys() & {"persistentVolumeClaim", "ephemeral"}:
            errors.append(
                FieldError.invalid(
                    f"{at}.name",
                    name,
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for "
                    "block mode",
                )
            )
        if not place:
            errors.append(FieldError.required(f"{at}.devicePath"))
        if place in seen_places:
            errors.append(FieldError.invalid(f"{at}.devicePath", place, "must be unique"))
        seen_places.add(place)
        if ".." in place.split("/"):
            errors.append(
                FieldError.invalid(f"{at}.devicePath", place, "can not contain backsteps ('..')")
            )
        if name in mounted:
            errors.append(
                FieldError.invalid(f"{at}.name", name, "must not already exist in volumeMounts")
            )
    return errors


def _resize_errors(policies: list[Obj], path: str, pod_restart_policy: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        name = policy.get("resourceName", "")
        if name in seen:
            errors.append(FieldError.duplicate(f"{path}[{index}]", name))
        seen.add(name)
        if not name:
            errors.append(FieldError.required(path))
        elif name not in _RESIZABLE:
            errors.append(FieldError.not_supported(path, name, _RESIZABLE))
        restart = policy.get("restartPolicy", "")
        if not restart:
            errors.append(FieldError.required(path))
        elif restart not in _RESIZE_POLICIES:
            errors.append(FieldError.not_supported(path, restart, _RESIZE_POLICIES))
        if pod_restart_policy == "Never" and restart != "NotRequired":
            why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            errors.append(FieldError.invalid(path, restart, why))
    return errors


def resource_errors(
    resources: Obj,
    path: str,
    name_errors: Callable[[str, str], list[FieldError]] = container_resource_name_errors,
) -> list[FieldError]:
    """Validate requests and limits: names, quantities, and requests within limits.

    `name_errors` returns the errors of a resource name at a path.
    """
    if name_errors is container_resource_name_errors and _are_valid(resources):
        return []
    return _errors_of_resources(resources, path, name_errors)


@remembered_by_json(1024)
def _are_valid(resources: Obj) -> bool:
    """Return whether the resources of a container have no errors. Hot path: pods of workloads."""
    return not _errors_of_resources(resources, "", container_resource_name_errors)


def _errors_of_resources(
    resources: Obj, path: str, name_errors: Callable[[str, str], list[FieldError]]
) -> list[FieldError]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    errors: list[FieldError] = []
    for name, text in limits.items():
        errors += _resource_errors(name, text, f"{path}.limits", name_errors)
    for name, text in requests.items():
        errors += _resource_errors(name, text, f"{path}.requests", name_errors)
        amount = quantity.parse(text)
        limit = quantity.parse(limits[name]) if name in limits else None
        at = f"{path}.requests"
        if limit is not None:
            if amount != limit and not _may_overcommit(name):
                errors.append(
                    FieldError.invalid(at, text, f"must be equal to {name} limit of {limits[name]}")
                )
            elif limit < amount:
                errors.append(
                    FieldError.invalid(
                        at, text, f"must be less than or equal to {name} limit of {limits[name]}"
                    )
                )
        elif not _may_overcommit(name):
            errors.append(
                FieldError.required(
                    f"{path}.limits", "Limit must be set for non overcommitable resources"
                )
            )
    named = limits.keys() | requests.keys()
    if any(map(is_hugepages, named)) and not named & {"cpu", "memory"}:
        errors.append(FieldError.forbidden(path, "HugePages require cpu or memory"))
    return errors


def _resource_errors(
    name: str, text: str, path: str, name_errors: Callable[[str, str], list[FieldError]]
) -> list[FieldError]:
    if name in _RESIZABLE:
        amount = quantity.parse(text)
        return [] if amount.nano >= 0 else amount_errors(name, amount, f"{path}[{name}]")
    errors = name_errors(name, f"{path}[{name}]")
    return errors + amount_errors(name, quantity.parse(text), f"{path}[{name}]")


def _may_overcommit(name: str) -> bool:
    return not is_extended(name) and not is_hugepages(name)


Check = Callable[[Any, str], list[FieldError]]

_PART_CHECKS: dict[str, Check] = {
    "ports": _port_errors,
    "env": _env_errors,
    "envFrom": _env_from_errors,
}
_SOURCE_CHECKS: dict[str, Check] = {
    "fieldRef": field_ref_errors,
    "resourceFieldRef": resource_ref_errors,
    "configMapKeyRef": _key_ref_errors,
    "secretKeyRef": _key_ref_errors,
}
