"""CustomResourceDefinitions, without their decoding."""

from __future__ import annotations

import base64
import copy
from typing import Any

import pytest

from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.customresourcedefinition import CUSTOM_RESOURCE_DEFINITION
from tests.apiserver.registry.kinds.rows import columns, row

STRATEGY = CUSTOM_RESOURCE_DEFINITION.strategy
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "string"}}},
        "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
    },
}
VERSION = {
    "name": "v1",
    "served": True,
    "storage": True,
    "schema": {"openAPIV3Schema": SCHEMA},
}
BASE = {
    "metadata": {"name": "foos.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "foos", "kind": "Foo"},
        "versions": [VERSION],
    },
}
LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
ESTABLISHED = {"conditions": [{"type": "Established", "status": "True"}]}
WEBHOOK = {
    "strategy": "Webhook",
    "webhook": {"clientConfig": {"url": "https://a.b"}, "conversionReviewVersions": ["v1"]},
}


def definition(spec: Obj | None = None, version: Obj | None = None, **fields: Any) -> Obj:
    """Return the base with fields of the specification, of its version and at the top replaced."""
    obj = copy.deepcopy({**BASE, **fields})
    obj["spec"] |= copy.deepcopy(spec or {})
    for one in obj["spec"]["versions"]:
        one |= copy.deepcopy(version or {})
    return obj


def schema_with(schema: Obj) -> Obj:
    return {"schema": {"openAPIV3Schema": SCHEMA | schema}}


def created(obj: Obj) -> list[str]:
    STRATEGY.default(obj)
    STRATEGY.prepare_create(obj)
    return _texts(STRATEGY.validate(obj))


def updated(new: Obj, old: Obj) -> list[str]:
    for obj in (new, old):
        STRATEGY.default(obj)
    STRATEGY.prepare_update(new, old)
    return _texts(STRATEGY.validate_update(new, old))


def _texts(errors: list[FieldError]) -> list[str]:
    return [str(error) for error in errors]


def test_a_definition_is_legal() -> None:
    assert created(definition()) == []


def test_defaults() -> None:
    obj = definition()
    STRATEGY.default(obj)
    assert obj["spec"]["names"] == {
        "plural": "foos", "kind": "Foo", "singular": "foo", "listKind": "FooList",
    }  # fmt: skip
    assert obj["spec"]["conversion"] == {"strategy": "None"}
    assert obj["status"] == {"storedVersions": ["v1"]}


def test_a_webhook_s_service_has_port_443() -> None:
    webhook = {"clientConfig": {"service": {"name": "s", "namespace": "n"}}}
    obj = definition({"conversion": {"strategy": "Webhook", "webhook": webhook}})
    STRATEGY.default(obj)
    service = obj["spec"]["conversion"]["webhook"]["clientConfig"]["service"]
    assert service["port"] == 443


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"group": ""}, ["spec.group: Required value"]),
        ({"group": "one"},
         ['spec.group: Invalid value: "one": should be a domain with at least one dot']),
        ({"scope": ""}, ["spec.scope: Required value"]),
        ({"scope": "Node"},
         ['spec.scope: Unsupported value: "Node": supported values: "Cluster", "Namespaced"']),
        ({"names": {"kind": "Foo"}}, ["spec.names.plural: Required value"]),
        ({"names": {"plural": "foos"}},
         ["spec.names.singular: Required value", "spec.names.kind: Required value",
          "spec.names.listKind: Required value"]),
        ({"names": {"plural": "foos", "kind": "F_"}},
         [f'spec.names.singular: Invalid value: "f_": {LABEL}',
          'spec.names.kind: Invalid value: "F_": may have mixed case, but should otherwise match: '
          f"{LABEL}",
          'spec.names.listKind: Invalid value: "F_List": may have mixed case, but should otherwise '
          f"match: {LABEL}"]),
        ({"names": {"plural": "foos", "kind": "Foo", "listKind": "Foo"}},
         ['spec.names.listKind: Invalid value: "Foo": kind and listKind may not be the same']),
        ({"names": {"plural": "foos", "kind": "Foo", "shortNames": ["a", "1"],
                    "categories": ["1"]}},
         [f'spec.names.shortNames[1]: Invalid value: "1": {LABEL}',
          f'spec.names.categories[0]: Invalid value: "1": {LABEL}']),
        ({"versions": []},
         ["spec.versions: Invalid value: null: must have exactly one version marked as storage "
          "version",
          "status.storedVersions: Invalid value: null: must have at least one stored version"]),
        ({"versions": [VERSION | {"name": "v2", "storage": False}, VERSION | {"name": "V"}]},
         [f'spec.versions[1].name: Invalid value: "V": {LABEL}']),
        ({"versions": [{"name": "v1", "served": True, "storage": True}]},
         ["spec.versions[0].schema.openAPIV3Schema: Required value"]),
        ({"preserveUnknownFields": True},
         ["spec.preserveUnknownFields: Invalid value: true: cannot set to true, set "
          "x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"]),
        ({"conversion": {"strategy": "X"}},
         ['spec.conversion.strategy: Unsupported value: "X": supported values: "None", "Webhook"']),
        ({"conversion": {"strategy": "None", "webhook": WEBHOOK["webhook"]}},
         ["spec.conversion.webhookClientConfig: Forbidden: should not be set when strategy is not "
          "set to Webhook",
          "spec.conversion.conversionReviewVersions: Forbidden: should not be set when strategy is "
          "not set to Webhook"]),
        ({"conversion": {"strategy": "Webhook"}},
         ["spec.conversion.webhookClientConfig: Required value: required when strategy is set to "
          "Webhook",
          "spec.conversion.conversionReviewVersions: Required value"]),
        ({"conversion": {"strategy": "Webhook", "webhook": {
            "clientConfig": {}, "conversionReviewVersions": ["v2", "v2", "1"]}}},
         ["spec.conversion.webhookClientConfig: Required value: exactly one of url or service is "
          "required",
          'spec.conversion.conversionReviewVersions[1]: Invalid value: "v2": duplicate version',
          f'spec.conversion.conversionReviewVersions[2]: Invalid value: "1": {LABEL}',
          'spec.conversion.conversionReviewVersions: Invalid value: ["v2","v2","1"]: must include '
          "at least one of v1, v1beta1"]),
    ],
)  # fmt: skip
def test_specification(spec: Obj, says: list[str]) -> None:
    obj = definition(spec)
    names, group = obj["spec"]["names"], obj["spec"]["group"]
    obj["metadata"]["name"] = f"{names.get('plural', '')}.{group}"
    assert created(obj) == says


