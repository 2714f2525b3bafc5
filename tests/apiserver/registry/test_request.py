"""Who writes, under which name, and what the answer warns of."""

from __future__ import annotations

import pytest

from moorage.apiserver.registry.request import Request, User


def _request(agent: str = "", manager: str = "") -> Request:
    return Request(user=User("alice"), user_agent=agent, field_manager=manager)


@pytest.mark.parametrize(
    ("agent", "field_manager", "manager"),
    [
        ("kubectl/v1.30 (linux)", "", "kubectl"),
        ("kubectl/v1.30", "mine", "mine"),
        ("", "", "unknown"),
        ("/v1", "", "unknown"),
        ("a" * 128 + "/1", "", "a" * 128),
        ("a" * 129 + "/1", "", "a" * 128),
        ("é" * 65, "", "é" * 64),
        ("a" + "é" * 64, "", "a" + "é" * 63),
        ("a\tb\x00c", "", "abc"),
        ("é\n\u200bx", "", "éx"),
        ("\n", "", "unknown"),
        ("\n" * 1024 + "a", "", "unknown"),
        ("\n" * 1023 + "a", "", "a"),
    ],
)
def test_managers(agent: str, field_manager: str, manager: str) -> None:
    assert _request(agent, field_manager).manager == manager


def test_warnings_are_deduplicated_and_truncated() -> None:
    request = _request()
    for sentence in ("a", "b", "a", "x" * 3000):
        request.warn(sentence)
    assert request.warnings == ["a", "b", "x" * 2048]


@pytest.mark.parametrize(("first", "count"), [(2047, 3), (2048, 2)])
def test_there_is_room_for_so_many_warnings(first: int, count: int) -> None:
    request = _request()
    for sentence in ("x" * first, "y" * 2048, "z" * 2048, "w"):
        request.warn(sentence)
    assert len(request.warnings) == count


def test_defaults() -> None:
    request = Request(user=User("alice"))
    assert (request.is_dry_run, request.is_large, request.field_validation) == (
        False, False, "",
    )  # fmt: skip
    assert (request.user_agent, request.field_manager, request.warnings) == ("", "", [])
    assert (request.user.uid, request.user.groups, request.user.extra) == ("", (), {})
