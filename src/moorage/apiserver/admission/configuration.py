"""Configuration of admission plugins: the file of `--admission-control-config-file`.

An `AdmissionConfiguration` names plugins, each with its own document or the path of one. The
document of one plugin may stand alone in the file. Source: `apiserver.config.k8s.io/v1`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from moorage.apiserver.admission.options import (
    ConfigurationError,
    Strict,
    converted,
    of_another_kind,
)
from moorage.apiserver.admission.pod_security.policy import (
    Configuration as PodSecurityConfiguration,
)
from moorage.apiserver.admission.pod_security.policy import (
    PodLimits,
    parse_configuration,
)
from moorage.apiserver.admission.resource_quota import LimitedResource, parse_limited_resources
from moorage.apiserver.registry.option_files import (
    DocumentError,
    OptionFileError,
    parse_option_document,
    read_option_file,
)

_API_VERSION, _KIND = "apiserver.config.k8s.io/v1", "AdmissionConfiguration"


class AdmissionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says of the plugins that it configures; the others have their defaults.

    `disabled` are the names of plugins that stay away, as by `--disable-admission-plugins`.
    """

    pod_security: PodSecurityConfiguration = msgspec.field(default_factory=PodSecurityConfiguration)
    pod_limits: PodLimits = PodLimits()
    limited_resources: tuple[LimitedResource, ...] = ()
    disabled: frozenset[str] = frozenset()


class _Plugin(msgspec.Struct, frozen=True):
    """A plugin that can be configured: its option, and how its document is read."""

    option: str
    parse: Callable[[Any], Any]


_PLUGINS = {
    "PodSecurity": _Plugin("pod_security", parse_configuration),
    "ResourceQuota": _Plugin("limited_resources", parse_limited_resources),
}
_ALONE = {
    "PodSecurityConfiguration": "PodSecurity",
    "ResourceQuotaConfiguration": "ResourceQuota",
}
"""Documents that may stand without an `AdmissionConfiguration`, by kind."""


class _Listed(Strict, frozen=True, kw_only=True):
    name: str = ""
    path: str = ""
    configuration: dict[str, Any] | None = None


class _Document(Strict, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    plugins: tuple[_Listed, ...] | None = None


def load_configuration(path: Path) -> AdmissionOptions:
    """Return the options of a YAML or JSON file. Raises ConfigurationError."""
    try:
        value = _read(path)
        kind = value.get("kind") if isinstance(value, dict) else None
        if isinstance(kind, str) and kind in _ALONE:
            plugin = _PLUGINS[_ALONE[kind]]
            return AdmissionOptions(**{plugin.option: plugin.parse(value)})
        return _options(path, converted(value, _Document))
    except ConfigurationError as error:
        raise ConfigurationError(f"admission configuration {path}: {error}") from error


def _options(path: Path, document: _Document) -> AdmissionOptions:
    if (document.api_version, document.kind) != (_API_VERSION, _KIND):
        raise of_another_kind(document.api_version, document.kind, _API_VERSION, _KIND)
    options: dict[str, Any] = {}
    for listed in document.plugins or ():
        plugin = _PLUGINS.get(listed.name)
        if plugin is None:
            raise ConfigurationError(
                f'the plugins {" and ".join(_PLUGINS)} can be configured, not "{listed.name}"'
            )
        if plugin.option in options:
            raise ConfigurationError(f"the plugin {listed.name} is configured twice")
        try:
            value = _read(path.parent / listed.path) if listed.path else listed.configuration or {}
            options[plugin.option] = plugin.parse(value)
        except ConfigurationError as error:
            raise ConfigurationError(f"plugin {listed.name}: {error}") from error
    return AdmissionOptions(**options)


def _read(path: Path) -> Any:
    try:
        return parse_option_document(read_option_file(path))
    except (DocumentError, OptionFileError) as error:
        raise ConfigurationError(str(error)) from error
