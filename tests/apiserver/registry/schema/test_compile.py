"""Schema compiler."""

from __future__ import annotations

from moorage.apiserver.registry.schema import load_schema

SCHEMA = load_schema()
ADMISSION = "io.k8s.api.admissionregistration.v1"


def test_messages_inlined_at_two_levels_keep_their_numbers() -> None:
    named = SCHEMA[f"{ADMISSION}.NamedRuleWithOperations"]
    assert [(part.number, part.type) for part in named.inlined] == [
        (2, f"{ADMISSION}.RuleWithOperations")
    ]
    inner = SCHEMA[f"{ADMISSION}.RuleWithOperations"]
    assert [(part.number, part.type) for part in inner.inlined] == [(2, f"{ADMISSION}.Rule")]
    assert {field.name: field.number for field in SCHEMA[f"{ADMISSION}.Rule"].fields} == {
        "apiGroups": 1,
        "apiVersions": 2,
        "resources": 3,
        "scope": 4,
    }


def test_every_type_of_a_served_group_has_protobuf_numbers_but_the_metrics() -> None:
    """Metrics are answered in JSON to every client."""
    without = {
        name
        for name in SCHEMA.names()
        if not name.startswith("io.k8s.metrics.")
        and (type_ := SCHEMA[name]).fields
        and not type_.inlined
        and not any(field.number for field in type_.fields)
    }
    assert without == set()
