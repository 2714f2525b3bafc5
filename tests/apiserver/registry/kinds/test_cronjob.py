"""CronJobs."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.kind import Obj
from tests.apiserver.registry.kinds.rows import CREATED, columns, row
from tests.apiserver.registry.rules import (
    KINDS,
    changed,
    complaint,
    creations,
    decoded,
    updates,
)

KIND = "CronJob"
STRATEGY = KINDS[KIND].strategy
NEGATIVE = "Invalid value: -1: must be greater than or equal to 0"
JOB = "spec.jobTemplate.spec"
OLD_ZONE = {"spec.schedule": "TZ=UTC * * * * *"}


def test_defaults() -> None:
    spec = decoded(KINDS[KIND], changed(KIND))["spec"]
    job = spec.pop("jobTemplate")["spec"]
    assert job.pop("template")["spec"]["dnsPolicy"] == "ClusterFirst"
    assert job == {}
    assert spec == {
        "schedule": "* * * * *",
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    }


test_creation = creations(KIND, is_exact=True, cases=[
    ({"spec.schedule": ""}, "spec.schedule: Required value"),
    ({"spec.schedule": "x"},
     'spec.schedule: Invalid value: "x": expected exactly 5 fields, found 1: [x]'),
    (OLD_ZONE,
     'spec.schedule: Invalid value: "TZ=UTC * * * * *": cannot use TZ or CRON_TZ in schedule, '
     "use timeZone field instead"),
    ({"spec.startingDeadlineSeconds": -1}, f"spec.startingDeadlineSeconds: {NEGATIVE}"),
    ({"spec.successfulJobsHistoryLimit": -1}, f"spec.successfulJobsHistoryLimit: {NEGATIVE}"),
    ({"spec.failedJobsHistoryLimit": -1}, f"spec.failedJobsHistoryLimit: {NEGATIVE}"),
    ({"spec.timeZone": ""},
     'spec.timeZone: Invalid value: "": timeZone must be nil or non-empty string'),
    ({"spec.timeZone": "Mars/Crater"},
     'spec.timeZone: Invalid value: "Mars/Crater": unknown time zone Mars/Crater'),
    ({"spec.timeZone": "../UTC"},
     'spec.timeZone: Invalid value: "../UTC": unknown time zone ../UTC'),
    ({"spec.timeZone": "-UTC"},
     'spec.timeZone: Invalid value: "-UTC": unknown time zone -UTC'),
    ({"spec.timeZone": "Europe//Berlin"},
     'spec.timeZone: Invalid value: "Europe//Berlin": unknown time zone Europe//Berlin'),
    ({"spec.concurrencyPolicy": "X"},
     'spec.concurrencyPolicy: Unsupported value: "X": supported values: "Allow", "Forbid", '
     '"Replace"'),
    ({f"{JOB}.backoffLimit": -1}, f"{JOB}.backoffLimit: {NEGATIVE}"),
    ({f"{JOB}.selector": {"matchLabels": {"a": "b"}}},
     f'{JOB}.selector: Invalid value: {{"matchLabels":{{"a":"b"}}}}: `selector` will be '
     "auto-generated"),
    ({f"{JOB}.manualSelector": True},
     f'{JOB}.manualSelector: Unsupported value: true: supported values: "nil", "false"'),
    ({f"{JOB}.template.spec.restartPolicy": "Always"},
     f'{JOB}.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'),
    ({"metadata.name": "c" * 53},
     f'metadata.name: Invalid value: "{"c" * 53}": must be no more than 52 characters'),
])  # fmt: skip


def test_the_controllers_own_zone_is_none() -> None:
    error = complaint(KIND, changed(KIND, {"spec.timeZone": "Local"}))
    assert error is not None
    assert "timeZone must be an explicit time zone as defined in https://www.iana.org" in error


@pytest.mark.parametrize(
    "sets",
    [
        {"spec.timeZone": "Europe/Berlin"},
        {"spec.schedule": "@every 90m"},
        {"metadata.name": "c" * 52},
        {f"{JOB}.manualSelector": False},
        {"spec.successfulJobsHistoryLimit": 0, "spec.startingDeadlineSeconds": 0},
    ],
)
def test_valid_cron_jobs(sets: dict[str, Any]) -> None:
    assert complaint(KIND, changed(KIND, sets)) is None


test_update = updates(KIND, cases=[
    ({}, {"spec.schedule": "0 * * * *", f"{JOB}.template.spec.hostNetwork": True}, None),
    # What was allowed once stays: a long name, a zone in the schedule, a zone that is gone.
    ({"metadata.name": "c" * 60}, {"metadata.name": "c" * 60, "spec.suspend": True}, None),
    (OLD_ZONE, {"spec.schedule": "TZ=UTC 0 * * * *"}, None),
    ({"spec.timeZone": "Mars/X"}, {"spec.timeZone": "Mars/X", "spec.suspend": True}, None),
    (OLD_ZONE, {**OLD_ZONE, "spec.timeZone": "UTC"},
     'spec.schedule: Invalid value: "TZ=UTC * * * * *": cannot use both timeZone field and TZ '
     "or CRON_TZ in schedule"),
    ({}, {"spec.timeZone": "Mars/X"},
     'spec.timeZone: Invalid value: "Mars/X": unknown time zone Mars/X'),
])  # fmt: skip


def test_status_and_alpha_fields_are_the_servers() -> None:
    alpha: dict[str, Any] = {
        "spec.jobTemplate.spec.scheduling": {"schedulingPolicy": {"basic": {}}}
    }
    new = decoded(KINDS[KIND], changed(KIND, {**alpha, "status.active": [{"name": "x"}]}))
    STRATEGY.prepare_create(new)
    assert new["status"] == {}
    assert "scheduling" not in new["spec"]["jobTemplate"]["spec"]
    updated, old = decoded(KINDS[KIND], changed(KIND, alpha)), decoded(KINDS[KIND], changed(KIND))
    old["status"] = {"lastScheduleTime": CREATED}
    STRATEGY.prepare_update(updated, old)
    assert updated["status"] == old["status"]
    assert "scheduling" not in updated["spec"]["jobTemplate"]["spec"]


def test_warnings() -> None:
    def warnings(sets: dict[str, Any], old: Obj | None = None) -> list[str]:
        return [text[:40] for text in STRATEGY.warn(decoded(KINDS[KIND], changed(KIND, sets)), old)]

    old = decoded(KINDS[KIND], changed(KIND))
    assert warnings({}) == []
    assert warnings({"metadata.name": "a.b"}) == ["metadata.name: this is used in Pod names"]
    assert warnings({"metadata.name": "a.b"}, old) == []
    huge = {f"{JOB}.completionMode": "Indexed", f"{JOB}.completions": 100_001,
            f"{JOB}.parallelism": 10_001}  # fmt: skip
    assert warnings(huge) == ["spec.jobTemplate.spec: In Indexed Jobs w"]
    assert warnings(OLD_ZONE, old) == ["cannot use TZ or CRON_TZ in spec.spec.sc"]
    assert warnings(OLD_ZONE) == []


def test_columns() -> None:
    assert columns(KIND) == (
        "Name Schedule Timezone Suspend Active Last_Schedule Age | Containers Images Selector"
    )
    containers = [{"name": "a", "image": "i:1"}]
    job = {"spec": {"template": {"spec": {"containers": containers}}}}
    spec = {"schedule": "@daily", "suspend": False, "jobTemplate": job}
    assert row(KIND, {"spec": spec}) == [
        "x", "@daily", "<none>", "False", 0, "<none>", "90s", "a", "i:1", "<none>",
    ]  # fmt: skip
    status = {"active": [{}, {}], "lastScheduleTime": "2026-01-01T00:01:00Z"}
    shown = row(KIND, {"spec": {**spec, "timeZone": "UTC", "suspend": True}, "status": status})
    assert shown[2:7] == ["UTC", "True", 2, "30s", "90s"]
