"""Pod specification and pod template validation.

Hot path: 40 µs a pod (bench/hotpaths.py). Source: core validation `ValidatePodSpec`, Kubernetes
1.36; docs/differences.md has the rules for class names.
"""

from __future__ import annotations

import msgspec

from moorage.api import names, quantity
from moorage.api.errors import FieldError
from moorage.api.remembered import remembered
from moorage.api.resource_names import container_limits_errors, resource_name_errors
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.addresses import ip_errors
from moorage.apiserver.registry.validation.containers import (
    Scope,
    container_errors,
    ephemeral_container_errors,
    init_container_errors,
    resource_errors,
)
from moorage.apiserver.registry.validation.go_shapes import RESOURCE_CLAIM, go_struct
from moorage.apiserver.registry.validation.metadata import annotation_errors, label_errors
from moorage.apiserver.registry.validation.scheduling import (
    affinity_errors,
    gate_errors,
    spread_errors,
    toleration_errors,
)
from moorage.apiserver.registry.validation.security import pod_security_errors
from moorage.apiserver.registry.validation.volumes import volume_errors
from moorage.runtimeclass.overhead import may_be_pod_level

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PREEMPTION = ("PreemptLowerPriority", "Never")
_OPERATING_SYSTEMS = ("linux", "windows")
# A longer specification is validated each time.
_LONGEST_SPEC_BYTES = 4096
_MAX_NAMESERVERS = 3
_MAX_SEARCHES = 32
_MAX_SEARCH_CHARACTERS = 2048


def template_errors(template: Obj, path: str) -> list[FieldError]:
    """Validate a workload's pod template."""
    errors = template_metadata_errors(template, path)
    errors += pod_spec_errors(template.get("spec", {}), f"{path}.spec")
    if template.get("spec", {}).get("ephemeralContainers"):
        errors.append(
            FieldError.forbidden(
                f"{path}.spec.ephemeralContainers",
                "ephemeral containers not allowed in pod template",
            )
        )
    return errors


def template_metadata_errors(template: Obj, path: str) -> list[FieldError]:
    """Validate the labels and annotations of a pod template."""
    meta = template.get("metadata", {})
    errors = label_errors(meta.get("labels", {}), f"{path}.metadata.labels")
    return errors + annotation_errors(meta.get("annotations", {}), f"{path}.metadata.annotations")


class _InvalidSpecError(Exception):
    """A pod specification has errors."""

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__(errors)
        self.errors = errors


def pod_spec_errors(spec: Obj, path: str, pod_name: str | None = None) -> list[FieldError]:
    """Validate a pod specification. Errors are in upstream's order, so that messages compare.

    `pod_name`: the name of the pod; None for a template. The pods of a workload have equal
    specifications, so valid ones are remembered by their JSON.
    """
    if any("ephemeral" in volume for volume in spec.get("volumes", ())):
        # The names of their claims begin with the pod's.
        return _errors_of(spec, path, pod_name)
    try:
        _check_spec(msgspec.json.encode(spec), path, pod_name is None)
    except _InvalidSpecError as invalid:
        return invalid.errors
    return []


@remembered(256, _LONGEST_SPEC_BYTES)
def _check_spec(encoded: bytes, path: str, is_template: bool) -> None:
    """Raise _InvalidSpecError for a specification with errors, none of which has a pod's name."""
    spec = msgspec.json.decode(encoded)
    if errors := _errors_of(spec, path, None if is_template else ""):
        raise _InvalidSpecError(errors)


