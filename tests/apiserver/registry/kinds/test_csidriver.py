"""CSIDrivers."""

from __future__ import annotations

import copy

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import (
    KINDS,
    changed,
    creations,
    decoded,
    update_complaint,
)

KIND = "CSIDriver"
STRATEGY = KINDS[KIND].strategy
TOKENS = "spec.tokenRequests"
PERIOD = "spec.nodeAllocatableUpdatePeriodSeconds"
IN_SECRETS = "spec.serviceAccountTokenInSecrets"
ALPHA = "spec.preventPodSchedulingIfMissing"


def test_defaults() -> None:
    assert decoded(KINDS[KIND], changed(KIND))["spec"] == {
        "attachRequired": True,
        "podInfoOnMount": False,
        "storageCapacity": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "requiresRepublish": False,
        "seLinuxMount": False,
        "volumeLifecycleModes": ["Persistent"],
    }


test_rules = creations(KIND, is_exact=True, cases=[
    ({}, None),
    ({"spec.fsGroupPolicy": "Some"},
     'spec.fsGroupPolicy: Unsupported value: "Some": supported values: "File", "None", '
     '"ReadWriteOnceWithFSType"'),
    ({"spec.volumeLifecycleModes": ["Ephemeral", "Persistent"]}, None),
    ({"spec.volumeLifecycleModes": ["Long"]},
     'spec.volumeLifecycleModes: Unsupported value: "Long": supported values: "Persistent", '
     '"Ephemeral"'),
    ({PERIOD: 10}, None),
    ({PERIOD: 9}, f"{PERIOD}: Invalid value: 9: must be greater than or equal to 10 seconds"),
    ({TOKENS: [{}, {"audience": "a"}]}, None),
    ({TOKENS: [{"audience": "a"}, {"audience": "a", "expirationSeconds": 1}]},
     f'{TOKENS}[1].audience: Duplicate value: "a"'),
    ({TOKENS: [{"expirationSeconds": 599}]},
     f"{TOKENS}[0].expirationSeconds: Invalid value: 599: may not specify a duration less "
     "than 10 minutes"),
    ({TOKENS: [{"expirationSeconds": 2**32 + 1}]},
     f"{TOKENS}[0].expirationSeconds: Invalid value: 4294967297: may not specify a duration "
     "larger than 2^32 seconds"),
    ({IN_SECRETS: True, TOKENS: [{"audience": "a"}]}, None),
    ({IN_SECRETS: False},
     f"{IN_SECRETS}: Invalid value: false: serviceAccountTokenInSecrets is set but no "
     "tokenRequests are specified"),
])  # fmt: skip


def test_how_volumes_are_attached_stays() -> None:
    says = update_complaint(KIND, changed(KIND, {"spec.attachRequired": False}), changed(KIND))
    assert says == "spec.attachedRequired: Invalid value: false: field is immutable"
    new = changed(KIND, {"spec.volumeLifecycleModes": ["Ephemeral"]})
    says = update_complaint(KIND, new, changed(KIND))
    assert says == 'spec.volumeLifecycleModes: Invalid value: ["Ephemeral"]: field is immutable'
    new = changed(KIND, {"spec.requiresRepublish": True, "spec.podInfoOnMount": True})
    assert update_complaint(KIND, new, changed(KIND)) is None


def test_the_field_of_an_alpha_feature_is_dropped() -> None:
    plain, set_ = (decoded(KINDS[KIND], changed(KIND, sets)) for sets in ({}, {ALPHA: True}))
    created, updated, kept = (copy.deepcopy(set_) for _ in range(3))
    STRATEGY.prepare_create(created)
    STRATEGY.prepare_update(updated, plain)
    STRATEGY.prepare_update(kept, set_)
    assert created == updated == plain
    assert kept == set_


def test_tokens_outside_of_secrets_are_warned_about() -> None:
    plain = changed(KIND)
    tokens = changed(KIND, {TOKENS: [{"audience": "a"}]})
    assert STRATEGY.warn(plain, None) == []
    (warning,) = STRATEGY.warn(tokens, None)
    assert warning == (
        "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true "
        "to prevent possible logging of tokens in volume attributes"
    )
    assert STRATEGY.warn(tokens, plain) == [warning]
    assert STRATEGY.warn(tokens, tokens) == []
    assert STRATEGY.warn(plain, tokens) == []
    in_secrets = changed(KIND, {TOKENS: [{"audience": "a"}], IN_SECRETS: True})
    assert STRATEGY.warn(in_secrets, None) == []


def test_row() -> None:
    assert columns(KIND) == (
        "Name AttachRequired PodInfoOnMount StorageCapacity TokenRequests RequiresRepublish "
        "Modes Age |"
    )
    assert row(KIND, {}) == ["x", True, False, False, "<unset>", False, "<none>", "90s"]
    spec = {
        "attachRequired": False, "podInfoOnMount": True, "storageCapacity": True,
        "tokenRequests": [{"audience": "a"}, {}], "requiresRepublish": True,
        "volumeLifecycleModes": ["Persistent", "Ephemeral"],
    }  # fmt: skip
    assert row(KIND, {"spec": spec}) == [
        "x", False, True, True, "a,", True, "Persistent,Ephemeral", "90s",
    ]  # fmt: skip
