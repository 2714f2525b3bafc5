"""Validation of CustomResourceDefinitions, apart from their versions and schemas."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.customresourcedefinition.conditions import (
    approval_errors,
    is_established,
)
from moorage.apiserver.registry.kinds.customresourcedefinition.versions import (
    part_errors,
    schema_of,
    selectable_errors,
    shared_fields,
    version_errors,
)
from moorage.apiserver.registry.validation.repeated import repeated
from moorage.apiserver.registry.validation.webhook_client import ca_bundle_errors, client_errors

_SCOPES = ("Cluster", "Namespaced")
_STRATEGIES = ("None", "Webhook")
_REVIEW_VERSIONS = ("v1", "v1beta1")


def validate_definition(definition: Obj) -> list[FieldError]:
    """Return the errors of a new CustomResourceDefinition."""
    return [
        *_object_name_errors(definition),
        *_spec_errors(definition["spec"], permits_any_bundle=True),
        *_status_errors(definition),
        *_stored_version_errors(definition),
        *approval_errors(definition, None),
        *_unknown_field_errors(definition["spec"]),
    ]


def validate_definition_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of a CustomResourceDefinition."""
    spec, was = new["spec"], old["spec"]
    errors = [*_spec_errors(spec, permits_any_bundle=_permits_any_bundle(old))]
    if is_established(old):
        errors += _changed(spec, was, "scope")
        errors += _changed(spec.get("names", {}), was.get("names", {}), "kind", "names.")
    errors += _changed(spec, was, "group")
    errors += _changed(spec.get("names", {}), was.get("names", {}), "plural", "names.")
    errors += _status_errors(new)
    errors += _stored_version_errors(new)
    errors += approval_errors(new, old)
    if not was.get("preserveUnknownFields"):
        errors += _unknown_field_errors(spec)
    return errors


