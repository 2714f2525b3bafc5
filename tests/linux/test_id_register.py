"""The register of node agents on one host: who is in it, and when an entry or all of it goes."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import pytest

from moorage.linux import id_register
from moorage.linux.id_register import enter, forget, locked_register, others
from tests.descriptors import open_descriptors


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(id_register, "KUBELET_PODS", tmp_path / "kubelet")
    return tmp_path / "state/register"


def agent(tmp_path: Path, name: str, register: Path) -> Path:
    """An agent with pods, on record."""
    pods = tmp_path / name / "pods"
    pods.mkdir(parents=True)
    with locked_register(register):
        enter(register, pods)
    return pods


def test_each_agent_sees_the_others_and_a_kubelet(tmp_path: Path, register: Path) -> None:
    first, second = agent(tmp_path, "a", register), agent(tmp_path, "b", register)
    kubelet = tmp_path / "kubelet"
    assert others(register, first) == [kubelet, second]
    assert others(register, second) == [kubelet, first]


def test_an_entry_is_one_file_for_its_owner_alone_however_the_path_is_written(
    tmp_path: Path, register: Path
) -> None:
    pods = agent(tmp_path, "a", register)
    (tmp_path / "link").symlink_to(pods)
    with locked_register(register):
        enter(register, tmp_path / "link")
    (entry,) = register.iterdir()
    assert os.fsdecode(entry.read_bytes()) == str(pods)
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600
    assert stat.S_IMODE(register.stat().st_mode) == 0o700
    assert others(register, tmp_path / "link") == [tmp_path / "kubelet"]


def test_an_entry_that_is_there_is_not_written_again(tmp_path: Path, register: Path) -> None:
    pods = agent(tmp_path, "a", register)
    (entry,) = register.iterdir()
    before = entry.stat().st_mtime_ns
    os.utime(entry, ns=(before - 10**9, before - 10**9))
    with locked_register(register):
        enter(register, pods)
    assert entry.stat().st_mtime_ns == before - 10**9


def test_an_agent_whose_directory_is_gone_is_dropped(tmp_path: Path, register: Path) -> None:
    gone, left = agent(tmp_path, "a", register), agent(tmp_path, "b", register)
    gone.rmdir()
    assert others(register, left) == [tmp_path / "kubelet"]
    assert len(list(register.iterdir())) == 1


def test_the_last_agent_to_be_forgotten_takes_the_register_along(
    tmp_path: Path, register: Path
) -> None:
    first, second = agent(tmp_path, "a", register), agent(tmp_path, "b", register)
    forget(first, register)
    assert others(register, tmp_path / "c") == [tmp_path / "kubelet", second]
    forget(second, register)
    assert not register.exists()
    forget(second, register)
    assert not register.exists()


def test_forgetting_drops_others_that_are_gone_too(tmp_path: Path, register: Path) -> None:
    first, second = agent(tmp_path, "a", register), agent(tmp_path, "b", register)
    second.rmdir()
    forget(first, register)
    assert not register.exists()


def test_the_register_is_locked_for_the_block_and_not_longer(register: Path) -> None:
    before = open_descriptors()
    with locked_register(register):
        assert not is_free(register)
    assert is_free(register)
    assert open_descriptors() == before


def is_free(register: Path) -> bool:
    descriptor = os.open(register, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def test_a_register_removed_while_its_lock_was_awaited_is_made_again(
    register: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock
    locks: list[int] = []

    def remove_first(descriptor: int, operation: int) -> None:
        if not locks:
            register.rmdir()
        locks.append(descriptor)
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    before = open_descriptors()
    with locked_register(register):
        assert register.is_dir()
        assert len(locks) == 2
        assert open_descriptors() == before + 1
