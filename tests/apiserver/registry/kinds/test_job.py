"""Jobs."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from tests.apiserver.registry.kinds.rows import WORKLOAD, columns, row
from tests.apiserver.registry.rules import KINDS, changed, decoded

KIND = "Job"
STRATEGY = KINDS[KIND].strategy
NEGATIVE = "Invalid value: -1: must be greater than or equal to 0"
INDEXED = {"spec.completionMode": "Indexed", "spec.completions": 3}
RULE = "spec.podFailurePolicy.rules[0]"
SUCCESS = "spec.successPolicy.rules[0]"
MANY = {**INDEXED, "spec.completions": 100_001, "spec.backoffLimitPerIndex": 1}
OF_MANY = (
    "must be less than or equal to 10000 when completions are above 100000 and used with backoff "
    "limit per index"
)
IMMUTABLE = "field is immutable"
LABELS = {
    "job-name": "j",
    "batch.kubernetes.io/job-name": "j",
    "controller-uid": "u",
    "batch.kubernetes.io/controller-uid": "u",
}


def job(sets: dict[str, Any] | None = None, *drops: str) -> Obj:
    obj = decoded(KINDS[KIND], changed(KIND, sets, *drops))
    STRATEGY.prepare_create(obj)
    return obj


def texts(errors: list[FieldError]) -> list[str]:
    return [str(error) for error in errors]


def creation_errors(sets: dict[str, Any]) -> list[str]:
    return texts(STRATEGY.validate(job(sets)))


def policy(**rule: Any) -> dict[str, Any]:
    return {RULE: {"action": "Ignore", **rule}}


def success(**rule: Any) -> dict[str, Any]:
    return {**INDEXED, SUCCESS: rule}


def test_defaults() -> None:
    spec = decoded(KINDS[KIND], changed(KIND))["spec"]
    assert spec.pop("template")["spec"]["dnsPolicy"] == "ClusterFirst"
    assert spec == {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
        "manualSelector": False,
    }


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ({"spec.parallelism": 3}, {"parallelism": 3}),
        ({"spec.completions": 3}, {"parallelism": 1, "completions": 3}),
        ({"spec.backoffLimitPerIndex": 1}, {"backoffLimit": 2**31 - 1}),
        ({"spec.backoffLimitPerIndex": 1, "spec.backoffLimit": 2}, {"backoffLimit": 2}),
        (policy(onPodConditions=[{"type": "X"}]), {"podReplacementPolicy": "Failed"}),
    ],
)
def test_defaults_that_depend_on_others(sets: dict[str, Any], expected: Obj) -> None:
    spec = decoded(KINDS[KIND], changed(KIND, sets))["spec"]
    assert {field: spec[field] for field in expected} == expected
    assert ("completions" in spec) == ("completions" in expected or "parallelism" not in expected)
    if "podFailurePolicy" in spec:
        assert spec["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"] == "True"


def test_labels_of_the_template_become_those_of_a_job_without_labels() -> None:
    labels = {"spec.template.metadata.labels": {"a": "b"}}
    assert decoded(KINDS[KIND], changed(KIND, labels))["metadata"]["labels"] == {"a": "b"}
    own = decoded(KINDS[KIND], changed(KIND, {**labels, "metadata.labels": {"x": "y"}}))
    assert own["metadata"]["labels"] == {"x": "y"}


def test_selector_and_labels_are_generated() -> None:
    made = job({"spec.template.metadata.labels": {"a": "b"}, "status.active": 3})
    assert made["status"] == {}
    assert made["spec"]["template"]["metadata"]["labels"] == {"a": "b", **LABELS}
    assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}
    assert STRATEGY.validate(made) == []


def test_a_manual_selector_is_kept() -> None:
    sets = {
        "spec.manualSelector": True,
        "spec.selector.matchLabels": {"a": "b"},
        "spec.template.metadata.labels": {"a": "b"},
    }
    made = job(sets)
    assert made["spec"]["template"]["metadata"]["labels"] == {"a": "b"}
    assert STRATEGY.validate(made) == []


def test_the_alpha_field_scheduling_is_dropped() -> None:
    sets: dict[str, Any] = {"spec.scheduling": {"schedulingPolicy": {"basic": {}}}}
    made = job(sets)
    assert "scheduling" not in made["spec"]
    new, old = decoded(KINDS[KIND], changed(KIND, sets)), job()
    STRATEGY.prepare_update(new, old)
    assert "scheduling" not in new["spec"]


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        *[({f"spec.{field}": -1, "spec.backoffLimitPerIndex": 1, **INDEXED},
           f"spec.{field}: {NEGATIVE}")
          for field in ("parallelism", "activeDeadlineSeconds", "backoffLimit",
                        "ttlSecondsAfterFinished", "maxFailedIndexes")],
        ({"spec.completions": -1}, f"spec.completions: {NEGATIVE}"),
        ({**INDEXED, "spec.backoffLimitPerIndex": -1}, f"spec.backoffLimitPerIndex: {NEGATIVE}"),
        ({**INDEXED, "spec.maxFailedIndexes": 1},
         "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified"),
        ({"spec.managedBy": ""}, "spec.managedBy: Required value"),
        ({"spec.managedBy": "a"},
         'spec.managedBy: Invalid value: "a": must be a domain-prefixed path (such as '
         '"acme.io/foo")'),
        ({"spec.managedBy": "a/"},
         'spec.managedBy: Invalid value: "a/": must be a domain-prefixed path (such as '
         '"acme.io/foo")'),
        ({"spec.managedBy": "a.b/c d"},
         'spec.managedBy: Invalid value: "c d": Invalid path (regex used for validation is '
         "'[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')"),
        ({"spec.managedBy": "a.b/" + "c" * 60},
         "spec.managedBy: Too long: may not be more than 63 bytes"),
        ({"spec.completionMode": "X"},
         'spec.completionMode: Unsupported value: "X": supported values: "NonIndexed", "Indexed"'),
        ({"spec.completionMode": "Indexed", "spec.parallelism": 1},
         "spec.completions: Required value: when completion mode is Indexed"),
        ({**INDEXED, "spec.parallelism": 100_001},
         "spec.parallelism: Invalid value: 100001: must be less than or equal to 100000 when "
         "completion mode is Indexed"),
        ({**INDEXED, "spec.backoffLimitPerIndex": 1, "spec.maxFailedIndexes": 4},
         "spec.maxFailedIndexes: Invalid value: 4: must be less than or equal to completions"),
        ({**INDEXED, "spec.completions": 100_001, "spec.maxFailedIndexes": 100_001},
         "spec.maxFailedIndexes: Invalid value: 100001: must be less than or equal to 100000"),
        (MANY, "spec.maxFailedIndexes: Required value: must be specified when completions is above "
               "100000"),
        ({**MANY, "spec.maxFailedIndexes": 1, "spec.parallelism": 10_001},
         f"spec.parallelism: Invalid value: 10001: {OF_MANY}"),
        ({**MANY, "spec.maxFailedIndexes": 10_001},
         f"spec.maxFailedIndexes: Invalid value: 10001: {OF_MANY}"),
        ({"spec.backoffLimitPerIndex": 1},
         "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"),
        ({"spec.backoffLimitPerIndex": 1, "spec.maxFailedIndexes": 2},
         "spec.maxFailedIndexes: Invalid value: 2: requires indexed completion mode"),
        ({SUCCESS: {"succeededCount": 1}},
         'spec.successPolicy: Invalid value: {"Rules":[{"SucceededIndexes":null,'
         '"SucceededCount":1}]}: requires indexed completion mode'),
        ({"spec.successPolicy": {}},
         'spec.successPolicy: Invalid value: {"Rules":null}: requires indexed completion mode'),
        ({"spec.podReplacementPolicy": "X"},
         'spec.podReplacementPolicy: Unsupported value: "X": supported values: "Failed", '
         '"TerminatingOrFailed"'),
        ({**policy(onPodConditions=[{"type": "X"}]),
          "spec.podReplacementPolicy": "TerminatingOrFailed"},
         'spec.podReplacementPolicy: Unsupported value: "TerminatingOrFailed": supported values: '
         '"Failed"'),
        ({"spec.template.spec.restartPolicy": "Always"},
         'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'),
        ({"spec.template.spec.restartPolicy": "X"},
         'spec.template.spec.restartPolicy: Unsupported value: "X": supported values: "OnFailure", '
         '"Never"'),
        ({**policy(onPodConditions=[{"type": "X"}]),
          "spec.template.spec.restartPolicy": "OnFailure"},
         'spec.template.spec.restartPolicy: Invalid value: "OnFailure": only "Never" is supported '
         "when podFailurePolicy is specified"),
        ({"spec.template.spec.dnsPolicy": "X"},
         'spec.template.spec.dnsPolicy: Unsupported value: "X": supported values: '
         '"ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"'),
        ({"spec.template.metadata.labels": {"job-name": "x"}},
         'spec.template.metadata.labels[job-name]: Invalid value: {"job-name":"x",'
         '"batch.kubernetes.io/job-name":"j","controller-uid":"u",'
         '"batch.kubernetes.io/controller-uid":"u"}: must be \'j\''),
        ({"spec.selector.matchLabels": {"a": "b"}},
         'spec.selector: Invalid value: {"matchLabels":{"a":"b",'
         '"batch.kubernetes.io/controller-uid":"u"}}: `selector` not auto-generated'),
        ({"spec.selector.matchExpressions": [{"key": "a", "operator": "X"}]},
         'spec.selector.matchExpressions[0].operator: Invalid value: "X": not a valid selector '
         "operator"),
        ({"spec.manualSelector": True}, "spec.selector: Required value"),
        ({**INDEXED, "metadata.name": "j.x"},
         'metadata.name: Invalid value: "j.x": will not able to create pod with invalid DNS label: '
         "j.x-2"),
        ({**INDEXED, "metadata.name": "j" * 62},
         f'metadata.name: Invalid value: "{"j" * 62}": will not able to create pod with invalid '
         f"DNS label: {'j' * 62}-2"),
    ],
)  # fmt: skip
def test_creation(sets: dict[str, Any], says: str) -> None:
    assert says in creation_errors(sets)


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        (policy(action=""),
         f'{RULE}.action: Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"]'),
        (policy(action="X"),
         f'{RULE}.action: Unsupported value: "X": supported values: "Count", "FailIndex", '
         '"FailJob", "Ignore"'),
        (policy(action="FailIndex"),
         f'{RULE}.action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set'),
        (policy(), f"{RULE}: Invalid value: specifying one of OnExitCodes and OnPodConditions is "
                   "required"),
        (policy(onExitCodes={"operator": "In", "values": [1]}, onPodConditions=[{"type": "X"}]),
         f"{RULE}: Invalid value: specifying both OnExitCodes and OnPodConditions is not "
         "supported"),
        (policy(onExitCodes={"values": [1]}),
         f'{RULE}.onExitCodes.operator: Required value: valid values: ["In" "NotIn"]'),
        (policy(onExitCodes={"operator": "X", "values": [1]}),
         f'{RULE}.onExitCodes.operator: Unsupported value: "X": supported values: "In", "NotIn"'),
        (policy(onExitCodes={"operator": "In", "values": [1], "containerName": "x"}),
         f'{RULE}.onExitCodes.containerName: Invalid value: "x": must be one of the container or '
         "initContainer names in the pod template"),
        (policy(onExitCodes={"operator": "In"}),
         f"{RULE}.onExitCodes.values: Invalid value: null: at least one value is required"),
        (policy(onExitCodes={"operator": "NotIn", "values": list(range(256))}),
         f"{RULE}.onExitCodes.values: Too many: 256: must have at most 255 items"),
        (policy(onExitCodes={"operator": "In", "values": [0]}),
         f"{RULE}.onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator"),
        (policy(onExitCodes={"operator": "In", "values": [1, 1]}),
         f"{RULE}.onExitCodes.values[1]: Duplicate value: 1"),
        (policy(onExitCodes={"operator": "In", "values": [2, 1]}),
         f"{RULE}.onExitCodes.values: Invalid value: [2,1]: must be ordered"),
        (policy(onPodConditions=[{"type": "X"}] * 21),
         f"{RULE}.onPodConditions: Too many: 21: must have at most 20 items"),
        (policy(onPodConditions=[{"type": "X", "status": "Y"}]),
         f'{RULE}.onPodConditions[0].status: Unsupported value: "Y": supported values: "False", '
         '"True", "Unknown"'),
        ({"spec.podFailurePolicy.rules": [policy(onPodConditions=[{"type": "X"}])[RULE]] * 21},
         "spec.podFailurePolicy.rules: Too many: 21: must have at most 20 items"),
        ({**INDEXED, "spec.successPolicy": {}},
         "spec.successPolicy.rules: Required value: at least one rules must be specified when the "
         "successPolicy is specified"),
        ({**INDEXED, "spec.successPolicy.rules": [{"succeededCount": 1}] * 21},
         "spec.successPolicy.rules: Too many: 21: must have at most 20 items"),
        (success(), f"{SUCCESS}: Required value: at least one of succeededCount or "
                    "succeededIndexes must be specified"),
        (success(succeededIndexes="3"),
         f'{SUCCESS}.succeededIndexes: Invalid value: "3": error parsing succeededIndexes: too '
         'large index: "3"'),
        (success(succeededIndexes="0," * 40_000),
         f"{SUCCESS}.succeededIndexes: Too long: may not be more than 65536 bytes"),
        (success(succeededCount=-1), f"{SUCCESS}.succeededCount: {NEGATIVE}"),
        (success(succeededCount=4),
         f"{SUCCESS}.succeededCount: Invalid value: 4: must be less than or equal to 3 (the number "
         "of specified completions)"),
        (success(succeededIndexes="0-1", succeededCount=3),
         f"{SUCCESS}.succeededCount: Invalid value: 3: must be less than or equal to 2 (the number "
         "of indexes in the specified succeededIndexes field)"),
        ({**success(succeededCount=1), "spec.completions": None, "spec.parallelism": 1},
         "spec.completions: Required value: when completion mode is Indexed"),
    ],
)  # fmt: skip
def test_policies(sets: dict[str, Any], says: str) -> None:
    assert says in creation_errors(sets)


@pytest.mark.parametrize(
    "sets",
    [
        policy(onExitCodes={"operator": "NotIn", "values": [0, 1], "containerName": "c"}),
        {**policy(action="FailIndex", onPodConditions=[{"type": "X"}]), **INDEXED,
         "spec.backoffLimitPerIndex": 1},
        success(succeededIndexes="0,2", succeededCount=2),
        {**MANY, "spec.maxFailedIndexes": 10_000, "spec.parallelism": 10_000},
        {**INDEXED, "spec.completions": 100_001, "spec.parallelism": 100_000},
        {"spec.managedBy": "a.b/c-d/e"},
        {"spec.template.spec.restartPolicy": "OnFailure"},
    ],
)  # fmt: skip
def test_valid_jobs(sets: dict[str, Any]) -> None:
    assert creation_errors(sets) == []


def update(before: dict[str, Any], after: dict[str, Any], status: Obj | None = None) -> list[str]:
    old, new = job(before), job({**before, **after})
    old["status"] = status or {}
    STRATEGY.prepare_update(new, old)
    assert new["status"] == old["status"]
    return texts(STRATEGY.validate_update(new, old))


SUSPENDED = {"spec.suspend": True}
NODE_AFFINITY = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
    }
}
POD_AFFINITY = {
    "requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "x"}
    ]
}
DIRECTIVES = {
    "spec.template.spec.nodeSelector": {"a": "b"},
    "spec.template.spec.tolerations": [{"key": "k", "operator": "Exists"}],
    "spec.template.spec.schedulingGates": [{"name": "g"}],
    "spec.template.spec.affinity": {"nodeAffinity": NODE_AFFINITY},
    "spec.template.metadata.annotations": {"a": "b"},
    "spec.template.spec.containers[0].resources": {"limits": {"cpu": "1"}},
}


@pytest.mark.parametrize(
    ("before", "after", "path", "detail"),
    [
        ({}, {"spec.completions": 2}, "spec.completions", IMMUTABLE),
        (INDEXED, {"spec.completions": 2}, "spec.completions",
         "can only be modified in tandem with spec.parallelism"),
        (INDEXED, {"spec.backoffLimitPerIndex": 2}, "spec.backoffLimitPerIndex", IMMUTABLE),
        ({}, {"spec.managedBy": "a/b"}, "spec.managedBy", IMMUTABLE),
        ({}, policy(onPodConditions=[{"type": "X"}]), "spec.podFailurePolicy", IMMUTABLE),
        (INDEXED, success(succeededCount=1), "spec.successPolicy", IMMUTABLE),
        ({}, INDEXED, "spec.completionMode", IMMUTABLE),
        ({}, {"spec.template.spec.hostNetwork": True}, "spec.template", IMMUTABLE),
        ({}, {"spec.template.spec.nodeSelector": {"a": "b"}}, "spec.template", IMMUTABLE),
        (SUSPENDED, {"spec.template.spec.hostNetwork": True}, "spec.template.spec", IMMUTABLE),
        (SUSPENDED, {"spec.template.spec.affinity": {"podAffinity": POD_AFFINITY}},
         "spec.template.spec", IMMUTABLE),
        ({}, {"spec.parallelism": -1}, "spec.parallelism", "must be greater than or equal to 0"),
    ],
)  # fmt: skip
def test_update(before: dict[str, Any], after: dict[str, Any], path: str, detail: str) -> None:
    errors = update(before, after)
    assert any(
        error.startswith(f"{path}: Invalid value: ") and error.endswith(f": {detail}")
        for error in errors
    )


def test_the_selector_is_immutable() -> None:
    old, new = job(), job()
    new["spec"]["selector"]["matchLabels"]["job-name"] = "j"
    assert [says.partition(":")[0] for says in texts(STRATEGY.validate_update(new, old))] == [
        "spec.selector"
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"spec.completions": 3},
         {"spec.parallelism": 5, "spec.suspend": True, "spec.activeDeadlineSeconds": 9}),
        (INDEXED, {"spec.completions": 5, "spec.parallelism": 5}),
        *[(SUSPENDED, {path: value}) for path, value in DIRECTIVES.items()],
        ({**SUSPENDED, **DIRECTIVES}, {path: None for path in DIRECTIVES if "cont" not in path}),
    ],
)  # fmt: skip
def test_updates_that_are_allowed(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert update(before, after) == []


def test_pod_affinity_stays_when_node_affinity_is_removed() -> None:
    both = {"podAffinity": POD_AFFINITY, "nodeAffinity": NODE_AFFINITY}
    before = {**SUSPENDED, "spec.template.spec.affinity": both}
    only_pods = {"spec.template.spec.affinity": {"podAffinity": POD_AFFINITY}}
    assert update(before, only_pods) == []
    assert update(before, {"spec.template.spec.affinity": None}) != []


@pytest.mark.parametrize(
    ("status", "is_allowed"),
    [
        ({"startTime": "2026-01-01T00:00:00Z"}, False),
        ({"startTime": "2026-01-01T00:00:00Z",
          "conditions": [{"type": "Suspended", "status": "True"}]}, True),
        ({"active": 1}, False),
    ],
)  # fmt: skip
def test_a_template_changes_only_while_no_pods_are_active(status: Obj, is_allowed: bool) -> None:
    for path, value in DIRECTIVES.items():
        errors = update(SUSPENDED, {path: value}, copy.deepcopy(status))
        assert (errors == []) == is_allowed
        assert all(error.startswith("spec.template: ") for error in errors)


def test_names_that_are_no_host_names_and_huge_jobs_are_warned_about() -> None:
    dotted = job({"metadata.name": "a.b"})
    assert STRATEGY.warn(dotted, None) == [
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising "
        "behavior; a DNS label is recommended: [must not contain dots]"
    ]
    assert STRATEGY.warn(dotted, job({"metadata.name": "a.b"})) == []
    huge = job({**INDEXED, "spec.completions": 100_001, "spec.parallelism": 10_001})
    assert [warning.partition(" with ")[0] for warning in STRATEGY.warn(huge, job())] == [
        "spec: In Indexed Jobs"
    ]
    assert STRATEGY.warn(huge, huge) == []
    at_limit = job({**INDEXED, "spec.completions": 100_000, "spec.parallelism": 10_001})
    assert STRATEGY.warn(at_limit, None) == []


def test_columns() -> None:
    assert columns(KIND) == "Name Status Completions Duration Age | Containers Images Selector"
    spec = {**WORKLOAD, "completions": 3}
    status = {
        "succeeded": 1,
        "startTime": "2026-01-01T00:00:30Z",
        "conditions": [{"type": "Suspended", "status": "False"}],
    }
    assert row(KIND, {"spec": spec, "status": status}) == [
        "x", "Running", "1/3", "60s", "90s", "a,b", "i:1,j", "app=w",
    ]  # fmt: skip
    done = {**status, "completionTime": "2026-01-01T00:00:42Z"}
    assert row(KIND, {"spec": spec, "status": done})[3] == "12s"


@pytest.mark.parametrize(
    ("spec", "shown"),
    [({"parallelism": 1}, "0/1"), ({"parallelism": 2}, "0/1 of 2"), ({}, "0/1")],
)
def test_completions_of_a_work_queue(spec: Obj, shown: str) -> None:
    assert row(KIND, {"spec": spec})[2:4] == [shown, ""]


@pytest.mark.parametrize(
    ("types", "deleted", "shown"),
    [
        (["SuccessCriteriaMet", "Complete"], True, "Complete"),
        (["FailureTarget", "Failed"], True, "Failed"),
        (["Suspended"], True, "Terminating"),
        (["Suspended"], False, "Suspended"),
        (["FailureTarget"], False, "FailureTarget"),
        (["SuccessCriteriaMet"], False, "SuccessCriteriaMet"),
    ],
)
def test_status_column(types: list[str], deleted: bool, shown: str) -> None:
    meta: Obj = {"name": "x"}
    if deleted:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": type_, "status": "True"} for type_ in types]
    assert row(KIND, {"metadata": meta, "status": {"conditions": conditions}})[1] == shown


START, END = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
TRUE = {
    name: {"type": name, "status": "True"}
    for name in ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet", "Suspended")
}
COMPLETE = {
    "startTime": START,
    "completionTime": END,
    "conditions": [TRUE["SuccessCriteriaMet"], TRUE["Complete"]],
}
FAILED = {"startTime": START, "conditions": [TRUE["FailureTarget"], TRUE["Failed"]]}
PER_INDEX = {**INDEXED, "spec.backoffLimitPerIndex": 1}


def status_errors(sets: dict[str, Any], after: Obj, before: Obj | None = None) -> list[str]:
    old, new = job(sets), job({**sets, "metadata.labels": {"l": "m"}})
    old["status"], new["status"] = before or {}, after
    new["spec"] = {}
    rules = STRATEGY.parts["status"]
    rules.prepare(new, old)
    assert new["spec"] == old["spec"]
    return texts(rules.validate(new, old))


@pytest.mark.parametrize(
    ("sets", "after", "before"),
    [
        ({}, COMPLETE, {}),
        ({}, FAILED, {}),
        (PER_INDEX, {**FAILED, "completedIndexes": "0", "failedIndexes": "1,2"}, {}),
        (INDEXED, {"completedIndexes": "0-2", "succeeded": 3}, {"succeeded": 1}),
        # What was wrong before may stay wrong.
        (INDEXED, {"completedIndexes": "0-9", "active": 1},
         {"completedIndexes": "0-9", "active": 2}),
        ({}, {"ready": 2, "active": 1, "failed": 1}, {"ready": 2, "active": 1}),
        ({**INDEXED, "spec.parallelism": 3}, {"succeeded": 1}, {"succeeded": 2}),
        ({}, {"startTime": END, "conditions": [{"type": "Suspended", "status": "False"}]},
         {"startTime": START, "conditions": [TRUE["Suspended"]]}),
        ({"spec.suspend": True}, {"startTime": END}, {"startTime": START}),
        ({"spec.suspend": True, "spec.completions": 0},
         {"completionTime": END, "conditions": COMPLETE["conditions"]}, {}),
        ({}, {"uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["b"]}}, {}),
    ],
)  # fmt: skip
def test_status_updates_that_are_allowed(sets: dict[str, Any], after: Obj, before: Obj) -> None:
    assert status_errors(sets, after, before) == []


@pytest.mark.parametrize(
    ("sets", "after", "before", "says"),
    [
        ({}, {"active": -1}, {}, f"active: {NEGATIVE}"),
        ({}, {"terminating": -1}, {}, f"terminating: {NEGATIVE}"),
        ({}, {"uncountedTerminatedPods": {"succeeded": ["a", ""]}}, {},
         'uncountedTerminatedPods.succeeded[1]: Invalid value: "": must not be empty'),
        ({}, {"uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["a"]}}, {},
         'uncountedTerminatedPods.failed[0]: Duplicate value: "a"'),
        ({}, {**COMPLETE, "conditions": [*COMPLETE["conditions"], TRUE["Failed"]]}, {},
         "conditions: Invalid value: cannot set Complete=True and Failed=true conditions"),
        ({}, {**COMPLETE, "conditions": [*COMPLETE["conditions"], TRUE["FailureTarget"]]}, {},
         "conditions: Invalid value: cannot set Complete=True and FailureTarget=true conditions"),
        ({}, {"completionTime": END}, {},
         f'completionTime: Invalid value: "{END}": cannot set completionTime when there is no '
         "Complete=True condition"),
        ({}, {"startTime": START, "conditions": COMPLETE["conditions"]}, {},
         "completionTime: Required value: completionTime is required for Complete jobs"),
        ({}, {**COMPLETE, "startTime": END, "completionTime": START}, {},
         f'completionTime: Invalid value: "{START}": must be equal to or after `startTime`'),
        ({}, {"startTime": START, "conditions": [TRUE["Failed"]]}, {},
         "conditions: Invalid value: cannot set Failed=True condition without the "
         "FailureTarget=true condition"),
        ({}, {**COMPLETE, "conditions": [TRUE["Complete"]]}, {},
         "conditions: Invalid value: cannot set Complete=True condition without the "
         "SuccessCriteriaMet=true condition"),
        ({}, {**FAILED, "active": 1}, {},
         "active: Invalid value: 1: active>0 is invalid for finished job"),
        ({}, {"conditions": FAILED["conditions"]}, {},
         "startTime: Required value: startTime is required for finished job"),
        ({}, {**FAILED, "uncountedTerminatedPods": {"failed": ["a"]}}, {},
         'uncountedTerminatedPods: Invalid value: {"Succeeded":null,"Failed":["a"]}: must be '
         "empty for finished job"),
        ({}, {**FAILED, "terminating": 1}, {},
         "terminating: Invalid value: 1: terminating>0 is invalid for finished job"),
        (INDEXED, {"completedIndexes": "3"}, {},
         'completedIndexes: Invalid value: "3": error parsing completedIndexes: too large index: '
         '"3"'),
        (PER_INDEX, {"failedIndexes": "2,1"}, {},
         'failedIndexes: Invalid value: "2,1": error parsing failedIndexes: non-increasing order, '
         "previous: 2, current: 1"),
        ({}, {"completedIndexes": "0"}, {},
         'completedIndexes: Invalid value: "0": cannot set non-empty completedIndexes when '
         "non-indexed completion mode"),
        (INDEXED, {"failedIndexes": ""}, {},
         'failedIndexes: Invalid value: "": cannot set non-null failedIndexes when '
         "backoffLimitPerIndex is null"),
        (PER_INDEX, {"completedIndexes": "0,x,1-2", "failedIndexes": "2"}, {},
         'failedIndexes: Invalid value: "2": failedIndexes and completedIndexes overlap at index: '
         "2"),
        (PER_INDEX, {"completedIndexes": "1", "failedIndexes": "0-2"}, {"failedIndexes": "0-2"},
         'failedIndexes: Invalid value: "0-2": failedIndexes and completedIndexes overlap at '
         "index: 1"),
        ({}, {"ready": 2, "active": 1}, {"ready": 2, "active": 2},
         "ready: Invalid value: 2: cannot set more ready pods than active"),
        ({}, {"conditions": [TRUE["SuccessCriteriaMet"], *FAILED["conditions"]]}, {},
         "conditions: Invalid value: cannot set SuccessCriteriaMet=True and Failed=true "
         "conditions"),
        ({}, {"conditions": [TRUE["SuccessCriteriaMet"], TRUE["FailureTarget"]]}, {},
         "conditions: Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=true "
         "conditions"),
        (success(succeededCount=1), {**COMPLETE, "conditions": [TRUE["Complete"]]}, {},
         "conditions: Invalid value: cannot set Complete=True for Job with SuccessPolicy unless "
         "SuccessCriteriaMet=True"),
        ({}, {"startTime": START}, COMPLETE,
         "conditions: Invalid value: cannot disable the terminal Complete=True condition"),
        ({}, {"startTime": START}, COMPLETE,
         "conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition"),
        ({}, {}, {"failed": 1}, "failed: Invalid value: 0: cannot decrease the failed counter"),
        (INDEXED, {"succeeded": 1}, {"succeeded": 2},
         "succeeded: Invalid value: 1: cannot decrease the succeeded counter"),
        ({}, {**COMPLETE, "completionTime": "2026-01-01T00:02:00Z"}, COMPLETE,
         'completionTime: Invalid value: "2026-01-01T00:02:00Z": field is immutable'),
        ({}, {"startTime": END}, {"startTime": START},
         f'startTime: Invalid value: "{END}": field is immutable for unsuspended job once set'),
        ({}, {}, {"startTime": START},
         "startTime: Invalid value: null: field is immutable for unsuspended job once set"),
        ({}, COMPLETE, {**COMPLETE, "conditions": [TRUE["Complete"]]},
         "conditions: Invalid value: cannot set SuccessCriteriaMet=True for Job already has "
         "Complete=true conditions"),
    ],
)  # fmt: skip
def test_status(sets: dict[str, Any], after: Obj, before: Obj, says: str) -> None:
    assert f"status.{says}" in status_errors(sets, after, before)
