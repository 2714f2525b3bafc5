from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from moorage.controllers.deployments.revisions import (
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    REVISION,
    REVISION_HISTORY,
    expired_sets,
    new_set_annotations,
    next_revision,
)
from moorage.controllers.deployments.set_requests import new_set, with_collision
from moorage.controllers.templates import HASH_LABEL, is_same_template, template_hash, with_hash
from tests.controllers.objects import OTHER_TEMPLATE, TEMPLATE, deployment, replica_set

ALPHABET = set("bcdfghjklmnpqrstvwxz2456789")


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none()), st.integers(0, 9))
def test_hashes_are_of_the_safe_alphabet_and_stable(template: dict[str, object], n: int) -> None:
    hash_ = template_hash(template, n)
    assert set(hash_) <= ALPHABET
    assert hash_ == template_hash(dict(reversed(template.items())), n)


def test_a_collision_makes_another_hash() -> None:
    assert template_hash(TEMPLATE, 0) != template_hash(TEMPLATE, 1)
    before = deployment(1)
    assert (
        new_set(before, {}, 1)["metadata"]["name"]
        != new_set(with_collision(before), {}, 1)["metadata"]["name"]
    )


def test_the_hash_label_does_not_make_a_template_another() -> None:
    labelled = with_hash(TEMPLATE, "x")
    assert labelled["metadata"]["labels"] == {"app": "web", HASH_LABEL: "x"}
    assert is_same_template(labelled, TEMPLATE)
    assert is_same_template(with_hash({}, "x"), {})
    assert not is_same_template(TEMPLATE, OTHER_TEMPLATE)


def test_a_new_set_has_the_deployments_notes_but_not_its_bookkeeping() -> None:
    noted = deployment(
        10,
        annotations={
            "kubernetes.io/change-cause": "why",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
            REVISION: "7",
        },
    )
    assert new_set_annotations(noted, {}, 8, is_existing=False) == {
        "kubernetes.io/change-cause": "why",
        REVISION: "8",
        DESIRED_REPLICAS: "10",
        MAX_REPLICAS: "13",
    }


def test_a_template_that_comes_back_keeps_the_numbers_it_had() -> None:
    once = new_set_annotations(deployment(1), {REVISION: "1"}, 3, is_existing=True)
    assert once == {REVISION: "3", REVISION_HISTORY: "1"}
    twice = new_set_annotations(deployment(1), once, 5, is_existing=True)
    assert twice == {REVISION: "5", REVISION_HISTORY: "1,3"}
    assert new_set_annotations(deployment(1), twice, 5, is_existing=True) == twice


def test_a_history_that_grows_too_long_loses_its_oldest_numbers() -> None:
    history = ",".join(map(str, range(100000, 100290)))
    after = new_set_annotations(
        deployment(1), {REVISION: "200000", REVISION_HISTORY: history}, 200001, is_existing=True
    )[REVISION_HISTORY]
    assert len(after) <= 2000
    assert after.endswith(",200000")
    assert not after.startswith("100000,")


def test_the_next_revision_follows_the_highest_old_one() -> None:
    assert next_revision([]) == 1
    assert next_revision([replica_set("a", revision=4), replica_set("b", revision=2)]) == 5


def test_the_lowest_empty_revisions_beyond_the_limit_go() -> None:
    full = replica_set("full", 1, revision=1)
    unseen = replica_set("unseen", revision=2)
    unseen = msgspec.structs.replace(
        unseen, metadata=msgspec.structs.replace(unseen.metadata, generation=9)
    )
    empty = [replica_set(f"r{i}", revision=i) for i in (5, 3, 4)]
    gone = expired_sets(deployment(1, history=1), [full, unseen, *empty])
    assert [obj.metadata.name for obj in gone] == ["r3", "r4"]
    assert expired_sets(deployment(1, history=5), [full, unseen, *empty]) == []
    assert expired_sets(deployment(1), [full, unseen, *empty]) == []
