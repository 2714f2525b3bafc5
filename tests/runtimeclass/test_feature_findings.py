"""Findings of several nodes, in groups of those that agree."""

from __future__ import annotations

from moorage.api.runtime_group import (
    SUPPORTED,
    UNSUPPORTED,
    ProfileFeature,
    RuntimeProfile,
    RuntimeProfileSpec,
    RuntimeProfileStatus,
)
from moorage.runtimeclass.features import alike


def _profile(node: str, handler: str, *features: tuple[str, str]) -> RuntimeProfile:
    found = tuple(ProfileFeature(name=name, state=state) for name, state in features)
    return RuntimeProfile(
        spec=RuntimeProfileSpec(node_name=node, handler=handler),
        status=RuntimeProfileStatus(features=found),
    )


def test_nodes_that_found_the_same_are_in_one_group_in_whatever_order_they_list_it() -> None:
    has, lacks = ("exec", SUPPORTED), ("gpu", UNSUPPORTED)
    profiles = [
        _profile("n1", "runc", has, lacks),
        _profile("n2", "runc", lacks, has),
        _profile("n3", "runc", has),
        _profile("n1", "crun", has),
    ]
    groups = {
        handler: [[one.spec.node_name for one in group] for group in found]
        for handler, found in alike(profiles).items()
    }
    assert groups == {"crun": [["n1"]], "runc": [["n1", "n2"], ["n3"]]}
    assert list(groups) == ["crun", "runc"]
