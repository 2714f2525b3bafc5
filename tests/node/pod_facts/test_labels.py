from __future__ import annotations

import pytest

from moorage.node.pod_facts.labels import (
    Given,
    container_annotations,
    container_hash,
    container_labels,
    owner_of,
    parse_container_record,
    sandbox_handler,
)
from tests.node.objects import UID, a_container, a_pod, container_record, wire_container

CONTAINER = wire_container(
    terminationMessagePath="/dev/termination-log",
    terminationMessagePolicy="File",
    lifecycle={"preStop": {"exec": {"command": ["bye"]}}},
    ports=[{"containerPort": 80}],
)


def test_what_is_remembered_survives_the_way_through_the_engine() -> None:
    pod = a_pod(CONTAINER, terminationGracePeriodSeconds=7)
    container = pod.spec.containers[0]
    record = parse_container_record(container_annotations(pod, container, 3))
    assert container.lifecycle is not None
    assert record == container_record(
        hash=container_hash(container),
        restart_count=3,
        message_path="/dev/termination-log",
        message_policy="File",
        grace_period_s=7,
        pre_stop=container.lifecycle.pre_stop,
        given=Given(container.resources),
    )


def test_the_deletions_patience_comes_before_the_pods() -> None:
    pod = a_pod(meta={"deletionGracePeriodSeconds": 1}, terminationGracePeriodSeconds=7)
    annotations = container_annotations(pod, pod.spec.containers[0], 0)
    assert parse_container_record(annotations).grace_period_s == 1


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {
            "io.kubernetes.container.hash": "not hex",
            "io.kubernetes.container.restartCount": "many",
            "io.kubernetes.container.preStopHandler": "{",
            "io.kubernetes.pod.terminationGracePeriod": "",
            "moorage.dev/resources": "{",
        },
    ],
)
def test_what_is_absent_or_unreadable_counts_as_not_set(annotations: dict[str, str]) -> None:
    assert parse_container_record(annotations) == container_record()


def test_the_hash_follows_name_and_image_only() -> None:
    one = container_hash(a_container())
    assert container_hash(a_container(command=["x"])) == one
    assert container_hash(a_container(image="app:2")) != one
    assert container_hash(a_container("other", image="app:1")) != one


def test_labels_say_whose_it_is() -> None:
    pod = a_pod(meta={"labels": {"tier": "front"}})
    assert container_labels(pod, pod.spec.containers[0]) == {
        "io.kubernetes.pod.name": "web",
        "io.kubernetes.pod.namespace": "shop",
        "io.kubernetes.pod.uid": UID,
        "io.kubernetes.container.name": "app",
    }


OURS = {"moorage.dev/node": owner_of("c1", "n1")}
RECORDED = {"moorage.dev/runtime-handler": "crun"}


@pytest.mark.parametrize(
    ("reported", "labels", "annotations", "wanted"),
    [
        ("runc", OURS, RECORDED, "runc"),
        ("", OURS, RECORDED, "crun"),
        ("", OURS, {"moorage.dev/runtime-handler": ""}, ""),
        ("", OURS, {}, None),
        # Earlier versions passed on what the pod's author wrote.
        ("", {"moorage.dev/node": "n1"}, RECORDED, None),
        ("", {}, RECORDED, None),
    ],
)
def test_a_sandboxs_handler_from_the_engine_or_from_our_own_record(
    reported: str, labels: dict[str, str], annotations: dict[str, str], wanted: str | None
) -> None:
    assert sandbox_handler(reported, labels, annotations) == wanted
