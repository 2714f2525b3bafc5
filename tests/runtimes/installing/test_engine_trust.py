"""An engine's process is taken for the host's only if it is root on the node anyway."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec
import pytest

from moorage.runtimes.installing.host_entry import (
    ProcessFacts,
    find_distrust,
    find_impostor,
    has_same,
    read_facts,
)

OWN = ProcessFacts(user=0, user_namespace=1, pid_namespace=2, capabilities=1 << 18)
ENGINE = ProcessFacts(user=0, user_namespace=1, pid_namespace=2, capabilities=(1 << 41) - 1)


@pytest.mark.parametrize(
    ("changes", "shares", "problem"),
    [
        ({}, True, ""),
        ({"user": 1000}, True, "runs as user 1000"),
        ({"user_namespace": 9}, True, "a user namespace of its own"),
        ({"pid_namespace": 9}, True, "process IDs of its own"),
        ({"capabilities": (1 << 41) - 1 - (1 << 21)}, True, "lacks the capability SYS_ADMIN"),
        ({}, False, "does not have the agent's directory"),
    ],
)
def test_what_a_pod_may_have_is_not_enough(
    changes: dict[str, int], shares: bool, problem: str
) -> None:
    engine = msgspec.structs.replace(ENGINE, **changes)
    found = find_distrust(engine, OWN, shares_directory=shares)
    assert problem in found
    assert bool(found) == bool(problem)


def test_facts_are_those_of_the_process() -> None:
    facts = read_facts(Path("/proc/self"))
    assert facts.user == os.geteuid()
    assert facts.user_namespace == os.stat("/proc/self/ns/user").st_ino


def test_a_directory_is_the_same_by_its_inode(tmp_path: Path) -> None:
    own = Path("/proc/self")
    assert has_same(own, tmp_path)
    assert not has_same(own, tmp_path / "absent")


def test_a_link_in_an_image_does_not_lead_to_the_agents_directory(tmp_path: Path) -> None:
    shared, process = tmp_path / "shared", tmp_path / "process"
    shared.mkdir()
    link = Path(f"{process}/root{shared}")
    link.parent.mkdir(parents=True)
    link.symlink_to(shared)
    assert os.path.samestat(link.stat(), shared.stat())
    assert not has_same(process, shared)


def test_a_socket_in_a_directory_that_others_write_is_not_trusted(tmp_path: Path) -> None:
    place = tmp_path / "open"
    place.mkdir()
    place.chmod(0o777)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place / "s"))
        assert "can be written by others" in find_impostor(
            Path("/proc/self"), place / "s", tmp_path
        )
        # The way by a link is checked at both ends.
        (tmp_path / "link").symlink_to(place / "s")
        assert "can be written by others" in find_impostor(
            Path("/proc/self"), tmp_path / "link", tmp_path
        )
