from __future__ import annotations

import pytest

from moorage.engine.cgroups.files import Pressure, Stall
from moorage.engine.cgroups.usage import Pressures, Usage
from moorage.engine.stats.messages import container_stats, sandbox_stats
from moorage.engine.stats.samples import Sample
from moorage.linux.network_devices import NetworkDevice, Traffic
from moorage.wire.cri import pb
from tests.engine.stats.subjects import container, sandbox

WAITED = Pressure(Stall(7000, 1.5, 0.5, 0.25), Stall(3000, 4.5, 3.5, 2.25))
FULL = Sample(
    5,
    1,
    Usage(cpu_ns=50, memory=1000, inactive_file=300, rss=500, page_faults=8, major_page_faults=1,
          memory_limit=4096, swap=20, swap_limit=100, pids=6),
    Pressures(WAITED, None, WAITED),
)  # fmt: skip
EMPTY = Sample(5, 1, Usage(), Pressures())


LABELS, ANNOTATIONS = {"role": "web"}, {"note": "n"}


def value(number: int) -> pb.UInt64Value:
    return pb.UInt64Value(value=number)


PSI = pb.PsiStats(
    Some=pb.PsiData(Total=7000, Avg10=1.5, Avg60=0.5, Avg300=0.25),
    Full=pb.PsiData(Total=3000, Avg10=4.5, Avg60=3.5, Avg300=2.25),
)
CPU = pb.CpuUsage(
    timestamp=5, usage_core_nano_seconds=value(50), usage_nano_cores=value(17), psi=PSI
)
MEMORY = pb.MemoryUsage(
    timestamp=5,
    working_set_bytes=value(700),
    available_bytes=value(3396),
    usage_bytes=value(1000),
    rss_bytes=value(500),
    page_faults=value(8),
    major_page_faults=value(1),
)
IO = pb.IoUsage(timestamp=5, psi=PSI)


def test_a_container_with_everything() -> None:
    subject = container(labels=LABELS, annotations=ANNOTATIONS)
    assert container_stats(subject, FULL, 17, (4096, 2)) == pb.ContainerStats(
        attributes=pb.ContainerAttributes(
            id="c1",
            metadata=pb.ContainerMetadata(name="app"),
            labels=LABELS,
            annotations=ANNOTATIONS,
        ),
        cpu=CPU,
        memory=MEMORY,
        writable_layer=pb.FilesystemUsage(
            timestamp=5,
            fs_id=pb.FilesystemIdentifier(mountpoint="/"),
            used_bytes=value(4096),
            inodes_used=value(2),
        ),
        swap=pb.SwapUsage(timestamp=5, swap_available_bytes=value(80), swap_usage_bytes=value(20)),
        io=IO,
    )


def test_pressures_of_memory_and_of_no_input_and_output() -> None:
    sample = Sample(5, 1, Usage(), Pressures(None, WAITED, None))
    stats = container_stats(container(), sample, None, None)
    assert stats.memory == pb.MemoryUsage(timestamp=5, psi=PSI)
    assert stats.cpu == pb.CpuUsage(timestamp=5)
    assert not stats.HasField("io")


@pytest.mark.parametrize(
    ("used", "limit", "available"),
    [(20, 100, value(80)), (100, 100, value(0)), (120, 100, value(0)), (20, None, None)],
)
def test_swap_that_is_left(used: int, limit: int | None, available: pb.UInt64Value | None) -> None:
    sample = Sample(5, 1, Usage(swap=used, swap_limit=limit), Pressures())
    stats = container_stats(container(), sample, None, None)
    assert stats.swap == pb.SwapUsage(
        timestamp=5, swap_available_bytes=available, swap_usage_bytes=value(used)
    )


def test_what_is_not_known_is_not_zero() -> None:
    stats = container_stats(container(), EMPTY, None, None)
    assert (stats.cpu.timestamp, stats.memory.timestamp) == (5, 5)
    assert [field.name for field, _ in stats.cpu.ListFields()] == ["timestamp"]
    assert [field.name for field, _ in stats.memory.ListFields()] == ["timestamp"]
    assert [name for name in ("swap", "io", "writable_layer") if stats.HasField(name)] == []


def test_zero_is_set() -> None:
    sample = Sample(5, 1, Usage(cpu_ns=0, memory=0), Pressures())
    stats = container_stats(container(), sample, 0, None)
    assert stats.cpu.HasField("usage_core_nano_seconds")
    assert stats.cpu.HasField("usage_nano_cores")
    assert stats.memory.HasField("usage_bytes")


def device(name: str) -> NetworkDevice:
    return NetworkDevice(name, Traffic(1, 2, 3, 4), Traffic(5, 6, 7, 8))


def interface(name: str) -> pb.NetworkInterfaceUsage:
    return pb.NetworkInterfaceUsage(
        name=name, rx_bytes=value(1), rx_errors=value(3), tx_bytes=value(5), tx_errors=value(7)
    )


def test_a_sandbox_with_its_devices_and_containers() -> None:
    devices = [device("net1"), device("eth0")]
    inner = [container_stats(container(), EMPTY, None, None)]
    subject = sandbox(labels=LABELS, annotations=ANNOTATIONS)
    stats = sandbox_stats(subject, FULL, 17, devices=devices, containers=inner)
    assert stats == pb.PodSandboxStats(
        attributes=pb.PodSandboxAttributes(
            id="s1",
            metadata=pb.PodSandboxMetadata(name="web", namespace="shop", uid="u"),
            labels=LABELS,
            annotations=ANNOTATIONS,
        ),
        linux=pb.LinuxPodSandboxStats(
            cpu=CPU,
            memory=MEMORY,
            network=pb.NetworkUsage(
                timestamp=5, default_interface=interface("eth0"), interfaces=[interface("net1")]
            ),
            process=pb.ProcessUsage(timestamp=5, process_count=value(6)),
            containers=inner,
            io=IO,
        ),
    )


def test_default_interface_is_the_first_device_without_eth0_and_unset_without_devices() -> None:
    stats = sandbox_stats(sandbox(), EMPTY, None, devices=[device("a"), device("b")], containers=[])
    assert stats.linux.network.default_interface.name == "a"
    stats = sandbox_stats(sandbox(), EMPTY, None, devices=[], containers=[])
    assert not stats.linux.HasField("network")
