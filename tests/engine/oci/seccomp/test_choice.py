from __future__ import annotations

from typing import Any

import pytest

from moorage.engine.errors import InvalidError
from moorage.engine.oci.seccomp import SeccompChoice, choose_seccomp
from moorage.wire.cri import pb

BUILT_IN = SeccompChoice(is_built_in=True)
NONE = SeccompChoice()
Profile = pb.SecurityProfile


def choice(default: str = "builtin", *, has_seccomp: bool = True, **fields: Any) -> SeccompChoice:
    context = pb.LinuxContainerSecurityContext(**fields)
    return choose_seccomp(context, default, has_seccomp=has_seccomp)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, NONE),
        ({"seccomp": Profile(profile_type=Profile.RuntimeDefault)}, BUILT_IN),
        ({"seccomp": Profile(profile_type=Profile.Unconfined)}, NONE),
        ({"seccomp": Profile(profile_type=Profile.Localhost, localhost_ref="/p.json")},
         SeccompChoice(path="/p.json")),
        ({"seccomp_profile_path": "runtime/default"}, BUILT_IN),
        ({"seccomp_profile_path": "docker/default"}, BUILT_IN),
        ({"seccomp_profile_path": "unconfined"}, NONE),
        ({"seccomp_profile_path": "localhost//p.json"}, SeccompChoice(path="/p.json")),
        ({"seccomp_profile_path": "localhost//p.json",
          "seccomp": Profile(profile_type=Profile.Unconfined)}, NONE),
        ({"seccomp": Profile(profile_type=Profile.RuntimeDefault), "privileged": True}, NONE),
    ],
)  # fmt: skip
def test_choices(fields: dict[str, Any], expected: SeccompChoice) -> None:
    assert choice(**fields) == expected


@pytest.mark.parametrize(
    ("default", "expected"),
    [("builtin", BUILT_IN), ("unconfined", NONE), ("/p.json", SeccompChoice(path="/p.json"))],
)
def test_the_handler_says_what_the_default_is(default: str, expected: SeccompChoice) -> None:
    assert choice(default, seccomp=Profile(profile_type=Profile.RuntimeDefault)) == expected


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"seccomp": Profile(profile_type=Profile.Localhost, localhost_ref="p.json")},
         "seccomp.localhost_ref 'p.json' must be an absolute path"),
        ({"seccomp_profile_path": "localhost/p.json"}, "must be an absolute path"),
        ({"seccomp_profile_path": "custom"}, "'custom' is not supported"),
    ],
)  # fmt: skip
def test_invalid_profile_choice_is_rejected(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidError, match=text):
        choice(**fields)


def test_a_kernel_without_filters_does_not_pretend() -> None:
    with pytest.raises(InvalidError, match="this kernel has no seccomp"):
        choice(seccomp=Profile(profile_type=Profile.RuntimeDefault), has_seccomp=False)
    assert choice(has_seccomp=False) == NONE