def test_the_name_is_the_plural_and_the_group() -> None:
    assert created(definition(metadata={"name": "x"})) == [
        'metadata.name: Invalid value: "x": must be spec.names.plural+"."+spec.group'
    ]


def test_versions_are_unique_and_one_is_stored() -> None:
    first, second, *_ = created(definition({"versions": [VERSION, VERSION]}))
    shown = (
        '{"Name":"v1","Served":true,"Storage":true,"Deprecated":false,"DeprecationWarning":null,'
        '"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,"SelectableFields":null}'
    )
    listed = f"spec.versions: Invalid value: [{shown},{shown}]"
    assert first == f"{listed}: must contain unique version names"
    assert second == f"{listed}: must have exactly one version marked as storage version"


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ({"deprecationWarning": "w"},
         ['spec.versions[0].deprecationWarning: Invalid value: "w": can only be set for deprecated '
          "versions"]),
        ({"deprecated": True, "deprecationWarning": ""},
         ['spec.versions[0].deprecationWarning: Invalid value: "": must not be an empty string']),
        ({"deprecated": True, "deprecationWarning": "é\t"},
         ['spec.versions[0].deprecationWarning: Invalid value: "é\\t": must only contain printable '
          "UTF-8 characters; non-printable character found at index 2"]),
        ({"deprecated": True, "deprecationWarning": "a" * 257},
         [f'spec.versions[0].deprecationWarning: Invalid value: "{"a" * 257}": must be <= 256 '
          "characters long"]),
        ({"subresources": {"status": {}, "scale": {}}},
         ["spec.subresources.scale.specReplicasPath: Required value",
          "spec.subresources.scale.statusReplicasPath: Required value"]),
        ({"subresources": {"scale": {
            "specReplicasPath": "x", "statusReplicasPath": ".spec.x", "labelSelectorPath": ".x"}}},
         ['spec.subresources.scale.specReplicasPath: Invalid value: "x": must be a simple json '
          "path starting with .",
          'spec.subresources.scale.statusReplicasPath: Invalid value: ".spec.x": should be a json '
          "path under .status",
          'spec.subresources.scale.labelSelectorPath: Invalid value: ".x": should be a json path '
          "under either .spec or .status"]),
        ({"additionalPrinterColumns": [{}]},
         ["spec.additionalPrinterColumns[0].name: Required value",
          "spec.additionalPrinterColumns[0].type: Required value: must be one of "
          "boolean,date,integer,number,string",
          "spec.additionalPrinterColumns[0].JSONPath: Required value"]),
        ({"additionalPrinterColumns": [
            {"name": "a", "type": "x", "format": "y", "jsonPath": "z"}]},
         ['spec.additionalPrinterColumns[0].type: Invalid value: "x": must be one of '
          "boolean,date,integer,number,string",
          'spec.additionalPrinterColumns[0].format: Invalid value: "y": must be one of '
          "byte,date,date-time,double,float,int32,int64,password",
          'spec.additionalPrinterColumns[0].JSONPath: Invalid value: "z": must be a simple json '
          "path starting with ."]),
        ({"selectableFields": [{"jsonPath": ".spec.size"}, {"jsonPath": ".spec.size"},
                               {"jsonPath": ""}, {"jsonPath": ".spec"}, {"jsonPath": ".spec.x"},
                               {"jsonPath": ".metadata.name"}, {"jsonPath": "spec['size']"},
                               {"jsonPath": ".spec['size']"}]},
         ['spec.selectableFields[1].jsonPath: Duplicate value: ".spec.size"',
          "spec.selectableFields[2].jsonPath: Required value",
          'spec.selectableFields[3].jsonPath: Invalid value: ".spec": must point to a field of '
          "type string, boolean or integer. Enum string fields and strings with formats are "
          "allowed.",
          'spec.selectableFields[4].jsonPath: Invalid value: ".spec.x": is an invalid path: does '
          "not refer to a valid field",
          'spec.selectableFields[5].jsonPath: Invalid value: ".metadata.name": must not point to '
          "fields in metadata",
          """spec.selectableFields[6].jsonPath: Invalid value: "spec['size']": is an invalid """
          "path: expected [ or . but got: spec",
          """spec.selectableFields[7].jsonPath: Invalid value: ".spec['size']": is an invalid """
          "path: array notation is not allowed"]),
        (schema_with({"nullable": True}),
         ["spec.validation.openAPIV3Schema.nullable: Forbidden: nullable cannot be true at the "
          "root"]),
        (schema_with({"type": "string"}),
         ['spec.validation.openAPIV3Schema.type: Invalid value: "string": must be object at the '
          "root"]),
    ],
)  # fmt: skip
def test_version(version: Obj, says: list[str]) -> None:
    assert created(definition(version=version)) == says