def _errors_of(spec: Obj, path: str, pod_name: str | None) -> list[FieldError]:
    volumes: dict[str, Obj] = {}
    errors: list[FieldError] = []
    if "volumes" in spec:
        volumes, errors = volume_errors(spec["volumes"], f"{path}.volumes", pod_name)
    restart_policy = spec.get("restartPolicy", "")
    scope = Scope(volumes, restart_policy, spec.get("terminationGracePeriodSeconds"))
    errors += container_errors(spec.get("containers", []), f"{path}.containers", scope)
    if "initContainers" in spec:
        errors += init_container_errors(spec["initContainers"], f"{path}.initContainers", scope)
    if "ephemeralContainers" in spec:
        errors += ephemeral_container_errors(
            spec["ephemeralContainers"], f"{path}.ephemeralContainers", scope
        )
    errors += _required_choice(spec, "restartPolicy", path, _RESTART_POLICIES)
    errors += _required_choice(spec, "dnsPolicy", path, _DNS_POLICIES)
    if "nodeSelector" in spec:
        errors += label_errors(spec["nodeSelector"], f"{path}.nodeSelector")
    errors += _host_errors(spec, path)
    errors += pod_security_errors(
        spec.get("securityContext", {}), f"{path}.securityContext", spec, path
    )
    if "affinity" in spec:
        errors += affinity_errors(spec["affinity"], f"{path}.affinity")
    if spec.get("dnsPolicy") == "None" or "dnsConfig" in spec:
        errors += _dns_errors(spec, f"{path}.dnsConfig")
    for index, gate in enumerate(spec.get("readinessGates", ())):
        condition = gate.get("conditionType", "")
        errors += [
            FieldError.invalid(f"{path}.readinessGates[{index}].conditionType", condition, detail)
            for detail in names.qualified_name_errors(condition)
        ]
    if "schedulingGates" in spec:
        errors += gate_errors(spec["schedulingGates"], f"{path}.schedulingGates")
    if "topologySpreadConstraints" in spec:
        errors += spread_errors(
            spec["topologySpreadConstraints"], f"{path}.topologySpreadConstraints"
        )
    errors += _name_errors(spec, path)
    errors += _number_errors(spec, path)
    if "tolerations" in spec:
        errors += toleration_errors(spec["tolerations"], f"{path}.tolerations")
    if "hostAliases" in spec:
        errors += _alias_errors(spec["hostAliases"], f"{path}.hostAliases")
    errors += _class_errors(spec, path)
    if "resourceClaims" in spec:
        errors += _claim_errors(spec, path)
    if "resources" in spec:
        errors += _pod_resource_errors(spec, path)
    return errors


def _required_choice(
    spec: Obj, field: str, path: str, allowed: tuple[str, ...]
) -> list[FieldError]:
    value = spec.get(field, "")
    if value in allowed:
        return []
    if not value:
        return [FieldError.required(f"{path}.{field}")]
    return [FieldError.not_supported(f"{path}.{field}", value, allowed)]


