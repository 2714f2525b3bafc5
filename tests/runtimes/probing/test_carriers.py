"""The suite of probe carriers, on both: CRI sandboxes, and pods through the API."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from moorage.runtimes.probing import (
    Outcome,
    ProbeCarrier,
    ProbeContainer,
    ProbeRefusedError,
    Seccomp,
)
from tests.own_engine import running_engine
from tests.running import BUSYBOX, RunningCluster, skip_without_runtimes
from tests.runtimes.probing.carriers import cri_carrier, pod_carrier

pytestmark = pytest.mark.runtime
_DEADLINE_S = 30.0
_LISTEN = ("nc", "-l", "-p", "7000", "-e", "echo", "moorage")


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    skip_without_runtimes()
    with running_engine() as endpoint:
        yield endpoint


@pytest.fixture(params=["cri", "pods"])
def place(request: pytest.FixtureRequest) -> str | RunningCluster:
    """An engine's endpoint, or a cluster."""
    name = "engine" if request.param == "cri" else "whole_cluster"
    found: str | RunningCluster = request.getfixturevalue(name)
    return found


@pytest.fixture
async def carrier(place: str | RunningCluster, tmp_path: Path) -> AsyncIterator[ProbeCarrier]:
    if isinstance(place, str):
        async with cri_carrier(place, tmp_path) as cri:
            yield cri
    else:
        async with pod_carrier(place) as pods:
            yield pods


def _probe(*command: str, **settings: object) -> ProbeContainer:
    return ProbeContainer(image=BUSYBOX, command=command, **settings)  # type: ignore[arg-type]


def _handlers() -> list[str]:
    return ["runc", "crun", *(["gvisor"] if shutil.which("runsc") else [])]


@pytest.mark.parametrize("handler", _handlers())
async def test_a_container_of_each_handler_runs_to_its_end(
    carrier: ProbeCarrier, handler: str
) -> None:
    command = _probe("sh", "-c", "echo out; echo err >&2; exit 3")
    result = await carrier.run(handler, command, deadline_s=_DEADLINE_S)
    assert (result.outcome, result.exit_code) == (Outcome.ENDED, 3), result
    assert sorted(result.output.split()) == ["err", "out"]
    assert 0 < result.start_s <= result.total_s


async def test_a_handler_that_does_not_exist_is_refused_with_its_name(
    carrier: ProbeCarrier,
) -> None:
    result = await carrier.run("none-such", _probe("true"), deadline_s=_DEADLINE_S)
    assert result.outcome is Outcome.REFUSED
    assert "none-such" in result.error


async def test_a_program_that_does_not_exist_is_refused(carrier: ProbeCarrier) -> None:
    result = await carrier.run("crun", _probe("/none"), deadline_s=_DEADLINE_S)
    # Where a container is said to have started before, it ends with 127 or 128.
    assert result.outcome is Outcome.REFUSED or result.exit_code in (127, 128), result


async def test_a_container_that_hangs_is_cut_off_with_what_it_printed(
    carrier: ProbeCarrier,
) -> None:
    command = _probe("sh", "-c", "echo before; exec sleep 600")
    result = await carrier.run("crun", command, deadline_s=3.0)
    assert result.outcome is Outcome.CUT_OFF
    assert result.output.strip() == "before"
    assert "3 s" in result.error


async def test_endless_output_is_bounded(carrier: ProbeCarrier) -> None:
    result = await carrier.run("crun", _probe("yes"), deadline_s=3.0)
    assert result.outcome is Outcome.CUT_OFF
    assert len(result.output) <= 64 * 1024


async def test_capabilities_and_seccomp_are_those_asked_for(carrier: ProbeCarrier) -> None:
    probe = _probe(
        "grep", "-E", "^(CapEff|Seccomp):", "/proc/self/status",
        capabilities=("SYS_TIME",), seccomp=Seccomp.RUNTIME_DEFAULT,
    )  # fmt: skip
    result = await carrier.run("crun", probe, deadline_s=_DEADLINE_S)
    status = dict(line.split(":") for line in result.output.splitlines())
    assert int(status["CapEff"], 16) & 1 << 25
    assert status["Seccomp"].strip() == "2"


async def test_limits_end_a_container_that_exceeds_them(carrier: ProbeCarrier) -> None:
    probe = _probe("tail", "/dev/zero", memory_bytes=32 * 1024 * 1024)
    result = await carrier.run("crun", probe, deadline_s=_DEADLINE_S)
    assert (result.outcome, result.exit_code, result.reason) == (Outcome.ENDED, 137, "OOMKilled")


async def test_a_terminal_is_a_terminal(carrier: ProbeCarrier) -> None:
    probe = _probe("tty", has_terminal=True)
    result = await carrier.run("crun", probe, deadline_s=_DEADLINE_S)
    assert result.output.strip().startswith("/dev/"), result


async def test_a_kept_container_takes_commands_resizes_and_connections(
    carrier: ProbeCarrier,
) -> None:
    probe = _probe(*_LISTEN, cpu_millis=100, memory_bytes=32 * 1024 * 1024)
    async with carrier.running("crun", probe, deadline_s=_DEADLINE_S) as running:
        executed = await running.exec(["sh", "-c", "echo hello; exit 4"], deadline_s=_DEADLINE_S)
        assert (executed.exit_code, executed.output) == (4, "hello\n")
        resized = await running.resize(
            cpu_millis=200, memory_bytes=48 * 1024 * 1024, deadline_s=_DEADLINE_S
        )
        assert resized.is_success, resized
        fetched = await running.fetch(7000, deadline_s=_DEADLINE_S)
        assert fetched.output == "moorage\n", fetched
        assert (await running.ended(deadline_s=_DEADLINE_S)).is_success


async def test_a_kept_container_that_is_refused_says_why(carrier: ProbeCarrier) -> None:
    with pytest.raises(ProbeRefusedError, match="none-such"):
        async with carrier.running("none-such", _probe("true"), deadline_s=_DEADLINE_S):
            pass