def validate_definition_status(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of a definition's status."""
    del old
    return [*_status_errors(new)]


def _changed(new: Obj, old: Obj, field: str, prefix: str = "") -> list[FieldError]:
    value = new.get(field, "")
    if value == old.get(field, ""):
        return []
    return [FieldError.invalid(f"spec.{prefix}{field}", value, "field is immutable")]


def _object_name_errors(definition: Obj) -> Iterator[FieldError]:
    spec = definition["spec"]
    expected = f"{spec.get('names', {}).get('plural', '')}.{spec.get('group', '')}"
    for field in ("generateName", "name"):
        value = definition["metadata"].get(field, "")
        if value and value != expected:
            yield FieldError.invalid(
                f"metadata.{field}", value, 'must be spec.names.plural+"."+spec.group'
            )


def _spec_errors(spec: Obj, *, permits_any_bundle: bool) -> Iterator[FieldError]:
    shared = shared_fields(spec.get("versions", []))
    yield from _group_errors(spec.get("group", ""))
    yield from _choice_errors("spec.scope", spec.get("scope", ""), _SCOPES)
    yield from version_errors(spec, shared)
    wanted = spec.get("names", {})
    for field in ("plural", "singular", "kind", "listKind"):
        if not wanted.get(field):
            yield FieldError.required(f"spec.names.{field}")
    yield from _names_errors(wanted, "spec.names")
    yield from part_errors(
        shared.get("validation"),
        shared,
        "spec",
        schema_path="spec.validation",
        has_status=_has_status(spec),
    )
    if fields := shared.get("selectableFields"):
        schema = schema_of(shared.get("validation"))
        if schema is None:
            yield FieldError.invalid(
                "spec.selectableFields", "", "may only be set when validations.schema is included"
            )
        else:
            yield from selectable_errors(
                fields, schema, "spec.selectableFields", "spec.schema.openAPIV3Schema"
            )
    yield from _conversion_errors(spec, permits_any_bundle=permits_any_bundle)


def _has_status(spec: Obj) -> bool:
    return any("status" in version.get("subresources", {}) for version in spec.get("versions", ()))


def _group_errors(group: str) -> Iterator[FieldError]:
    if not group:
        yield FieldError.required("spec.group")
    elif details := names.dns_subdomain_errors(group):
        yield FieldError.invalid("spec.group", group, ",".join(details))
    elif "." not in group:
        yield FieldError.invalid("spec.group", group, "should be a domain with at least one dot")


def _choice_errors(path: str, value: str, choices: tuple[str, ...]) -> Iterator[FieldError]:
    if not value:
        yield FieldError.required(path)
    elif value not in choices:
        yield FieldError.not_supported(path, value, choices)


def _names_errors(wanted: Obj, path: str) -> Iterator[FieldError]:
    for field in ("plural", "singular"):
        value = wanted.get(field, "")
        if value and (details := names.dns_1035_label_errors(value)):
            yield FieldError.invalid(f"{path}.{field}", value, ",".join(details))
    for field in ("kind", "listKind"):
        value = wanted.get(field, "")
        if value and (details := names.dns_1035_label_errors(value.lower())):
            yield FieldError.invalid(
                f"{path}.{field}",
                value,
                f"may have mixed case, but should otherwise match: {','.join(details)}",
            )
    yield from _name_list_errors(wanted, path, "shortNames")
    if wanted.get("kind") and wanted["kind"] == wanted.get("listKind"):
        yield FieldError.invalid(
            f"{path}.listKind", wanted["listKind"], "kind and listKind may not be the same"
        )
    yield from _name_list_errors(wanted, path, "categories")


def _name_list_errors(wanted: Obj, path: str, field: str) -> Iterator[FieldError]:
    for index, value in enumerate(wanted.get(field, ())):
        if details := names.dns_1035_label_errors(value):
            yield FieldError.invalid(f"{path}.{field}[{index}]", value, ",".join(details))


def _conversion_errors(spec: Obj, *, permits_any_bundle: bool) -> Iterator[FieldError]:
    conversion, path = spec.get("conversion", {}), "spec.conversion"
    strategy, webhook = conversion.get("strategy", ""), conversion.get("webhook", {})
    client, versions = webhook.get("clientConfig"), webhook.get("conversionReviewVersions", [])
    if strategy != "None" and spec.get("preserveUnknownFields"):
        yield FieldError.invalid(
            f"{path}.strategy", strategy, "must be None if spec.preserveUnknownFields is true"
        )
    yield from _choice_errors(f"{path}.strategy", strategy, _STRATEGIES)
    if strategy != "Webhook":
        detail = "should not be set when strategy is not set to Webhook"
        if client is not None:
            yield FieldError.forbidden(f"{path}.webhookClientConfig", detail)
        if versions:
            yield FieldError.forbidden(f"{path}.conversionReviewVersions", detail)
        return
    if client is None:
        yield FieldError.required(
            f"{path}.webhookClientConfig", "required when strategy is set to Webhook"
        )
    else:
        yield from client_errors(client, f"{path}.webhookClientConfig")
        bundle = client.get("caBundle", "")
        if bundle and not permits_any_bundle:
            yield from ca_bundle_errors(bundle, f"{path}.webhookClientConfig.caBundle")
    yield from _review_version_errors(versions, f"{path}.conversionReviewVersions")


def _review_version_errors(versions: list[str], path: str) -> Iterator[FieldError]:
    if not versions:
        yield FieldError.required(path)
        return
    repeats = repeated(versions)
    for index, version in enumerate(versions):
        if index in repeats:
            yield FieldError.invalid(f"{path}[{index}]", version, "duplicate version")
            continue
        for detail in names.dns_1035_label_errors(version):
            yield FieldError.invalid(f"{path}[{index}]", version, detail)
    if not set(versions) & set(_REVIEW_VERSIONS):
        yield FieldError.invalid(
            path, versions, f"must include at least one of {', '.join(_REVIEW_VERSIONS)}"
        )


def _permits_any_bundle(old: Obj) -> bool:
    """Return whether the CA bundle may be invalid: until established, or when it was."""
    if not is_established(old):
        return True
    webhook = old["spec"].get("conversion", {}).get("webhook", {})
    bundle = webhook.get("clientConfig", {}).get("caBundle", "")
    return bool(bundle and ca_bundle_errors(bundle, ""))


def _status_errors(definition: Obj) -> Iterator[FieldError]:
    accepted = definition.get("status", {}).get("acceptedNames", {})
    return _names_errors(accepted, "status.acceptedNames")


def _stored_version_errors(definition: Obj) -> Iterator[FieldError]:
    path, stored = "status.storedVersions", definition.get("status", {}).get("storedVersions", [])
    if not stored:
        yield FieldError.invalid(path, None, "must have at least one stored version")
        return
    versions = definition["spec"].get("versions", [])
    missing = set(stored)
    for version in versions:
        if version.get("storage") and version.get("name", "") not in missing:
            yield FieldError.invalid(
                path, stored, f"must have the storage version {version.get('name', '')}"
            )
        missing -= {version.get("name", "")}
    for index, name in enumerate(stored):
        if name in missing:
            yield FieldError.invalid(
                f"{path}[{index}]",
                name,
                f"missing from spec.versions; {name} was previously a storage version, and must "
                "remain in spec.versions until a storage migration ensures no data remains "
                f"persisted in {name} and removes {name} from status.storedVersions",
            )


def _unknown_field_errors(spec: Obj) -> list[FieldError]:
    if not spec.get("preserveUnknownFields"):
        return []
    return [
        FieldError.invalid(
            "spec.preserveUnknownFields",
            True,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in "
            "spec.versions[*].schema instead",
        )
    ]
