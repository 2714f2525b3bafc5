"""CRI messages of statistics. Pure.

An unknown figure stays unset, so that a kubelet leaves it out; a zero would be reported. Source:
CRI `ContainerStats`, `PodSandboxStats`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from moorage.engine.cgroups.files import Pressure, Stall
from moorage.engine.stats.samples import Sample
from moorage.engine.stats.subjects import ContainerSubject, LayerUsage, SandboxSubject
from moorage.linux.network_devices import NetworkDevice
from moorage.wire.cri import pb

# The name that CNI plugins give a pod's device.
_DEFAULT_DEVICE = "eth0"


def container_stats(
    subject: ContainerSubject, sample: Sample, rate: int | None, layer: LayerUsage | None
) -> pb.ContainerStats:
    """Return a container's statistics; `rate` is its CPU time in nanoseconds per second."""
    stats = pb.ContainerStats(
        attributes=pb.ContainerAttributes(
            id=subject.id,
            metadata=subject.metadata,
            labels=subject.labels,
            annotations=subject.annotations,
        ),
        cpu=_cpu(sample, rate),
        memory=_memory(sample),
        swap=_swap(sample),
        io=_io(sample),
    )
    if layer is not None:
        stats.writable_layer.CopyFrom(_layer(subject.layers, layer, sample.at_ns))
    return stats


def sandbox_stats(
    subject: SandboxSubject,
    sample: Sample,
    rate: int | None,
    *,
    devices: Sequence[NetworkDevice],
    containers: Sequence[pb.ContainerStats],
) -> pb.PodSandboxStats:
    """Return a sandbox's statistics, with those of its containers."""
    return pb.PodSandboxStats(
        attributes=pb.PodSandboxAttributes(
            id=subject.id,
            metadata=subject.metadata,
            labels=subject.labels,
            annotations=subject.annotations,
        ),
        linux=pb.LinuxPodSandboxStats(
            cpu=_cpu(sample, rate),
            memory=_memory(sample),
            network=_network(devices, sample.at_ns),
            process=pb.ProcessUsage(
                timestamp=sample.at_ns, process_count=_value(sample.usage.pids)
            ),
            containers=containers,
            io=_io(sample),
        ),
    )


def _cpu(sample: Sample, rate: int | None) -> pb.CpuUsage:
    return pb.CpuUsage(
        timestamp=sample.at_ns,
        usage_core_nano_seconds=_value(sample.usage.cpu_ns),
        usage_nano_cores=_value(rate),
        psi=_psi(sample.pressures.cpu),
    )


def _memory(sample: Sample) -> pb.MemoryUsage:
    usage = sample.usage
    return pb.MemoryUsage(
        timestamp=sample.at_ns,
        working_set_bytes=_value(usage.working_set),
        available_bytes=_value(usage.available),
        usage_bytes=_value(usage.memory),
        rss_bytes=_value(usage.rss),
        page_faults=_value(usage.page_faults),
        major_page_faults=_value(usage.major_page_faults),
        psi=_psi(sample.pressures.memory),
    )


def _swap(sample: Sample) -> pb.SwapUsage | None:
    used, limit = sample.usage.swap, sample.usage.swap_limit
    if used is None:
        return None
    return pb.SwapUsage(
        timestamp=sample.at_ns,
        swap_available_bytes=_value(None if limit is None else max(limit - used, 0)),
        swap_usage_bytes=_value(used),
    )


def _io(sample: Sample) -> pb.IoUsage | None:
    if sample.pressures.io is None:
        return None
    return pb.IoUsage(timestamp=sample.at_ns, psi=_psi(sample.pressures.io))


def _layer(directory: Path, layer: LayerUsage, at_ns: int) -> pb.FilesystemUsage:
    used_bytes, inodes = layer
    return pb.FilesystemUsage(
        timestamp=at_ns,
        fs_id=pb.FilesystemIdentifier(mountpoint=str(directory)),
        used_bytes=_value(used_bytes),
        inodes_used=_value(inodes),
    )


def _network(devices: Sequence[NetworkDevice], at_ns: int) -> pb.NetworkUsage | None:
    if not devices:
        return None
    default = next((device for device in devices if device.name == _DEFAULT_DEVICE), devices[0])
    return pb.NetworkUsage(
        timestamp=at_ns,
        default_interface=_device(default),
        interfaces=[_device(device) for device in devices if device is not default],
    )


def _device(device: NetworkDevice) -> pb.NetworkInterfaceUsage:
    return pb.NetworkInterfaceUsage(
        name=device.name,
        rx_bytes=_value(device.received.bytes),
        rx_errors=_value(device.received.errors),
        tx_bytes=_value(device.sent.bytes),
        tx_errors=_value(device.sent.errors),
    )


def _psi(pressure: Pressure | None) -> pb.PsiStats | None:
    if pressure is None:
        return None
    return pb.PsiStats(Full=_stall(pressure.full), Some=_stall(pressure.some))


def _stall(stall: Stall) -> pb.PsiData:
    return pb.PsiData(
        Total=stall.total_ns,
        Avg10=stall.average_10,
        Avg60=stall.average_60,
        Avg300=stall.average_300,
    )


def _value(value: int | None) -> pb.UInt64Value | None:
    return None if value is None else pb.UInt64Value(value=value)
