"""Eviction thresholds: parsed from KubeletConfiguration's texts, and when one is met.

A hard threshold has no grace period. Source: KubeletConfiguration `evictionHard`, `evictionSoft`,
`evictionSoftGracePeriod`, `evictionMinimumReclaim`; kubelet `ParseThresholdConfig`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from moorage.api import quantity
from moorage.api.durations import parse_duration
from moorage.api.quantity import NANO, Family, Quantity

# Eviction signals: what is measured, which resource it starves, which condition it reports.
#
# The table's order is the order in which starved resources are reclaimed: memory first. Source:
# kubelet `eviction/api/types.go`, `eviction/helpers.go`; docs "Node-pressure Eviction".

MEMORY_AVAILABLE = "memory.available"
ALLOCATABLE_MEMORY_AVAILABLE = "allocatableMemory.available"
NODEFS_AVAILABLE = "nodefs.available"
NODEFS_INODES_FREE = "nodefs.inodesFree"
IMAGEFS_AVAILABLE = "imagefs.available"
IMAGEFS_INODES_FREE = "imagefs.inodesFree"
PID_AVAILABLE = "pid.available"

MEMORY = "memory"
DISK = "ephemeral-storage"
INODES = "inodes"
PIDS = "pids"

MEMORY_PRESSURE = "MemoryPressure"
DISK_PRESSURE = "DiskPressure"
PID_PRESSURE = "PIDPressure"
CONDITIONS = (MEMORY_PRESSURE, DISK_PRESSURE, PID_PRESSURE)


@dataclass(frozen=True, slots=True)
class Signal:
    """The resource that a signal is about, and the node condition that it causes."""

    resource: str
    condition: str


SIGNALS: Mapping[str, Signal] = {
    MEMORY_AVAILABLE: Signal(MEMORY, MEMORY_PRESSURE),
    ALLOCATABLE_MEMORY_AVAILABLE: Signal(MEMORY, MEMORY_PRESSURE),
    NODEFS_AVAILABLE: Signal(DISK, DISK_PRESSURE),
    IMAGEFS_AVAILABLE: Signal(DISK, DISK_PRESSURE),
    NODEFS_INODES_FREE: Signal(INODES, DISK_PRESSURE),
    IMAGEFS_INODES_FREE: Signal(INODES, DISK_PRESSURE),
    PID_AVAILABLE: Signal(PIDS, PID_PRESSURE),
}

_FAMILIES = {MEMORY: Family.BINARY, DISK: Family.BINARY}


@dataclass(frozen=True, slots=True)
class Observation:
    """Available and total amount of a signal's resource: bytes or a count."""

    available: int
    capacity: int


Observations = Mapping[str, Observation]
"""Observations by signal; one that cannot be measured is left out."""


def amount_of(resource: str, number: int) -> Quantity:
    """Return a number of a resource as upstream prints it: bytes in binary units, counts not."""
    return Quantity(number * NANO, _FAMILIES.get(resource, Family.DECIMAL))


DEFAULT_HARD: Mapping[str, str] = MappingProxyType(
    {
        MEMORY_AVAILABLE: "100Mi",
        NODEFS_AVAILABLE: "10%",
        NODEFS_INODES_FREE: "5%",
        IMAGEFS_AVAILABLE: "15%",
        IMAGEFS_INODES_FREE: "5%",
    }
)
_IGNORED = ("0%", "100%")
# Go's ParseFloat, without its hexadecimal form; Python's float takes other digits and `_` too.
_PERCENTAGE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?%")
_MOST_CHARACTERS = 64


class ThresholdError(ValueError):
    """A threshold cannot be used; the text names its signal and what is wrong."""


@dataclass(frozen=True, slots=True)
class Amount:
    """A quantity, or a share of the capacity between 0 and 1."""

    quantity: Quantity | None = None
    share: float = 0.0

    def of(self, capacity: int) -> Quantity:
        """Return the quantity for a capacity."""
        if self.quantity is not None:
            return self.quantity
        return Quantity(int(capacity * self.share) * NANO, Family.BINARY)


@dataclass(frozen=True, slots=True)
class Threshold:
    """A signal's least available amount; `grace_s` is how long less is tolerated."""

    signal: str
    value: Amount
    grace_s: float = 0.0
    minimum_reclaim: Amount | None = None

    @property
    def is_hard(self) -> bool:
        return self.grace_s == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionOptions:
    """Eviction under node pressure, with the names of KubeletConfiguration; empty `hard` is none.

    `transition_s` is how long a condition stays after its threshold was last met; `max_pod_grace_s`
    bounds the grace period of pods evicted for a soft threshold; `period_s` is between two looks.
    """

    hard: Mapping[str, str] = field(default_factory=lambda: DEFAULT_HARD)
    soft: Mapping[str, str] = field(default_factory=dict)
    soft_grace: Mapping[str, str] = field(default_factory=dict)
    minimum_reclaim: Mapping[str, str] = field(default_factory=dict)
    transition_s: float = 300.0
    max_pod_grace_s: int = 0
    period_s: float = 10.0


