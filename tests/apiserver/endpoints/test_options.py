"""Options of writes: dry runs, managers, validation, deletion."""

from __future__ import annotations

from typing import Any

import pytest
from multidict import MultiDict

from moorage.api.errors import BadRequestError, InvalidError
from moorage.apiserver.endpoints.options import delete_options, int_option, write_request
from moorage.apiserver.registry.deletion import DeleteOptions
from moorage.apiserver.registry.request import Request, User

_USER = User("alice")
_UNREAD = "ignoreStoreReadErrorWithClusterBreakingPotential"


def _request(is_apply: bool = False, **query: str) -> Request:
    return write_request(_USER, "kubectl/1", query, "PatchOptions", is_apply=is_apply)


def test_a_request_without_options_warns_and_is_no_dry_run() -> None:
    request = _request()
    assert (request.user, request.user_agent) == (_USER, "kubectl/1")
    assert (request.is_dry_run, request.field_manager, request.field_validation) == (
        False, "", "",
    )  # fmt: skip


@pytest.mark.parametrize("validation", ["Ignore", "Warn", "Strict"])
def test_options_of_a_write(validation: str) -> None:
    request = _request(fieldValidation=validation, fieldManager="é" * 64, dryRun="All")
    assert request.field_validation == validation
    assert (request.is_dry_run, request.field_manager) == (True, "é" * 64)
    applied = _request(is_apply=True, fieldManager="m", force="true")
    assert applied.field_manager == "m"


@pytest.mark.parametrize(
    ("is_apply", "query", "complaint"),
    [
        (False, {"dryRun": "Some"}, 'dryRun: Unsupported value: ["Some"]: supported values: "All"'),
        (False, {"dryRun": ""}, 'dryRun: Unsupported value: [""]: supported values: "All"'),
        (False, {"fieldManager": "é" * 64 + "x"},
         "fieldManager: Too long: may not be more than 128 bytes"),
        (True, {}, "fieldManager: Required value: is required for apply patch"),
        (False, {"force": "true"},
         "force: Forbidden: may not be specified for non-apply patch"),
        (False, {"fieldValidation": "Odd"},
         'fieldValidation: Unsupported value: "Odd": supported values: "", "Ignore", "Strict", '
         '"Warn"'),
    ],
)  # fmt: skip
def test_options_that_are_refused(is_apply: bool, query: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidError) as caught:
        _request(is_apply, **query)
    assert caught.value.message == f'PatchOptions.meta.k8s.io "" is invalid: {complaint}'


def test_every_dry_run_value_counts() -> None:
    both = MultiDict([("dryRun", "All"), ("dryRun", "Some")])
    with pytest.raises(InvalidError, match="dryRun"):
        write_request(_USER, "", both, "CreateOptions")
    twice = MultiDict([("dryRun", "All"), ("dryRun", "All")])
    assert write_request(_USER, "", twice, "CreateOptions").is_dry_run
    assert not write_request(_USER, "", MultiDict(), "CreateOptions").is_dry_run


@pytest.mark.parametrize(
    ("query", "body", "options", "is_dry_run"),
    [
        ({}, {}, DeleteOptions(), False),
        ({"gracePeriodSeconds": "5", "propagationPolicy": "Orphan", "dryRun": "All"}, {},
         DeleteOptions(grace_period_seconds=5, propagation_policy="Orphan"), True),
        ({"gracePeriodSeconds": "0"}, {}, DeleteOptions(grace_period_seconds=0), False),
        ({"orphanDependents": "true"}, {}, DeleteOptions(propagation_policy="Orphan"), False),
        ({"orphanDependents": "0"}, {}, DeleteOptions(propagation_policy="Background"), False),
        ({"orphanDependents": "false"}, {}, DeleteOptions(propagation_policy="Background"), False),
        ({_UNREAD: "true"}, {}, DeleteOptions(ignores_read_errors=True), False),
        ({_UNREAD: "0"}, {}, DeleteOptions(), False),
        ({_UNREAD: "false"}, {}, DeleteOptions(), False),
        # A body is read in place of the query, dry runs aside.
        ({"gracePeriodSeconds": "5", "dryRun": "All"}, {"propagationPolicy": "Background"},
         DeleteOptions(propagation_policy="Background"), True),
        ({}, {"dryRun": ["All"], "preconditions": {"uid": "u", "resourceVersion": "7"}},
         DeleteOptions(uid="u", resource_version="7"), True),
    ],
)  # fmt: skip
def test_options_of_a_deletion(
    query: dict[str, str], body: dict[str, Any], options: DeleteOptions, is_dry_run: bool
) -> None:
    assert delete_options(query, body) == (options, is_dry_run)


def test_a_deletion_with_an_odd_dry_run_is_refused() -> None:
    with pytest.raises(InvalidError, match=r'DeleteOptions.meta.k8s.io "" is invalid: dryRun'):
        delete_options({"dryRun": "Some"}, {})


@pytest.mark.parametrize(("text", "number"), [("", 0), ("7", 7), ("-7", -7)])
def test_whole_numbers(text: str, number: int) -> None:
    assert int_option({"limit": text}, "limit") == number
    assert int_option({}, "limit") == 0


def test_invalid_number_option_is_rejected() -> None:
    with pytest.raises(BadRequestError, match=r'strconv.ParseInt: parsing "x": invalid syntax'):
        int_option({"limit": "x"}, "limit")
