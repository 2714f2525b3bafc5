"""Handlers that are one runtime under two names."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from moorage.runtimes.probing.evidence import HandlerState, KnownHandler, same_handlers


@pytest.mark.parametrize(
    ("fingerprints", "same"),
    [
        ({"runsc": "g", "gvisor": "g"}, {"runsc": "gvisor"}),
        ({"runsc": "g"}, {}),
        ({"gvisor": "g"}, {}),
        # One of the files says something of its own.
        ({"runsc": "other", "gvisor": "g"}, {}),
        ({"runsc": "", "gvisor": ""}, {}),
        ({"kata-containers": "k", "kata": "k", "kata-qemu": "k"}, {"kata-containers": "kata"}),
        # Names that were chosen on this machine.
        ({"gvisor": "g", "mine": "g", "yours": "g"}, {}),
        ({}, {}),
    ],
)
def test_a_second_name_is_of_a_known_runtime_and_says_the_same(
    fingerprints: Mapping[str, str], same: Mapping[str, str]
) -> None:
    states = {
        name: HandlerState(handler=KnownHandler(name=name), fingerprint=print_)
        for name, print_ in fingerprints.items()
    }
    assert same_handlers(states) == same
