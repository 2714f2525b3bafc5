from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.engine.errors import InvalidError
from moorage.engine.oci import Identity, resolve_identity
from moorage.engine.oci.identity import choose_identity, parse_group, parse_passwd, read_image_file
from moorage.wire.cri import pb

USERS = parse_passwd("root:x:0:0:root:/root:/bin/sh\nweb:x:1001:1002::/:/bin/sh\n77:x:5:5::/:/\n")
GROUPS = parse_group(
    "root:x:0:\nweb:x:1002:web\nlogs:x:1500:web,other\nadm:x:1600:root\ndouble:x:1500:web\n"
)


def number(value: int) -> pb.Int64Value:
    return pb.Int64Value(value=value)


def context(**fields: Any) -> pb.LinuxContainerSecurityContext:
    return pb.LinuxContainerSecurityContext(**fields)


@pytest.mark.parametrize(
    ("fields", "image_user", "expected"),
    [
        ({}, "", Identity(0, 0, (0, 1600), "root")),
        ({}, "web", Identity(1001, 1002, (1002, 1500), "web")),
        ({}, "1001", Identity(1001, 1002, (1002, 1500), "web")),
        ({}, "web:logs", Identity(1001, 1500, (1500,), "web")),
        ({}, "web:7", Identity(1001, 7, (7, 1500), "web")),
        ({}, "4000:5000", Identity(4000, 5000, (5000,))),
        ({}, ":5000", Identity(0, 5000, (5000, 1600), "root")),
        ({"run_as_user": number(1001)}, "root", Identity(1001, 1002, (1002, 1500), "web")),
        ({"run_as_user": number(0)}, "web", Identity(0, 0, (0, 1600), "root")),
        ({"run_as_user": number(9)}, "web:logs", Identity(9, 0, (0,))),
        ({"run_as_user": number(9), "run_as_group": number(8)}, "", Identity(9, 8, (8,))),
        ({"run_as_username": "web"}, "root", Identity(1001, 1002, (1002, 1500), "web")),
        ({"run_as_username": "web", "run_as_group": number(3)}, "",
         Identity(1001, 3, (3, 1500), "web")),
        ({"run_as_user": number(1001), "supplemental_groups": [60, 1500]}, "",
         Identity(1001, 1002, (1002, 1500, 60), "web")),
        ({"run_as_user": number(1001), "supplemental_groups": [60],
          "supplemental_groups_policy": pb.Strict}, "", Identity(1001, 1002, (1002, 60), "web")),
        ({"run_as_user": number(77)}, "", Identity(77, 0, (0,))),
    ],
)  # fmt: skip
def test_user_and_groups_of_a_process(
    fields: dict[str, Any], image_user: str, expected: Identity
) -> None:
    assert choose_identity(context(**fields), image_user, USERS, GROUPS) == expected


@pytest.mark.parametrize(
    ("fields", "image_user", "text"),
    [
        ({"run_as_user": number(1), "run_as_username": "web"}, "", "set only one of them"),
        ({"run_as_group": number(5)}, "web", "run_as_group 5 is specified without user"),
        ({"run_as_username": "guest"}, "", "no user 'guest' in the image's /etc/passwd"),
        ({}, "ghost", "no user 'ghost'"),
        ({}, "web:ghosts", "no group 'ghosts' in the image's /etc/group"),
        ({"run_as_user": number(-1)}, "", "run_as_user -1 is out of range"),
        ({"run_as_user": number(2**31)}, "", "out of range"),
        ({}, "99999999999", "user 99999999999 is out of range"),
        ({"supplemental_groups": [-3]}, "", "supplemental group -3"),
    ],
)
def test_invalid_user_is_rejected(fields: dict[str, Any], image_user: str, text: str) -> None:
    with pytest.raises(InvalidError, match=text):
        choose_identity(context(**fields), image_user, USERS, GROUPS)


def test_invalid_passwd_lines_are_skipped() -> None:
    text = "# comment:x:1:1\n\n+::::\nbad:x:one:1\nshort:x\n ok:x:3:4\r\n:x:5:5:\n"
    assert [(account.name, account.uid, account.gid) for account in parse_passwd(text)] == [
        ("ok", 3, 4)
    ]


def test_status_reports_user_and_groups() -> None:
    linux = Identity(5, 6, (6, 7), "web").message().linux
    assert (linux.uid, linux.gid, list(linux.supplemental_groups)) == (5, 6, [6, 7])


def test_files_that_an_image_lacks_are_empty(tmp_path: Path) -> None:
    assert resolve_identity(context(), "", tmp_path) == Identity(0, 0, (0,))
    with pytest.raises(InvalidError, match="no user 'web'"):
        resolve_identity(context(), "web", tmp_path)


@given(
    st.integers(0, 2**31 - 1),
    st.lists(st.integers(0, 2**31 - 1), max_size=5),
    st.sampled_from([pb.Merge, pb.Strict]),
)
def test_the_primary_group_comes_first_and_no_group_twice(
    uid: int, groups: list[int], policy: pb.SupplementalGroupsPolicy.ValueType
) -> None:
    asked = context(
        run_as_user=number(uid), supplemental_groups=groups, supplemental_groups_policy=policy
    )
    identity = choose_identity(asked, "", USERS, GROUPS)
    assert identity.additional_gids[0] == identity.gid
    assert len(set(identity.additional_gids)) == len(identity.additional_gids)
    assert set(groups) <= set(identity.additional_gids)


@given(st.text())
def test_any_text_can_be_read_as_either_file(text: str) -> None:
    parse_passwd(text)
    parse_group(text)


def test_a_file_that_cannot_be_opened_is_not_taken_for_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container would run as another user than its image says."""

    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(InvalidError, match="the image's /etc/passwd cannot be read: Input/output"):
        read_image_file(tmp_path, "etc/passwd")
