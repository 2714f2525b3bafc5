from __future__ import annotations

from moorage.cri import pb
from moorage.engine.cgroups.files import Pressure, Stall
from moorage.engine.cgroups.measures import Pressures
from moorage.engine.cgroups.usage import Usage
from moorage.engine.stats.messages import container_stats, sandbox_stats
from moorage.engine.stats.samples import Sample
from moorage.linux.network_devices import NetworkDevice, Traffic
from tests.engine.stats.subjects import container, sandbox

WAITED = Pressure(Stall(7000, 1.5, 0.5, 0.25), Stall(3000, 0.0, 0.0, 0.0))
FULL = Sample(
    5,
    1,
    Usage(cpu_ns=50, memory=1000, inactive_file=300, rss=500, page_faults=8, major_page_faults=1,
          memory_limit=4096, swap=20, swap_limit=100, pids=6),
    Pressures(WAITED, None, WAITED),
)  # fmt: skip
EMPTY = Sample(5, 1, Usage(), Pressures())


def test_a_container_with_everything() -> None:
    stats = container_stats(container(), FULL, 17, (4096, 2))
    assert (stats.attributes.id, stats.attributes.metadata.name) == ("c1", "app")
    assert dict(stats.attributes.labels) == {"role": "web"}
    assert (stats.cpu.timestamp, stats.cpu.usage_core_nano_seconds.value) == (5, 50)
    assert stats.cpu.usage_nano_cores.value == 17
    assert (stats.cpu.psi.Some.Total, stats.cpu.psi.Full.Total) == (7000, 3000)
    memory = stats.memory
    assert (memory.usage_bytes.value, memory.working_set_bytes.value) == (1000, 700)
    assert (memory.available_bytes.value, memory.rss_bytes.value) == (3396, 500)
    assert (memory.page_faults.value, memory.major_page_faults.value) == (8, 1)
    assert not memory.HasField("psi")
    assert (stats.swap.swap_usage_bytes.value, stats.swap.swap_available_bytes.value) == (20, 80)
    assert stats.io.psi.Some.Avg10 == 1.5
    layer = stats.writable_layer
    assert (layer.used_bytes.value, layer.inodes_used.value) == (4096, 2)
    assert layer.fs_id.mountpoint == "/"


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


def test_a_sandbox_with_its_devices_and_containers() -> None:
    devices = [device("net1"), device("eth0")]
    inner = [container_stats(container(), EMPTY, None, None)]
    stats = sandbox_stats(sandbox(), FULL, 17, devices=devices, containers=inner)
    assert (stats.attributes.id, stats.attributes.metadata.namespace) == ("s1", "shop")
    linux = stats.linux
    assert linux.process.process_count.value == 6
    assert [container.attributes.id for container in linux.containers] == ["c1"]
    assert linux.network.default_interface == pb.NetworkInterfaceUsage(
        name="eth0",
        rx_bytes=pb.UInt64Value(value=1),
        rx_errors=pb.UInt64Value(value=3),
        tx_bytes=pb.UInt64Value(value=5),
        tx_errors=pb.UInt64Value(value=7),
    )
    assert [interface.name for interface in linux.network.interfaces] == ["net1"]


def test_default_interface_is_the_first_device_without_eth0_and_unset_without_devices() -> None:
    stats = sandbox_stats(sandbox(), EMPTY, None, devices=[device("a"), device("b")], containers=[])
    assert stats.linux.network.default_interface.name == "a"
    stats = sandbox_stats(sandbox(), EMPTY, None, devices=[], containers=[])
    assert not stats.linux.HasField("network")
