"""Owners of a template's class after a rollout has moved it."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.controllers.runtimerollouts.writes import handed_back

_OWN = "rollouts"


def _entry(manager: str, *fields: str, operation: str = "Apply", **more: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {f"f:{field}": {} for field in fields}
    return {
        "manager": manager,
        "operation": operation,
        "fieldsV1": {"f:spec": {"f:template": {"f:spec": spec}}},
        **more,
    }


def _mine(**more: Any) -> dict[str, Any]:
    entry = _entry(_OWN, "runtimeClassName", operation="Update")
    return entry | {"fieldsV1": entry["fieldsV1"] | more}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            [_entry("helm", "containers"), _mine()],
            [_entry("helm", "containers", "runtimeClassName")],
        ),
        (
            [_entry("helm", "containers"), _mine(**{"f:metadata": {"f:annotations": {}}})],
            [
                _entry("helm", "containers", "runtimeClassName"),
                {
                    "manager": _OWN,
                    "operation": "Update",
                    "fieldsV1": {"f:metadata": {"f:annotations": {}}},
                },
            ],
        ),
        (
            [_entry("set", "containers", operation="Update"), _entry("a", "containers"), _mine()],
            [
                _entry("set", "containers", operation="Update"),
                _entry("a", "containers", "runtimeClassName"),
            ],
        ),
        (
            [_entry("kubectl", "containers", operation="Update"), _mine()],
            [_entry("kubectl", "containers", "runtimeClassName", operation="Update")],
        ),
    ],
)
def test_the_class_goes_back_to_who_writes_the_template(
    before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> None:
    assert handed_back(before, "Deployment", _OWN) == after


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [_mine()],
        [_entry("helm", "containers", "runtimeClassName")],
        [_entry("kubelet", "containers", subresource="status"), _mine()],
        [{"manager": "x", "fieldsV1": {"f:spec": {}}}, {"manager": _OWN}],
    ],
)
def test_entries_stay_where_there_is_nothing_to_give_or_no_one_to_give_it_to(
    entries: list[dict[str, Any]],
) -> None:
    assert handed_back(entries, "Deployment", _OWN) is None


def test_a_cron_job_has_its_template_in_a_template() -> None:
    def nested(entry: dict[str, Any]) -> dict[str, Any]:
        return entry | {"fieldsV1": {"f:spec": {"f:jobTemplate": entry["fieldsV1"]}}}

    entries = [nested(_entry("helm", "containers")), nested(_mine())]
    assert handed_back(entries, "CronJob", _OWN) == [
        nested(_entry("helm", "containers", "runtimeClassName"))
    ]
