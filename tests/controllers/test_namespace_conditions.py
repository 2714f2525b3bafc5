from __future__ import annotations

from moorage.api.meta import ObjectMeta
from moorage.controllers.namespaces import Progress, conditions_after
from moorage.wire.client.resources import CONFIG_MAPS, DEPLOYMENTS
from tests.controllers.objects import NOW, ago


def by_type(progress: Progress) -> dict[str, tuple[str, str, str]]:
    conditions = conditions_after((), progress, NOW)
    return {
        condition["type"]: (condition["status"], condition["reason"], condition["message"])
        for condition in conditions
    }


def test_an_empty_namespace_has_no_troubles() -> None:
    progress = Progress()
    assert progress.is_empty
    assert {condition[0] for condition in by_type(progress).values()} == {"False"}


def test_what_remains_is_counted_by_resource_and_finalizer() -> None:
    progress = Progress()
    progress.left(CONFIG_MAPS, [ObjectMeta(name="a", finalizers=("x/y",)), ObjectMeta(name="b")])
    progress.left(DEPLOYMENTS, [ObjectMeta(name="a", finalizers=("x/y", "a/b"))])
    assert not progress.is_empty
    by_condition = by_type(progress)
    assert by_condition["NamespaceContentRemaining"] == (
        "True",
        "SomeResourcesRemain",
        "Some resources are remaining: configmaps. has 2 resource instances, "
        "deployments.apps has 1 resource instances",
    )
    assert by_condition["NamespaceFinalizersRemaining"] == (
        "True",
        "SomeFinalizersRemain",
        "Some content in the namespace has finalizers remaining: a/b in 1 resource instances, "
        "x/y in 2 resource instances",
    )
    assert by_condition["NamespaceDeletionContentFailure"][0] == "False"


def test_failures_keep_the_namespace() -> None:
    failed = Progress(deletion_failures=["b", "a"])
    assert not failed.is_empty
    assert by_type(failed)["NamespaceDeletionContentFailure"] == (
        "True",
        "ContentDeletionFailed",
        "Failed to delete all resource types, 2 remaining: a, b",
    )
    unread = Progress(discovery_failures=[("x/v1", "why")])
    assert not unread.is_empty
    assert by_type(unread)["NamespaceDeletionDiscoveryFailure"][1] == "DiscoveryFailed"


def test_conditions_that_hold_on_keep_their_time_and_others_stay() -> None:
    first = conditions_after((), Progress(), NOW)
    assert conditions_after(first, Progress(), NOW.replace(hour=13)) == first
    foreign = {"type": "Mine", "status": "True"}
    assert foreign in conditions_after((foreign, *first), Progress(), NOW)
    assert {condition["lastTransitionTime"] for condition in first} == {ago(0)}
