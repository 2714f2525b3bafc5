"""Times and bytes in bodies: one spelling, and complaints as the API words them."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.apiserver.registry.schema import load_schema
from moorage.apiserver.registry.schema.errors import DecodeError
from moorage.apiserver.registry.schema.normalize import Normalizer

NORMALIZER = Normalizer(load_schema())


def time(value: str) -> str:
    meta = {"metadata": {"name": "x", "creationTimestamp": value}}
    pod = NORMALIZER.normalize("io.k8s.api.core.v1.ConfigMap", meta)
    shown: str = pod["metadata"]["creationTimestamp"]
    return shown


def micro_time(value: str) -> str:
    lease = {"metadata": {"name": "x"}, "spec": {"renewTime": value}}
    shown: str = NORMALIZER.normalize("io.k8s.api.coordination.v1.Lease", lease)["spec"][
        "renewTime"
    ]
    return shown


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05Z"),
    ],
)
def test_times_are_kept_in_utc_and_whole_seconds(written: str, stored: str) -> None:
    assert time(written) == stored


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("2026-01-02T03:04:05.000006Z", "2026-01-02T03:04:05.000006Z"),
        ("2026-01-02T03:04:05.000006+02:00", "2026-01-02T01:04:05.000006Z"),
    ],
)
def test_micro_times_are_kept_in_utc(written: str, stored: str) -> None:
    assert micro_time(written) == stored


LAYOUT = "2006-01-02T15:04:05Z07:00"


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("x", f'parsing time "x" as "{LAYOUT}": cannot parse "x" as "2006"'),
        ("2026", f'parsing time "2026" as "{LAYOUT}": cannot parse "" as "-"'),
        (
            "2026-01-02 03:04:05Z",
            f'parsing time "2026-01-02 03:04:05Z" as "{LAYOUT}": cannot parse " 03:04:05Z" as "T"',
        ),
        (
            "2026-01-02T03:04:05",
            f'parsing time "2026-01-02T03:04:05" as "{LAYOUT}": cannot parse "" as "Z07:00"',
        ),
        ("2026-13-02T03:04:05Z", 'parsing time "2026-13-02T03:04:05Z": month out of range'),
        ("2026-02-30T03:04:05Z", 'parsing time "2026-02-30T03:04:05Z": day out of range'),
        ("2026-01-02T24:04:05Z", 'parsing time "2026-01-02T24:04:05Z": hour out of range'),
    ],
)
def test_invalid_time_is_rejected(written: str, says: str) -> None:
    with pytest.raises(DecodeError) as refusal:
        time(written)
    assert str(refusal.value) == says


def test_a_micro_time_has_six_digits_and_a_real_date() -> None:
    with pytest.raises(DecodeError, match=r'cannot parse "Z" as ".000000"'):
        micro_time("2026-01-02T03:04:05Z")
    with pytest.raises(DecodeError, match="month out of range"):
        micro_time("2026-99-02T03:04:05.000000Z")


def data(value: str) -> dict[str, str]:
    secret = {"metadata": {"name": "x"}, "data": {"k": value}}
    result: dict[str, str] = NORMALIZER.normalize("io.k8s.api.core.v1.Secret", secret)["data"]
    return result


@given(st.binary(max_size=50))
def test_bytes_are_kept_as_written(value: bytes) -> None:
    text = base64.b64encode(value).decode()
    assert data(text) == {"k": text}


@pytest.mark.parametrize(
    ("written", "at"),
    [("!!", 0), ("x", 0), ("eAe", 0), ("eAeAeAe", 4), ("eA=", 3), ("ab_d", 2)],
)
def test_position_of_bad_base64_is_reported(written: str, at: int) -> None:
    with pytest.raises(DecodeError) as refusal:
        data(written)
    assert str(refusal.value) == f"illegal base64 data at input byte {at}"


def test_null_items_of_lists_and_maps_are_zero_values() -> None:
    """As Go's decoder has it: null sets an element to its type's zero value."""
    pod = {
        "metadata": {"name": "x", "finalizers": ["a", None], "labels": {"a": None}},
        "spec": {
            "containers": [
                {"name": "c", "command": [None], "resources": {"limits": {"cpu": None}}}
            ],
            "volumes": [None],
            "securityContext": {"supplementalGroups": [1, None]},
        },
    }
    normalized = NORMALIZER.normalize("io.k8s.api.core.v1.Pod", pod)
    assert normalized["metadata"]["finalizers"] == ["a", ""]
    assert normalized["metadata"]["labels"] == {"a": ""}
    container = normalized["spec"]["containers"][0]
    assert (container["command"], container["resources"]["limits"]) == ([""], {"cpu": "0"})
    assert normalized["spec"]["volumes"] == [{"name": ""}]
    assert normalized["spec"]["securityContext"]["supplementalGroups"] == [1, 0]


def test_null_lists_in_maps_of_lists_are_empty() -> None:
    review = {"metadata": {}, "spec": {"user": "u", "groups": [None], "extra": {"a": None}}}
    normalized = NORMALIZER.normalize("io.k8s.api.authorization.v1.SubjectAccessReview", review)
    assert (normalized["spec"]["groups"], normalized["spec"]["extra"]) == ([""], {"a": []})


def test_null_in_the_only_map_of_times_stays_null() -> None:
    schema = load_schema()
    assert [
        (name.rsplit(".", 1)[1], field.name)
        for name in schema.names()
        for field in schema[name].fields
        if field.container and field.kind in ("time", "microTime")
    ] == [("PodDisruptionBudgetStatus", "disruptedPods")]
    budget = {"metadata": {}, "status": {"disruptedPods": {"a": None}}}
    normalized = NORMALIZER.normalize("io.k8s.api.policy.v1.PodDisruptionBudget", budget)
    assert normalized["status"]["disruptedPods"] == {"a": None}