def test_more_than_eight_selectable_fields() -> None:
    fields = {f"f{number}": {"type": "string"} for number in range(9)}
    version = schema_with({"properties": fields})
    version["selectableFields"] = [{"jsonPath": f".{name}"} for name in fields]
    assert created(definition(version=version)) == [
        "spec.selectableFields: Too many: 9: must have at most 8 items"
    ]


def test_what_versions_differ_in_is_reported_at_the_version() -> None:
    broken = schema_with({"properties": {"a": {}}})
    old = {"name": "v2", "served": True, "storage": False, **broken}
    selectable = {"selectableFields": [{"jsonPath": ".x"}]}
    assert created(definition({"versions": [VERSION, old | selectable]})) == [
        "spec.versions[1].schema.openAPIV3Schema.properties[a].type: Required value: must not be "
        "empty for specified object fields",
        'spec.versions[1].selectableFields[0].jsonPath: Invalid value: ".x": is an invalid path: '
        "does not refer to a valid field",
    ]


def test_the_root_of_a_schema_with_status() -> None:
    version = schema_with({"type": "string"}) | {"subresources": {"status": {}}}
    assert created(definition(version=version))[0] == (
        'spec.validation.openAPIV3Schema.type: Invalid value: "string": only "object" is allowed '
        "as the type at the root of the schema if the status subresource is enabled"
    )
    version = schema_with({"maxProperties": 3}) | {"subresources": {"status": {}}}
    (error,) = created(definition(version=version))
    assert error.startswith("spec.validation.openAPIV3Schema: Invalid value: {")
    assert error.endswith(
        "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum "
        "MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items "
        "Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields are allowed "
        "at the root of the schema if the status subresource is enabled"
    )


@pytest.mark.parametrize(
    ("approval", "says"),
    [
        ("", "Required value: protected groups must have approval annotation "
             '"api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111'),
        ("yes", 'Invalid value: "yes": protected groups must have approval annotation '
                '"api-approved.kubernetes.io" with either a URL or a reason starting with '
                '"unapproved", see https://github.com/kubernetes/enhancements/pull/1111'),
        ("https://a.b/1", None),
        ("unapproved, a test", None),
    ],
)  # fmt: skip
def test_groups_of_kubernetes_need_an_approval(approval: str, says: str | None) -> None:
    annotations = {"api-approved.kubernetes.io": approval} if approval else {}
    metadata = {"name": "foos.x.k8s.io", "annotations": annotations}
    path = "metadata.annotations[api-approved.kubernetes.io]"
    new = definition({"group": "x.k8s.io"}, metadata=metadata)
    assert created(copy.deepcopy(new)) == ([] if says is None else [f"{path}: {says}"])
    assert updated(new, copy.deepcopy(new)) == []


