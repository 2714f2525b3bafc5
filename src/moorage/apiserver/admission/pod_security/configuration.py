"""Configuration of Pod Security: the policy of namespaces without labels, and exemptions.

Source: `pod-security.admission.config.k8s.io/v1`; API docs "Enforce Pod Security Standards by
Configuring the Built-in Admission Controller".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from moorage.api import names
from moorage.apiserver.admission.options import (
    ConfigurationError,
    Strict,
    converted,
    of_another_kind,
)
from moorage.apiserver.admission.pod_security.policy import (
    LATEST,
    LEVELS,
    NO_POLICY,
    Policy,
    Standard,
    parse_version,
)

API_VERSION = "pod-security.admission.config.k8s.io/v1"
KIND = "PodSecurityConfiguration"


@dataclass(frozen=True, slots=True)
class Exemptions:
    """Whose pods are not checked: by the user that asks, by namespace, by RuntimeClass."""

    usernames: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    runtime_classes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Configuration:
    """`defaults` is the policy where a namespace's labels set none."""

    defaults: Policy = NO_POLICY
    exemptions: Exemptions = field(default_factory=Exemptions)


class _Defaults(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True
):
    enforce: str | None = None
    enforce_version: str | None = None
    audit: str | None = None
    audit_version: str | None = None
    warn: str | None = None
    warn_version: str | None = None


class _Exemptions(Strict, frozen=True, kw_only=True):
    usernames: tuple[str, ...] | None = None
    namespaces: tuple[str, ...] | None = None
    runtime_classes: tuple[str, ...] | None = None


class _Inner(Strict, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    defaults: _Defaults | None = None
    exemptions: _Exemptions | None = None


def parse_configuration(value: Any) -> Configuration:
    """Parse a document. Raises ConfigurationError, which names every fault."""
    source = converted(value, _Inner)
    if (source.api_version, source.kind) != (API_VERSION, KIND):
        raise of_another_kind(source.api_version, source.kind, API_VERSION, KIND)
    defaults, exemptions = source.defaults or _Defaults(), source.exemptions or _Exemptions()
    lists = {
        "namespaces": (exemptions.namespaces or (), names.dns_label_errors),
        "runtimeClasses": (exemptions.runtime_classes or (), names.dns_subdomain_errors),
        "usernames": (exemptions.usernames or (), _username_errors),
    }
    faults = [*_default_faults(defaults)]
    for name, (values, check) in lists.items():
        faults += _list_faults(f"exemptions.{name}", values, check)
    if faults:
        raise ConfigurationError("; ".join(faults))
    policy = Policy(
        enforce=_standard(defaults.enforce, defaults.enforce_version),
        audit=_standard(defaults.audit, defaults.audit_version),
        warn=_standard(defaults.warn, defaults.warn_version),
    )
    usernames, namespaces, classes = (
        frozenset(lists[name][0]) for name in ("usernames", "namespaces", "runtimeClasses")
    )
    return Configuration(policy, Exemptions(usernames, namespaces, classes))


def _standard(level: str | None, version: str | None) -> Standard:
    return Standard(level or LEVELS[0], parse_version(version or "latest") or LATEST)


def _default_faults(defaults: _Defaults) -> Iterator[str]:
    for mode in ("enforce", "warn", "audit"):
        level, version = getattr(defaults, mode), getattr(defaults, f"{mode}_version")
        if level and level not in LEVELS:
            yield f'defaults.{mode}: Invalid value: "{level}": must be one of {", ".join(LEVELS)}'
        if version and parse_version(version) is None:
            yield (
                f'defaults.{mode}-version: Invalid value: "{version}": must be "latest" or "v1.x"'
            )


def _list_faults(
    path: str, values: Sequence[str], check: Callable[[str], list[str]]
) -> Iterator[str]:
    for index, value in enumerate(values):
        if errors := check(value):
            yield f'{path}[{index}]: Invalid value: "{value}": {", ".join(errors)}'
        elif value in values[:index]:
            yield f'{path}[{index}]: Duplicate value: "{value}"'


def _username_errors(value: str) -> list[str]:
    return [] if value else ["username must not be empty"]
