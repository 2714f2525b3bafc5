"""APIServices. Source: apiregistration validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

import json
from collections.abc import Iterator

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.defaults import defaults
from moorage.apiserver.registry.declare.rules import (
    always_text,
    one_of,
    update,
    validator,
)
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Served,
    Strategy,
    status_subresource,
)
from moorage.apiserver.registry.preparation import keep_all_but_status, keep_status

_TYPES = "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1"
_PORT = 443
_HIGHEST_GROUP_PRIORITY = 20000
_HIGHEST_VERSION_PRIORITY = 1000


def prepare_api_service_create(api_service: Obj) -> None:
    """Reset the status; a group that this server serves itself is available at once."""
    api_service["status"] = {}
    if "service" not in api_service.get("spec", {}):
        condition = {
            "type": "Available",
            "status": "True",
            "lastTransitionTime": api_service["metadata"].get("creationTimestamp"),
            "reason": "Local",
            "message": "Local APIServices are always available",
        }
        api_service["status"]["conditions"] = [condition]


def validate_api_service(api_service: Obj) -> list[FieldError]:
    """Return the errors of an APIService."""
    return [*_name_errors(api_service), *_spec_errors(api_service.get("spec", {}))]


def _name_errors(api_service: Obj) -> Iterator[FieldError]:
    spec = api_service.get("spec", {})
    expected = f"{spec.get('version', '')}.{spec.get('group', '')}"
    for field in ("generateName", "name"):
        value = api_service["metadata"].get(field, "")
        if value and value != expected and not names.path_segment_errors(value):
            yield FieldError.invalid(
                f"metadata.{field}",
                value,
                f'must be `spec.version+"."+spec.group`: {json.dumps(expected)}',
            )


def _spec_errors(spec: Obj) -> Iterator[FieldError]:
    group, version = spec.get("group", ""), spec.get("version", "")
    if not group and version != "v1":
        yield FieldError.required(
            "spec.group", "only v1 may have an empty group and it better be legacy kube"
        )
    for detail in names.dns_subdomain_errors(group) if group else ():
        yield FieldError.invalid("spec.group", group, detail)
    for detail in names.dns_1035_label_errors(version):
        yield FieldError.invalid("spec.version", version, detail)
    for field, highest in (
        ("groupPriorityMinimum", _HIGHEST_GROUP_PRIORITY),
        ("versionPriority", _HIGHEST_VERSION_PRIORITY),
    ):
        priority = spec.get(field, 0)
        if not 0 < priority <= highest:
            yield FieldError.invalid(
                f"spec.{field}", priority, f"must be positive and less than {highest}"
            )
    if "service" in spec:
        yield from _service_errors(spec)
    else:
        yield from _local_errors(spec)


def _local_errors(spec: Obj) -> Iterator[FieldError]:
    if bundle := spec.get("caBundle", ""):
        size = len(bundle) * 3 // 4 - bundle.count("=")
        yield FieldError.invalid(
            "spec.caBundle", f"{size} bytes", "local APIServices may not have a caBundle"
        )
    if spec.get("insecureSkipTLSVerify"):
        yield FieldError.invalid(
            "spec.insecureSkipTLSVerify",
            True,
            "local APIServices may not have insecureSkipTLSVerify",
        )


def _service_errors(spec: Obj) -> Iterator[FieldError]:
    service = spec["service"]
    for field in ("namespace", "name"):
        if not service.get(field):
            yield FieldError.required(f"spec.service.{field}")
    port = service.get("port", 0)
    if not 1 <= port <= 65535:
        yield FieldError.invalid(
            "spec.service.port", port, "port is not valid: must be between 1 and 65535, inclusive"
        )
    if spec.get("insecureSkipTLSVerify") and spec.get("caBundle"):
        yield FieldError.invalid(
            "spec.insecureSkipTLSVerify", True, "may not be true if caBundle is present"
        )


def _service_text(service: Obj) -> str:
    return f"{service.get('namespace', '')}/{service.get('name', '')}"


def _availability(api_service: Obj) -> str:
    for condition in api_service.get("status", {}).get("conditions", ()):
        if condition.get("type") == "Available":
            status, reason = str(condition.get("status", "")), condition.get("reason", "")
            return f"{status} ({reason})" if status != "True" and reason else status
    return "Unknown"


_validate_status = validator(
    ("status.conditions[*].status", always_text(one_of("True", "False", "Unknown"))),
)

API_SERVICE = Kind(
    name="APIService",
    plural="apiservices",
    served=(Served("apiregistration.k8s.io", "v1", f"{_TYPES}.APIService"),),
    is_namespaced=False,
    categories=("api-extensions",),
    strategy=Strategy(
        default=defaults(("spec?.service?.port", _PORT)),
        prepare_create=prepare_api_service_create,
        prepare_update=keep_status,
        validate=validate_api_service,
        validate_update=update(validate_api_service),
        parts={"status": PartRules(keep_all_but_status, update(_validate_status))},
        name_errors=names.path_segment_errors,
        needs_revision_on_update=True,
    ),
    printer=printer(
        NAME,
        column(
            "Service",
            "spec.service",
            absent="Local",
            show=_service_text,
            description="The reference to the service that hosts this API endpoint.",
        ),
        column("Available", _availability, description="Whether this service is available."),
        AGE,
    ),
    subresources=status_subresource(),
)
