"""CSIDrivers, CSINodes and CSIStorageCapacities. Source: storage validation of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names, quantity
from moorage.api.errors import FieldError
from moorage.api.nodes import DEPRECATED
from moorage.apiserver.registry.columns.cells import NONE, joined
from moorage.apiserver.registry.columns.shared import UNSET
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.defaults import defaults
from moorage.apiserver.registry.declare.rules import (
    IMMUTABLE,
    NOT_NEGATIVE,
    always,
    at_least,
    each,
    follows,
    immutable,
    most_bytes,
    not_negative,
    one_of,
    required,
    satisfies,
    unique,
    update,
    validator,
    without_path,
)
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Served,
    Strategy,
    get_spec,
    status_subresource,
)
from moorage.apiserver.registry.preparation import drop_status, keep_spec, keep_status
from moorage.apiserver.registry.validation.go_shapes import CSI_NODE_DRIVER, go_struct
from moorage.apiserver.registry.validation.projections import token_lifetime_errors
from moorage.apiserver.registry.validation.scheduling import label_selector_errors
from moorage.apiserver.registry.validation.volume_sources import csi_driver_name_errors
from moorage.apiserver.registry.warnings import node_term_warnings

_TYPES = "io.k8s.api.storage.v1"
_TOKENS_IN_SECRETS = (
    "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to "
    "prevent possible logging of tokens in volume attributes"
)
_SPEC = f"{_TYPES}.CSIDriverSpec"
_TYPE = "io.k8s.api.storage.v1.CSIStorageCapacity"
_TOPOLOGY = "nodeTopology"

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

CSI_DRIVER = Kind(
    name="CSIDriver",
    plural="csidrivers",
    served=(Served("storage.k8s.io", "v1", f"{_TYPES}.CSIDriver"),),
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


def _topology_errors(keys: list[str], path: str) -> Iterator[FieldError]:
    path = path.rpartition(".")[0]  # Upstream names the driver here.
    seen: set[str] = set()
    for key in keys:
        if not key:
            yield FieldError.required(path)
        if key in seen:
            yield FieldError.duplicate(path, key)
        seen.add(key)
        for detail in names.qualified_name_errors(key):
            yield FieldError.invalid(path, key, detail)


def _changed_drivers(new: Obj, old: Obj) -> Iterator[FieldError]:
    """Drivers come and go; only their limits change."""
    before = {
        driver.get("name", ""): _fixed(driver) for driver in old.get("spec", {}).get("drivers", ())
    }
    for driver in map(_fixed, new.get("spec", {}).get("drivers", ())):
        if before.get(driver.get("name", ""), driver) != driver:
            yield FieldError.invalid("spec.drivers", go_struct(driver, CSI_NODE_DRIVER), IMMUTABLE)


def _fixed(driver: Obj) -> Obj:
    return {field: value for field, value in driver.items() if field != "allocatable"}


validate_csi_node = validator(
    ("spec.drivers[*].name", always(csi_driver_name_errors)),
    ("spec.drivers[*].nodeID", required, most_bytes(256, "must be 256 characters or less")),
    ("spec.drivers[*].allocatable.count", not_negative),
    ("spec.drivers[*].name", unique),
    ("spec.drivers[*].topologyKeys", _topology_errors),
)

CSI_NODE = Kind(
    name="CSINode",
    plural="csinodes",
    served=(Served("storage.k8s.io", "v1", "io.k8s.api.storage.v1.CSINode"),),
    is_namespaced=False,
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=keep_status,
        validate=validate_csi_node,
        validate_update=update(validate_csi_node, after=_changed_drivers),
        parts={"status": PartRules(prepare=keep_spec)},
        returns_deleted=True,
        needs_revision_on_update=True,
    ),
    printer=printer(
        NAME,
        column(
            "Drivers",
            "spec.drivers",
            "integer",
            show=len,
            description="Number of CSI drivers that the node has",
        ),
        AGE,
    ),
    subresources=status_subresource(),
)

validate_capacity = validator(
    (_TOPOLOGY, label_selector_errors),
    ("storageClassName", follows(names.dns_subdomain_errors)),
    ("capacity", satisfies(lambda size: quantity.parse(size).nano >= 0, NOT_NEGATIVE)),
)


def warn_capacity(capacity: Obj, old: Obj | None) -> list[str]:
    """Return the warnings about deprecated node labels in the topology."""
    del old
    topology = capacity.get(_TOPOLOGY, {})
    return [
        *node_term_warnings(topology, _TOPOLOGY),
        *(
            f"{_TOPOLOGY}.matchLabels.{label}: {DEPRECATED[label]}"
            for label in topology.get("matchLabels", ())
            if label in DEPRECATED
        ),
    ]


CSI_STORAGE_CAPACITY = Kind(
    name="CSIStorageCapacity",
    plural="csistoragecapacities",
    served=(Served("storage.k8s.io", "v1", _TYPE),),
    strategy=Strategy(
        validate=validate_capacity,
        validate_update=update(validate_capacity, after=immutable(_TOPOLOGY, "storageClassName")),
        warn=warn_capacity,
        needs_revision_on_update=True,
    ),
    printer=printer(
        NAME,
        column("StorageClassName", "storageClassName", of=_TYPE),
        column("Capacity", "capacity", of=_TYPE, absent=UNSET),
    ),
)
