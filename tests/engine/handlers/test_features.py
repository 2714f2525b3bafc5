"""The features a runtime claims, after the OCI runtime-spec's structure."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moorage.engine.handlers.features import HandlerFeatures, parse_features

NEW_KERNEL = (6, 1)
OLD_KERNEL = (5, 10)
NAMESPACES = ["cgroup", "ipc", "mount", "network", "pid", "user", "uts"]


def document(**changes: Any) -> bytes:
    return json.dumps(
        {
            "ociVersionMin": "1.0.0",
            "ociVersionMax": "1.2.0",
            "mountOptions": ["ro", "rro", "rw"],
            "linux": {"namespaces": NAMESPACES, "mountExtensions": {"idmap": {"enabled": True}}},
            **changes,
        }
    ).encode()


CASES = {
    "everything": (document(), NEW_KERNEL, (True, True)),
    "a kernel without rro": (document(), OLD_KERNEL, (False, True)),
    "no rro option": (document(mountOptions=["ro"]), NEW_KERNEL, (False, True)),
    "no options reported": (document(mountOptions=None), NEW_KERNEL, (False, True)),
    "no idmap reported, as runc 1.1 does": (
        document(linux={"namespaces": NAMESPACES}),
        NEW_KERNEL,
        (True, False),
    ),
    "idmap off": (
        document(
            linux={"namespaces": NAMESPACES, "mountExtensions": {"idmap": {"enabled": False}}}
        ),
        NEW_KERNEL,
        (True, False),
    ),
    "idmap without user namespaces": (
        document(linux={"namespaces": [], "mountExtensions": {"idmap": {"enabled": True}}}),
        NEW_KERNEL,
        (True, False),
    ),
    "nothing of Linux": (document(linux=None), NEW_KERNEL, (True, False)),
}


@pytest.mark.parametrize(("output", "kernel", "expected"), CASES.values(), ids=CASES)
def test_features_follow_the_document_and_the_kernel(
    output: bytes, kernel: tuple[int, int], expected: tuple[bool, bool]
) -> None:
    assert parse_features(output, kernel) == HandlerFeatures(*expected)


@pytest.mark.parametrize(
    "output", [b"", b"unknown command features\nUsage: runsc", b"{}", b"[]", b'{"linux": 1}']
)
def test_invalid_features_document_is_none(output: bytes) -> None:
    assert parse_features(output, NEW_KERNEL) is None


def test_features_are_named_as_the_api_spells_them() -> None:
    assert HandlerFeatures(True, True).names == ("recursiveReadOnlyMounts", "userNamespaces")
    assert HandlerFeatures().names == ()
