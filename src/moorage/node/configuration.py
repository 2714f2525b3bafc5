"""Node configuration file: the fields of a KubeletConfiguration that this agent has, as options.

Other fields are refused by name, so that no setting looks active that is not. Source:
kubelet.config.k8s.io/v1beta1 KubeletConfiguration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moorage.api.durations import parse_duration
from moorage.api.yaml_values import YamlError, parse_document
from moorage.linux.descriptors import NotRegularError, read_regular_file
from moorage.node.pressure.thresholds import DEFAULT_HARD, EvictionOptions, thresholds_of
from moorage.node.shutdown_periods import ShutdownPeriod, periods_of

API_VERSION = "kubelet.config.k8s.io/v1beta1"
KIND = "KubeletConfiguration"
_LARGEST_BYTES = 1024 * 1024
_MOST_INT32 = 2**31 - 1


class ConfigurationError(ValueError):
    """A configuration file cannot be used; the text names the file, the field and the reason."""


@dataclass(frozen=True, slots=True)
class NodeConfiguration:
    """What a file sets."""

    eviction: EvictionOptions = field(default_factory=EvictionOptions)
    static_pod_path: Path | None = None
    shutdown_periods: tuple[ShutdownPeriod, ...] = ()


def load_configuration(path: Path) -> NodeConfiguration:
    """Read a file. Raises ConfigurationError."""
    try:
        text = read_regular_file(path, _LARGEST_BYTES + 1)
        if len(text) > _LARGEST_BYTES:
            raise ConfigurationError("it is larger than 1 MiB")
        return parse_configuration(parse_document(text).value)
    except NotRegularError as error:
        raise ConfigurationError(f"node configuration {path}: {error.problem}") from error
    except OSError as error:
        raise ConfigurationError(f"node configuration {path}: {error.strerror}") from error
    except (YamlError, ValueError) as error:
        raise ConfigurationError(f"node configuration {path}: {error}") from error


def parse_configuration(document: Any) -> NodeConfiguration:
    """Return the settings of a KubeletConfiguration. Raises ValueError."""
    if not isinstance(document, dict):
        raise ConfigurationError(f"it is no {KIND}")
    header = {"apiVersion": API_VERSION, "kind": KIND}
    for name, wanted in header.items():
        if document.get(name) != wanted:
            raise ConfigurationError(f"{name} must be {wanted}, not {document.get(name)!r}")
    values: dict[str, Any] = {}
    for name, value in document.items():
        if name in header or value is None:
            continue
        setting = _FIELDS.get(name)
        if setting is None:
            raise ConfigurationError(
                f"field {name} is not one of this node agent's: {', '.join(_FIELDS)}"
            )
        option, parse = setting
        try:
            values[option] = parse(value)
        except ValueError as error:
            raise ConfigurationError(f"field {name}: {error}") from error
    static_pod_path = values.pop("static_pod_path", None)
    periods = periods_of(
        values.pop("shutdown_s", 0.0),
        values.pop("shutdown_critical_s", 0.0),
        values.pop("shutdown_by_priority", ()),
    )
    is_merged = values.pop("is_merged", False)
    if is_merged:
        values["hard"] = {**DEFAULT_HARD, **values.get("hard", {})}
    eviction = EvictionOptions(**values)
    thresholds_of(eviction)
    return NodeConfiguration(eviction, static_pod_path, periods)


def _texts(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ValueError("it must be an object whose values are strings")
    return value


def _seconds(value: Any) -> float:
    if not isinstance(value, str):
        raise ValueError('it must be a duration, such as "5m0s"')
    return parse_duration(value).total_seconds()


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST_INT32:
        raise ValueError(f"it must be a number of seconds from 0 to {_MOST_INT32}")
    return value


def _path(value: Any) -> Path | None:
    if not isinstance(value, str) or (value and not value.startswith("/")) or "\0" in value:
        raise ValueError("it must be an absolute path")
    return Path(value) if value else None


def _periods(value: Any) -> tuple[ShutdownPeriod, ...]:
    names = {"priority", "shutdownGracePeriodSeconds"}
    if not isinstance(value, list):
        raise ValueError("it must be a list")
    periods = []
    for element in value:
        if not isinstance(element, dict) or not names.issuperset(element):
            raise ValueError(f"each element has the fields {' and '.join(sorted(names))}")
        priority = element.get("priority", 0)
        if not isinstance(priority, int) or isinstance(priority, bool):
            raise ValueError("priority must be a number")
        periods.append(
            ShutdownPeriod(priority, _whole(element.get("shutdownGracePeriodSeconds", 0)))
        )
    return tuple(periods)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("it must be true or false")
    return value


_FIELDS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "evictionHard": ("hard", _texts),
    "evictionSoft": ("soft", _texts),
    "evictionSoftGracePeriod": ("soft_grace", _texts),
    "evictionMinimumReclaim": ("minimum_reclaim", _texts),
    "evictionPressureTransitionPeriod": ("transition_s", _seconds),
    "evictionMaxPodGracePeriod": ("max_pod_grace_s", _whole),
    "mergeDefaultEvictionSettings": ("is_merged", _flag),
    "staticPodPath": ("static_pod_path", _path),
    "shutdownGracePeriod": ("shutdown_s", _seconds),
    "shutdownGracePeriodCriticalPods": ("shutdown_critical_s", _seconds),
    "shutdownGracePeriodByPodPriority": ("shutdown_by_priority", _periods),
}
"""Field → the option it sets, and how its value is read."""
