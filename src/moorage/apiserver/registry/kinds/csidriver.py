"""CSIDrivers. Source: storage defaults, validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import NONE, joined
from moorage.apiserver.registry.columns.volumes import UNSET
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.defaults import defaults
from moorage.apiserver.registry.declare.rules import (
    IMMUTABLE,
    at_least,
    each,
    one_of,
    update,
    validator,
    without_path,
)
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy, get_spec
from moorage.apiserver.registry.validation.projections import token_lifetime_errors

_TYPES = "io.k8s.api.storage.v1"
_TOKENS_IN_SECRETS = (
    "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to "
    "prevent possible logging of tokens in volume attributes"
)


default_driver = defaults(
    ("spec.attachRequired", True),
    ("spec.podInfoOnMount", False),
    ("spec.storageCapacity", False),
    ("spec.fsGroupPolicy", "ReadWriteOnceWithFSType"),
    ("spec.requiresRepublish", False),
    ("spec.seLinuxMount", False),
    ("spec.volumeLifecycleModes", ["Persistent"]),
)


def prepare_driver(driver: Obj) -> None:
    """Drop the field of an alpha feature from a new CSIDriver."""
    driver["spec"].pop("preventPodSchedulingIfMissing", None)


def prepare_driver_update(new: Obj, old: Obj) -> None:
    """Drop the field of an alpha feature, unless it is in use."""
    if "preventPodSchedulingIfMissing" not in old["spec"]:
        prepare_driver(new)


def _secret_errors(spec: Obj) -> Iterator[FieldError]:
    in_secrets = spec.get("serviceAccountTokenInSecrets")
    if in_secrets is not None and not spec.get("tokenRequests"):
        detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        yield FieldError.invalid("spec.serviceAccountTokenInSecrets", in_secrets, detail)


def _changes(new: Obj, old: Obj) -> Iterator[FieldError]:
    """How volumes are attached, and which there are, stays."""
    # Upstream misspells the first path.
    for field, path in (
        ("attachRequired", "spec.attachedRequired"),
        ("volumeLifecycleModes", "spec.volumeLifecycleModes"),
    ):
        value = new["spec"].get(field)
        if value != old["spec"].get(field):
            yield FieldError.invalid(path, value, IMMUTABLE)


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


def _audiences(requests: list[Obj]) -> str:
    return ",".join(request.get("audience", "") for request in requests)


validate_driver = validator(
    ("spec.fsGroupPolicy", one_of("File", "None", "ReadWriteOnceWithFSType")),
    ("spec.tokenRequests", _token_errors),
    ("spec.volumeLifecycleModes", each(one_of("Persistent", "Ephemeral"))),
    (
        "spec.nodeAllocatableUpdatePeriodSeconds",
        at_least(10, "must be greater than or equal to 10 seconds"),
    ),
    ("spec", without_path(_secret_errors)),
)
_SPEC = f"{_TYPES}.CSIDriverSpec"

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
        validate_update=update(validate_driver, after=_changes),
        warn=warn_driver,
        spec_of=get_spec,
        counts_creation=False,
        returns_deleted=True,
        needs_revision_on_update=True,
    ),
    printer=printer(
        NAME,
        column("AttachRequired", "spec.attachRequired", "boolean", of=_SPEC, absent=True),
        column("PodInfoOnMount", "spec.podInfoOnMount", "boolean", of=_SPEC),
        column("StorageCapacity", "spec.storageCapacity", "boolean", of=_SPEC),
        column("TokenRequests", "spec.tokenRequests", of=_SPEC, absent=UNSET, show=_audiences),
        column("RequiresRepublish", "spec.requiresRepublish", "boolean", of=_SPEC),
        column("Modes", "spec.volumeLifecycleModes", of=_SPEC, absent=NONE, show=joined),
        AGE,
    ),
)
