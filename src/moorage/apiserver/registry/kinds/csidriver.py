"""CSIDrivers. Source: storage defaults, validation and strategy of Kubernetes 1.37."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import AGE, NAME, age_of, joined, name_of
from moorage.apiserver.registry.columns.volumes import UNSET
from moorage.apiserver.registry.kind import Column, Kind, Obj, Printer, Served, Strategy, get_spec
from moorage.apiserver.registry.validation.projections import token_lifetime_errors

_TYPES = "io.k8s.api.storage.v1"
_DEFAULTS: dict[str, Any] = {
    "attachRequired": True,
    "podInfoOnMount": False,
    "storageCapacity": False,
    "fsGroupPolicy": "ReadWriteOnceWithFSType",
    "requiresRepublish": False,
    "seLinuxMount": False,
}
_LIFECYCLES = ("Persistent", "Ephemeral")
_GROUP_POLICIES = ("File", "None", "ReadWriteOnceWithFSType")
_LEAST_UPDATE_SECONDS = 10
_TOKENS_IN_SECRETS = (
    "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to "
    "prevent possible logging of tokens in volume attributes"
)


def default_driver(driver: Obj) -> None:
    """Set the API defaults of a CSIDriver."""
    spec = driver.setdefault("spec", {})
    for field, value in _DEFAULTS.items():
        spec.setdefault(field, value)
    spec.setdefault("volumeLifecycleModes", ["Persistent"])


def prepare_driver(driver: Obj) -> None:
    """Drop the field of an alpha feature from a new CSIDriver."""
    driver["spec"].pop("preventPodSchedulingIfMissing", None)


def prepare_driver_update(new: Obj, old: Obj) -> None:
    """Drop the field of an alpha feature, unless it is in use."""
    if "preventPodSchedulingIfMissing" not in old["spec"]:
        prepare_driver(new)


def validate_driver(driver: Obj) -> list[FieldError]:
    """Return the errors of a new CSIDriver."""
    spec, path = driver["spec"], "spec"
    policy, modes = spec["fsGroupPolicy"], spec["volumeLifecycleModes"]
    errors: list[FieldError] = []
    if policy not in _GROUP_POLICIES:
        errors.append(FieldError.not_supported(f"{path}.fsGroupPolicy", policy, _GROUP_POLICIES))
    requests = spec.get("tokenRequests", [])
    errors += _token_errors(requests, f"{path}.tokenRequests")
    at = f"{path}.volumeLifecycleModes"
    errors += [
        FieldError.not_supported(at, mode, _LIFECYCLES) for mode in modes if mode not in _LIFECYCLES
    ]
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < _LEAST_UPDATE_SECONDS:
        at = f"{path}.nodeAllocatableUpdatePeriodSeconds"
        detail = "must be greater than or equal to 10 seconds"
        errors.append(FieldError.invalid(at, period, detail))
    in_secrets = spec.get("serviceAccountTokenInSecrets")
    if in_secrets is not None and not requests:
        detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        at = f"{path}.serviceAccountTokenInSecrets"
        errors.append(FieldError.invalid(at, in_secrets, detail))
    return errors


def validate_driver_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update: how volumes are attached, and which there are, stays."""
    spec, was = new["spec"], old["spec"]
    errors = validate_driver(new)
    # Upstream misspells the first path.
    for field, path in (
        ("attachRequired", "spec.attachedRequired"),
        ("volumeLifecycleModes", "spec.volumeLifecycleModes"),
    ):
        if spec.get(field) != was.get(field):
            errors.append(FieldError.invalid(path, spec.get(field), "field is immutable"))
    return errors


def _token_errors(requests: list[Obj], path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, request in enumerate(requests):
        at, audience = f"{path}[{index}]", request.get("audience", "")
        if audience in seen:
            yield FieldError.duplicate(f"{at}.audience", audience)
            continue
        seen.add(audience)
        yield from token_lifetime_errors(request, at)


def warn_driver(driver: Obj, old: Obj | None) -> list[str]:
    """Return the warning about new token requests whose tokens are not in secrets."""
    spec = driver["spec"]
    requests = spec.get("tokenRequests", [])
    before = old["spec"].get("tokenRequests", []) if old is not None else []
    if requests == before or "serviceAccountTokenInSecrets" in spec:
        return []
    return [_TOKENS_IN_SECRETS] if requests else []


def _cells(driver: Obj, now: float) -> list[Any]:
    spec = driver.get("spec", {})
    requests = spec.get("tokenRequests")
    return [
        name_of(driver),
        spec.get("attachRequired", True),
        spec.get("podInfoOnMount", False),
        spec.get("storageCapacity", False),
        UNSET if requests is None else ",".join(one.get("audience", "") for one in requests),
        spec.get("requiresRepublish", False),
        joined(spec.get("volumeLifecycleModes", ())),
        age_of(driver, now),
    ]


_SPEC = f"{_TYPES}.CSIDriverSpec"
_PRINTER = Printer(
    columns=(
        NAME,
        Column("AttachRequired", "boolean", documented_by=f"{_SPEC}.attachRequired"),
        Column("PodInfoOnMount", "boolean", documented_by=f"{_SPEC}.podInfoOnMount"),
        Column("StorageCapacity", "boolean", documented_by=f"{_SPEC}.storageCapacity"),
        Column("TokenRequests", documented_by=f"{_SPEC}.tokenRequests"),
        Column("RequiresRepublish", "boolean", documented_by=f"{_SPEC}.requiresRepublish"),
        Column("Modes", documented_by=f"{_SPEC}.volumeLifecycleModes"),
        AGE,
    ),
    cells=_cells,
)

CSI_DRIVER = Kind(
    name="CSIDriver",
    plural="csidrivers",
    served=(Served(group="storage.k8s.io", version="v1", type=f"{_TYPES}.CSIDriver"),),
    is_namespaced=False,
    strategy=Strategy(
        default=default_driver,
        prepare_create=prepare_driver,
        prepare_update=prepare_driver_update,
        validate=validate_driver,
        validate_update=validate_driver_update,
        warn=warn_driver,
        spec_of=get_spec,
        counts_creation=False,
        returns_deleted=True,
        needs_revision_on_update=True,
    ),
    printer=_PRINTER,
)