def test_an_established_definition_keeps_scope_and_kind() -> None:
    spec = {"scope": "Cluster", "names": {"plural": "bars", "kind": "Bar", "listKind": "L"}}
    kept = [
        'spec.scope: Invalid value: "Cluster": field is immutable',
        'spec.names.kind: Invalid value: "Bar": field is immutable',
    ]
    plural = ['spec.names.plural: Invalid value: "bars": field is immutable']
    assert updated(definition(spec), definition()) == plural
    assert updated(definition(spec), definition(status=ESTABLISHED)) == [*kept, *plural]


def test_the_group_never_changes() -> None:
    assert updated(definition({"group": "b.c"}), definition()) == [
        'spec.group: Invalid value: "b.c": field is immutable'
    ]


def test_a_version_that_may_have_objects_stays() -> None:
    new = definition({"versions": [VERSION | {"name": "v2"}]})
    assert updated(new, definition()) == [
        'status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was '
        "previously a storage version, and must remain in spec.versions until a storage migration "
        "ensures no data remains persisted in v1 and removes v1 from status.storedVersions"
    ]


def test_an_update_adds_the_storage_version_and_keeps_the_old_object() -> None:
    versions = [VERSION | {"storage": False}, VERSION | {"name": "v2"}]
    new, old = definition({"versions": versions}), definition()
    assert updated(new, old) == []
    assert new["status"]["storedVersions"] == ["v1", "v2"]
    assert old["status"]["storedVersions"] == ["v1"]


def test_a_ca_bundle_is_checked_once_established() -> None:
    conversion = copy.deepcopy(WEBHOOK)
    bundle = base64.b64encode(b"x").decode()
    conversion["webhook"]["clientConfig"]["caBundle"] = bundle  # type: ignore[index]
    new = definition({"conversion": conversion})
    assert created(copy.deepcopy(new)) == []
    assert updated(copy.deepcopy(new), definition(status=ESTABLISHED)) == [
        f'spec.conversion.webhookClientConfig.caBundle: Invalid value: "{bundle}": unable to load '
        "root certificates: unable to parse bytes as PEM block"
    ]
    before = definition({"conversion": conversion}, status=ESTABLISHED)
    assert updated(copy.deepcopy(new), before) == []


def test_a_status_has_names_of_labels() -> None:
    new = definition(status={"acceptedNames": {"plural": "1"}})
    errors = STRATEGY.parts["status"].validate(new, definition())
    assert [str(error) for error in errors] == [
        f'status.acceptedNames.plural: Invalid value: "1": {LABEL}'
    ]


def test_new_formats_and_sets_are_warned_about() -> None:
    items = {"type": "object", "x-kubernetes-map-type": "atomic"}
    properties = {
        "a": {"type": "string", "format": "date-time"},
        "b": {"type": "string", "format": "x"},
        "c": {"type": "integer", "format": "float"},
        "d": {"type": "array", "x-kubernetes-list-type": "set", "items": items},
    }
    new = definition(version=schema_with({"properties": properties}))
    one = definition(version=schema_with({"properties": {"b": properties["b"]}}))
    set_warning = (
        'x-kubernetes-list-type: set for items of type "object" is not supported by server-side '
        "apply or CEL validation rules"
    )
    formats = ['unrecognized format "x"', 'unrecognized format "float"']
    assert STRATEGY.warn(new, None) == [*formats, set_warning]
    assert STRATEGY.warn(new, one) == [formats[1], set_warning]
    assert STRATEGY.warn(new, new) == []


def test_row() -> None:
    versions = [VERSION | {"name": "v2"}, {"name": "v1", "served": True}, {"name": "v0"}]
    names = {"kind": "Foo", "shortNames": ["f", "fo"]}
    spec = BASE["spec"] | {"versions": versions, "names": names}  # type: ignore[operator]
    assert row("CustomResourceDefinition", {"spec": spec, "status": ESTABLISHED}) == [
        "x", "Namespaced", "v1,v2(storage)", "2026-01-01T00:00:00Z", "example.com", "Foo", "f,fo",
        True,
    ]  # fmt: skip


def test_columns() -> None:
    assert columns("CustomResourceDefinition") == (
        "Name Scope Versions Created_At | Group Kind ShortNames Established"
    )
