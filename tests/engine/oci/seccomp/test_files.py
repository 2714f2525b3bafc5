from __future__ import annotations

import json
from pathlib import Path

import pytest

from moorage.engine.errors import InvalidError
from moorage.engine.oci.seccomp import read_profile


def test_a_profile_keeps_what_a_runtime_knows(tmp_path: Path) -> None:
    place = tmp_path / "p.json"
    place.write_text('{"defaultAction": "SCMP_ACT_LOG", "syscalls": [], "comment": "mine"}')
    assert read_profile(str(place)) == {"defaultAction": "SCMP_ACT_LOG", "syscalls": []}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "cannot be read: No such file"),
        (b"{", "is not a JSON object"),
        (b"[]", "is not a JSON object"),
        (b"{}", "has no defaultAction"),
        (b'{"defaultAction": 3}', "has no defaultAction"),
        (b"\xff\xfe", "is not a JSON object"),
    ],
)
def test_invalid_profile_is_rejected_with_the_reason(
    tmp_path: Path, content: bytes | None, text: str
) -> None:
    place = tmp_path / "p.json"
    if content is not None:
        place.write_bytes(content)
    with pytest.raises(InvalidError, match=text) as error:
        read_profile(str(place))
    assert str(place) in str(error.value)


def test_a_path_must_be_whole() -> None:
    with pytest.raises(InvalidError, match="must be an absolute path"):
        read_profile("p.json")


def test_a_path_with_nul_is_refused() -> None:
    with pytest.raises(InvalidError, match="contains NUL"):
        read_profile("/a\0b.json")


def test_a_profile_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    place = tmp_path / "profile.json"
    place.write_text('{"defaultAction": "SCMP_ACT_ALLOW"}')
    place.chmod(0o666)
    with pytest.raises(InvalidError, match=f"refusing .* {place}: .*chmod go-w {place}"):
        read_profile(str(place))


def test_all_that_a_runtime_knows_is_taken_over_and_nothing_else(tmp_path: Path) -> None:
    """Source: OCI runtime-spec, "Seccomp"."""
    profile = {
        "defaultAction": "SCMP_ACT_NOTIFY", "defaultErrnoRet": 38,
        "flags": ["SECCOMP_FILTER_FLAG_LOG"],
        "architectures": ["SCMP_ARCH_X86_64"], "listenerPath": "/run/agent",
        "listenerMetadata": "pod", "syscalls": [],
    }  # fmt: skip
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({**profile, "archMap": [], "comment": "x"}))
    assert read_profile(str(path)) == profile
