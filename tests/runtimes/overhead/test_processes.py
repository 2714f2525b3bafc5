"""Processes behind a pod: which are about it, by which name they count."""

from __future__ import annotations

import os

import pytest

from moorage.api.pods import ContainerStatus, Pod, PodStatus
from moorage.linux.process_memory import proportional_bytes, resident_bytes
from moorage.runtimes.overhead.readings import (
    RuntimeProcesses,
    identities_of,
    is_about,
    outside_bytes,
    program_of,
)

ID, OTHER = "3cce0da8" * 8, "b30ac335" * 8


def test_a_pods_identities_are_those_of_containers_and_cgroups() -> None:
    status = PodStatus(container_statuses=(ContainerStatus(container_id=f"moorage://{ID}"),))
    names = [f"cri-containerd-{OTHER}.scope", "init"]
    assert identities_of(Pod(status=status), names) == {ID, OTHER}


@pytest.mark.parametrize(
    ("argv", "about"),
    [
        (["conmon", "-c", ID], True),
        (["conmon", f"--bundle=/run/{ID}/bundle"], True),
        (["conmon", "-c", OTHER], False),
        (["conmon", "-c", ID[:12]], False),
        ([], False),
    ],
)
def test_a_command_line_is_about_a_pod_that_it_names(argv: list[str], about: bool) -> None:
    assert is_about(argv, frozenset({ID})) is about


def test_nothing_is_about_a_pod_without_identities() -> None:
    assert not is_about(["conmon", "-c", ID], frozenset())


@pytest.mark.parametrize(
    ("argv", "program"),
    [
        (["/usr/bin/conmon", "-c"], "conmon"),
        (["runsc-sandbox --root=/run boot"], "runsc-sandbox"),
        ([], "(without a command line)"),
        ([" "], "(without a command line)"),
        (["x" * 100], "x" * 64),
    ],
)
def test_a_program_is_named_by_its_file(argv: list[str], program: str) -> None:
    assert program_of(argv) == program


def test_only_what_is_not_charged_is_outside() -> None:
    processes = [
        RuntimeProcesses(program="a", count=1, memory_bytes=5, is_charged=False),
        RuntimeProcesses(program="b", count=2, memory_bytes=7, is_charged=True),
    ]
    assert outside_bytes(processes) == 5


def test_shared_pages_count_in_part() -> None:
    own, resident = proportional_bytes(os.getpid()), resident_bytes(os.getpid())
    assert own is not None
    assert resident is not None
    assert 0 < own <= resident * 1.1
    assert proportional_bytes(2**22 + 1) is None
