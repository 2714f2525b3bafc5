"""StorageVersionMigrations. Source: storagemigration validation of Kubernetes 1.36."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.columns import NAME, Shown, column, printer
from moorage.apiserver.registry.declare.rules import (
    IMMUTABLE,
    Check,
    required_as,
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
from moorage.apiserver.registry.preparation import drop_status, keep_all_but_status, keep_status
from moorage.apiserver.registry.validation.conditions import condition_errors

_TYPES = "io.k8s.api.storagemigration.v1"
_REVISION = re.compile(r"[1-9][0-9]*")
_CONDITION = ("type", "status", "observedGeneration", "lastTransitionTime", "reason", "message")
"""Fields of a condition, in the order in which errors show them."""

_STATES = ("Running", "Failed", "Succeeded")


def _as_one(syntax: Callable[[str], list[str]]) -> Check:
    """Return the check by a syntax whose complaints make one error; empty texts are right."""

    def check(text: str, path: str) -> Iterator[FieldError]:
        if text and (details := syntax(text)):
            yield FieldError.invalid(path, text, ",".join(details))

    return check


validate_migration = validator(
    (
        "spec.resource.resource",
        required_as("resource is required to be set"),
        _as_one(names.dns_1035_label_errors),
    ),
    ("spec.resource.group", _as_one(names.dns_subdomain_errors)),
)


def _changed_spec(new: Obj, old: Obj) -> Iterator[FieldError]:
    """The specification never changes."""
    spec = new.get("spec", {})
    if spec != old.get("spec", {}):
        resource = spec.get("resource", {})
        shown = {field: resource.get(field, "") for field in ("group", "resource")}
        yield FieldError.invalid("spec", {"Resource": shown}, IMMUTABLE)


def validate_migration_status(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of the status, which never takes back an end."""
    status, was = new.get("status", {}), old.get("status", {})
    path = "status.resourceVersion"
    revision, before = status.get("resourceVersion", ""), was.get("resourceVersion", "")
    errors: list[FieldError] = []
    if revision and not _REVISION.fullmatch(revision):
        errors.append(
            FieldError.invalid(path, revision, f"resource version is not well formed: {revision}")
        )
    errors += condition_errors(status.get("conditions", []), "status.conditions")
    if before and before != revision:
        errors.append(FieldError.invalid(path, revision, "field is immutable"))
    return errors + _end_errors(status, was)


def _end_errors(status: Obj, was: Obj) -> list[FieldError]:
    path = "status.conditions"
    shown = [
        {field: condition[field] for field in _CONDITION if field in condition}
        for condition in status.get("conditions", ())
    ] or None
    errors: list[FieldError] = []
    if _is_true(status, "Succeeded") and _is_true(status, "Failed"):
        detail = "Both success and failed conditions cannot be true at the same time"
        errors.append(FieldError.invalid(path, shown, detail))
    for state, name in (("Succeeded", "Success"), ("Failed", "Failed")):
        if _is_true(was, state) and not _is_true(status, state):
            errors.append(
                FieldError.invalid(
                    path, shown, f"{name} condition cannot be set to false once it is true"
                )
            )
    return errors


def _is_true(status: Obj, state: str) -> bool:
    for condition in status.get("conditions", ()):
        if condition.get("type") == state:
            return bool(condition.get("status") == "True")
    return False


def _resource_text(resource: Obj) -> str:
    name, group = resource.get("resource", ""), resource.get("group", "")
    return f"{name}.{group}" if group else str(name)


def _state_of(migration: Obj) -> str:
    state = "Unknown"
    for condition in migration.get("status", {}).get("conditions", ()):
        if condition.get("status") == "True" and condition.get("type") in _STATES:
            state = condition["type"]
    return state


STORAGE_VERSION_MIGRATION = Kind(
    name="StorageVersionMigration",
    plural="storageversionmigrations",
    served=(Served("storagemigration.k8s.io", "v1", f"{_TYPES}.StorageVersionMigration"),),
    is_namespaced=False,
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=keep_status,
        validate=validate_migration,
        validate_update=update(validate_migration, after=_changed_spec),
        parts={"status": PartRules(keep_all_but_status, validate_migration_status)},
        needs_revision_on_update=True,
    ),
    printer=printer(
        Shown(replace(NAME.column, format=""), NAME.cell),
        column(
            "Resource",
            "spec.resource",
            show=_resource_text,
            description="GroupResource to migrate",
        ),
        column("Status", _state_of, description="Status of the migration"),
    ),
    subresources=status_subresource(),
)
