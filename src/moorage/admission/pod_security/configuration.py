"""Configuration of Pod Security: the policy of namespaces without labels, and exemptions.

It stands in an `AdmissionConfiguration`, as kube-apiserver reads it with
`--admission-control-config-file`, or alone. Source: `apiserver.config.k8s.io/v1`,
`pod-security.admission.config.k8s.io/v1`; API docs "Enforce Pod Security Standards by Configuring
the Built-in Admission Controller".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from moorage.admission.pod_security.policy import (
    LATEST,
    LEVELS,
    NO_POLICY,
    Policy,
    Standard,
    parse_version,
)
from moorage.api import names
from moorage.registry.option_files import OptionFileError, read_option_file

API_VERSIONS = ("pod-security.admission.config.k8s.io/v1", "apiserver.config.k8s.io/v1")
KIND, _OUTER_KIND = "PodSecurityConfiguration", "AdmissionConfiguration"
_PLUGIN = "PodSecurity"


class ConfigurationError(ValueError):
    """A configuration file cannot be used."""


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


class _Strict(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    pass


class _Defaults(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True
):
    enforce: str | None = None
    enforce_version: str | None = None
    audit: str | None = None
    audit_version: str | None = None
    warn: str | None = None
    warn_version: str | None = None


class _Exemptions(_Strict, frozen=True, kw_only=True):
    usernames: tuple[str, ...] | None = None
    namespaces: tuple[str, ...] | None = None
    runtime_classes: tuple[str, ...] | None = None


class _Inner(_Strict, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    defaults: _Defaults | None = None
    exemptions: _Exemptions | None = None


class _Plugin(_Strict, frozen=True, kw_only=True):
    name: str = ""
    path: str = ""
    configuration: dict[str, Any] | None = None


class _Outer(_Strict, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    plugins: tuple[_Plugin, ...] | None = None


_T = TypeVar("_T")


def load_configuration(path: Path) -> Configuration:
    """Return the configuration in a YAML or JSON file. Raises ConfigurationError."""
    try:
        document = _read(path)
        if isinstance(document, dict) and document.get("kind") == _OUTER_KIND:
            return _of_plugin(path, _converted(document, _Outer))
        return _configuration(_converted(document, _Inner))
    except ConfigurationError as error:
        raise ConfigurationError(f"admission configuration {path}: {error}") from error


def _of_plugin(path: Path, outer: _Outer) -> Configuration:
    """Return the configuration of the plugin PodSecurity, which may stand in another file."""
    if outer.api_version != API_VERSIONS[1]:
        raise _wrong_version(outer.api_version, outer.kind)
    plugins = outer.plugins or ()
    if others := [plugin.name for plugin in plugins if plugin.name != _PLUGIN]:
        raise ConfigurationError(
            f"the plugin {_PLUGIN} alone can be configured, not {', '.join(others)}"
        )
    if len(plugins) > 1:
        raise ConfigurationError(f"the plugin {_PLUGIN} is configured twice")
    if not plugins:
        return Configuration()
    (plugin,) = plugins
    if plugin.path:
        return _configuration(_converted(_read(path.parent / plugin.path), _Inner))
    return _configuration(_converted(plugin.configuration or {}, _Inner))


def _read(path: Path) -> Any:
    try:
        text = read_option_file(path)
    except OptionFileError as error:
        raise ConfigurationError(str(error)) from error
    # Imported here: few servers have such a file.
    import yaml

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeError, RecursionError, ValueError) as error:
        raise ConfigurationError(f"is not YAML: {' '.join(str(error).split())}") from error


def _converted(value: Any, type_: type[_T]) -> _T:
    try:
        return msgspec.convert(value, type_)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ConfigurationError(str(error)) from error


def _configuration(source: _Inner) -> Configuration:
    if (source.api_version, source.kind) != (API_VERSIONS[0], KIND):
        raise _wrong_version(source.api_version, source.kind)
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


def _wrong_version(api_version: str, kind: str) -> ConfigurationError:
    return ConfigurationError(
        f"is of {api_version or 'no apiVersion'}, kind {kind or 'missing'}; use "
        f"{API_VERSIONS[0]}, kind {KIND}, or {API_VERSIONS[1]}, kind {_OUTER_KIND}"
    )