def thresholds_of(options: EvictionOptions) -> tuple[Threshold, ...]:
    """Return the thresholds, in the order of their signals, hard ones first.

    A hard `memory.available` holds for the pods' share of the memory too. Raises ThresholdError.
    """
    reclaims = {
        signal: _amount(signal, text, is_reclaim=True)
        for signal, text in _checked(options.minimum_reclaim)
    }
    graces = {signal: _grace_s(signal, text) for signal, text in _checked(options.soft_grace)}
    thresholds = [
        Threshold(signal, value, 0.0, reclaims.get(signal))
        for signal, value in _values(options.hard)
    ]
    thresholds += [
        Threshold(ALLOCATABLE_MEMORY_AVAILABLE, threshold.value, 0.0, threshold.minimum_reclaim)
        for threshold in thresholds
        if threshold.signal == MEMORY_AVAILABLE
    ]
    for signal, value in _values(options.soft):
        if signal not in graces:
            raise ThresholdError(
                f"grace period must be specified for the soft eviction threshold {signal}"
            )
        thresholds.append(Threshold(signal, value, graces[signal], reclaims.get(signal)))
    order = list(SIGNALS)
    return tuple(sorted(thresholds, key=lambda one: (order.index(one.signal), not one.is_hard)))


def met(
    thresholds: Iterable[Threshold], observations: Observations, *, with_reclaim: bool
) -> tuple[Threshold, ...]:
    """Return the thresholds whose signal has less than their value.

    `with_reclaim` adds the minimum reclaim to the value: what was met stays so until that is there.
    """
    return tuple(
        threshold
        for threshold in thresholds
        if (seen := observations.get(threshold.signal)) is not None
        and _is_met(threshold, seen, with_reclaim=with_reclaim)
    )


def hard_reservation(options: EvictionOptions, capacity: Mapping[str, int]) -> dict[str, int]:
    """Return the reserve that pods cannot request, in bytes by resource.

    `capacity` has the node's bytes by resource. Raises ThresholdError. Source: kubelet
    `hardEvictionReservation`.
    """
    wanted = (MEMORY_AVAILABLE, NODEFS_AVAILABLE)
    return {
        SIGNALS[threshold.signal].resource: threshold.value.of(
            capacity[SIGNALS[threshold.signal].resource]
        ).value
        for threshold in thresholds_of(options)
        if threshold.is_hard and threshold.signal in wanted
    }


def _is_met(threshold: Threshold, seen: Observation, *, with_reclaim: bool) -> bool:
    least = threshold.value.of(seen.capacity)
    if with_reclaim and threshold.minimum_reclaim is not None:
        least = least + threshold.minimum_reclaim.of(seen.capacity)
    return least.nano > seen.available * NANO


def _checked(texts: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    for signal, text in texts.items():
        if signal not in SIGNALS:
            raise ThresholdError(
                f"unsupported eviction signal {signal}: known are {', '.join(SIGNALS)}"
            )
        yield signal, text


def _values(texts: Mapping[str, str]) -> Iterable[tuple[str, Amount]]:
    for signal, text in _checked(texts):
        if text not in _IGNORED:
            yield signal, _amount(signal, text, is_reclaim=False)


def _amount(signal: str, text: str, *, is_reclaim: bool) -> Amount:
    what = "minimum reclaim" if is_reclaim else "threshold"
    if len(text) > _MOST_CHARACTERS:
        raise ThresholdError(
            f"eviction {what} {signal} must have at most {_MOST_CHARACTERS} characters"
        )
    try:
        if text.endswith("%"):
            if _PERCENTAGE.fullmatch(text) is None:
                raise ThresholdError(f"eviction {what} {signal}: {text!r} is no percentage")
            share = float(text.removesuffix("%")) / 100
            if not 0 <= share <= 1 or (is_reclaim and share == 0):
                raise ThresholdError(
                    f"eviction percentage {what} {signal} must be between 0% and 100%: {text}"
                )
            return Amount(share=share)
        amount = quantity.parse(text)
    except ThresholdError:
        raise
    except ValueError as error:
        raise ThresholdError(f"eviction {what} {signal}: {text!r}: {error}") from error
    if amount.nano < 0 or (amount.nano == 0 and not is_reclaim):
        raise ThresholdError(f"eviction {what} {signal} must be positive: {text}")
    return Amount(amount)


def _grace_s(signal: str, text: str) -> float:
    if len(text) > _MOST_CHARACTERS:
        raise ThresholdError(
            f"eviction grace period {signal} must have at most {_MOST_CHARACTERS} characters"
        )
    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        raise ThresholdError(f"eviction grace period {signal}: {error}") from error