def _host_errors(spec: Obj, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        errors.append(
            FieldError.invalid(
                f"{path}.securityContext.shareProcessNamespace",
                True,
                "ShareProcessNamespace and HostPID cannot both be enabled",
            )
        )
    if spec.get("hostNetwork"):
        for field in ("initContainers", "containers"):
            for index, container in enumerate(spec.get(field, ())):
                for number, port in enumerate(container.get("ports", ())):
                    if port.get("hostPort") != port.get("containerPort"):
                        errors.append(
                            FieldError.invalid(
                                f"{path}.{field}[{index}].ports[{number}].hostPort",
                                port.get("hostPort", 0),
                                "must match `containerPort` when `hostNetwork` is true",
                            )
                        )
    elif any(map(_is_host_process, (spec, *spec.get("containers", ())))):
        errors.append(
            FieldError.invalid(
                f"{path}.hostNetwork",
                False,
                "hostNetwork must be true if pod contains any hostProcess containers",
            )
        )
    if spec.get("hostUsers") is False:
        errors += [
            FieldError.forbidden(f"{path}.{field}", "when `hostUsers` is false")
            for field in ("hostNetwork", "hostPID", "hostIPC")
            if spec.get(field)
        ]
    return errors


def _is_host_process(holder: Obj) -> bool:
    windows = (holder.get("securityContext") or {}).get("windowsOptions") or {}
    return bool(windows.get("hostProcess"))


def _dns_errors(spec: Obj, path: str) -> list[FieldError]:
    config = spec.get("dnsConfig")
    if spec.get("dnsPolicy") == "None":
        if config is None:
            return [FieldError.required(path, "must provide `dnsConfig` when `dnsPolicy` is None")]
        if not config.get("nameservers"):
            return [
                FieldError.required(
                    f"{path}.nameservers",
                    "must provide at least one DNS nameserver when `dnsPolicy` is None",
                )
            ]
    config = config or {}
    errors: list[FieldError] = []
    servers, searches = config.get("nameservers", []), config.get("searches", [])
    if len(servers) > _MAX_NAMESERVERS:
        errors.append(
            FieldError.invalid(
                f"{path}.nameservers", servers, f"must not have more than {_MAX_NAMESERVERS} "
                "nameservers",
            )
        )  # fmt: skip
    for index, server in enumerate(servers):
        errors += ip_errors(server, f"{path}.nameservers[{index}]")
    if len(searches) > _MAX_SEARCHES:
        errors.append(
            FieldError.invalid(
                f"{path}.searches", searches, f"must not have more than {_MAX_SEARCHES} search "
                "paths",
            )
        )  # fmt: skip
    if len(" ".join(searches)) > _MAX_SEARCH_CHARACTERS:
        errors.append(
            FieldError.invalid(
                f"{path}.searches",
                searches,
                f"must not have more than {_MAX_SEARCH_CHARACTERS} characters (including spaces) "
                "in the search list",
            )
        )
    for index, search in enumerate(searches):
        errors += [
            FieldError.invalid(f"{path}.searches[{index}]", search, detail)
            for detail in names.search_domain_errors(search)
        ]
    errors += [
        FieldError.required(f"{path}.options[{index}]", "must not be empty")
        for index, option in enumerate(config.get("options", ()))
        if not option.get("name")
    ]
    return errors


def _name_errors(spec: Obj, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for field, check in (
        ("serviceAccountName", names.dns_subdomain_errors),
        ("nodeName", names.dns_subdomain_errors),
        ("hostname", names.dns_label_errors),
        ("subdomain", names.dns_label_errors),
        ("priorityClassName", names.dns_subdomain_errors),
    ):
        value = spec.get(field, "")
        if value:
            errors += [FieldError.invalid(f"{path}.{field}", value, e) for e in check(value)]
    system = spec.get("os")
    if system is not None:
        name = system.get("name", "")
        if not name:
            errors.append(FieldError.required(f"{path}.os.name", "cannot be empty"))
        elif name not in _OPERATING_SYSTEMS:
            errors.append(FieldError.not_supported(f"{path}.os", name, _OPERATING_SYSTEMS))
    return errors


def _number_errors(spec: Obj, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        errors.append(
            FieldError.invalid(
                f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, "
                "inclusive",
            )
        )  # fmt: skip
    policy = spec.get("preemptionPolicy")
    if policy is not None and policy not in _PREEMPTION:
        errors.append(FieldError.not_supported(f"{path}.preemptionPolicy", policy, _PREEMPTION))
    return errors


def _alias_errors(aliases: list[Obj], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, alias in enumerate(aliases):
        errors += ip_errors(alias.get("ip", ""), f"{path}[{index}].ip")
        for number, hostname in enumerate(alias.get("hostnames", ())):
            errors += [
                FieldError.invalid(f"{path}[{index}].hostnames[{number}]", hostname, detail)
                for detail in names.dns_subdomain_errors(hostname)
            ]
    return errors


def _class_errors(spec: Obj, path: str) -> list[FieldError]:
    """Validate the RuntimeClass name and overhead. An empty name is the implicit class."""
    errors: list[FieldError] = []
    class_name = spec.get("runtimeClassName")
    if class_name:
        errors += [
            FieldError.invalid(f"{path}.runtimeClassName", class_name, detail)
            for detail in names.dns_subdomain_errors(class_name)
        ]
    if "overhead" in spec:
        errors += container_limits_errors(spec["overhead"], f"{path}.overhead")
    return errors


def _pod_resource_errors(spec: Obj, path: str) -> list[FieldError]:
    """Validate pod-level resources: allowed names, requests at least the containers' sum."""
    resources = spec["resources"] or {}
    at = f"{path}.resources"
    errors = resource_errors(resources, at, _pod_resource_name_errors)
    for name, text in resources.get("requests", {}).items():
        total = sum(
            quantity.parse((c.get("resources") or {}).get("requests", {}).get(name, 0)).nano
            for c in spec.get("containers", ())
        )
        if total > quantity.parse(text).nano:
            shown = str(quantity.Quantity(total))
            errors.append(
                FieldError.invalid(
                    f"{at}.requests[{name}]", text, f"must be greater than or equal to aggregate "
                    f"container requests of {shown}",
                )
            )  # fmt: skip
    return errors


def _pod_resource_name_errors(name: str, path: str) -> list[FieldError]:
    errors = resource_name_errors(name, path)
    if not errors and not may_be_pod_level(name):
        return [FieldError.not_supported(path, name, ("cpu", "hugepages-", "memory"))]
    return errors


def _claim_errors(spec: Obj, path: str) -> list[FieldError]:
    """Validate device claims: each names exactly one source."""
    errors: list[FieldError] = []
    sources = ("resourceClaimName", "resourceClaimTemplateName")
    for index, claim in enumerate(spec.get("resourceClaims", ())):
        stated_sources = [field for field in sources if claim.get(field)]
        if len(stated_sources) == 1:
            continue
        errors.append(
            FieldError.invalid(
                f"{path}.resourceClaims[{index}]",
                go_struct(claim, RESOURCE_CLAIM),
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
                if stated_sources
                else "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            )
        )
    return errors
