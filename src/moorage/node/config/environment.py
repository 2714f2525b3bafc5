"""Container environment variables.

Service variables first, then `envFrom`, then `env` in order; later ones override. `$(NAME)` in a
value refers to everything before it. Pure: ConfigMaps and Secrets are passed in. Source: core/v1
EnvVar, kubelet `makeEnvironmentVariables`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from moorage.api.configuration import ConfigMap, Secret
from moorage.api.containers import EnvVarSource
from moorage.api.pods import Pod
from moorage.api.services import Service, ServicePort
from moorage.node.config.downward import DownwardInputs, field_value, resource_value
from moorage.node.config.errors import ConfigError, MissingError
from moorage.node.pod_facts.labels import AnyContainer

# Service environment variables of a container.
#
# Source: core/v1 "Environment variables", kubelet `envvars.FromServices`. Every pod gets the API
# server's service; those of its namespace only with `enableServiceLinks`.

_DEFAULT_NAMESPACE = "default"
_API_SERVICE = "kubernetes"


def service_environment(
    services: Iterable[Service],
    namespace: str,
    *,
    has_links: bool,
    overrides: Mapping[str, str],
) -> dict[str, str]:
    """Return the variables, NAME → value. `overrides` take precedence."""
    variables: dict[str, str] = {}
    own: list[Service] = []
    for service in services:
        if service.spec.cluster_ip in ("", "None") or not service.spec.ports:
            continue
        meta = service.metadata
        if has_links and meta.namespace == namespace:
            own.append(service)
        elif meta.namespace == _DEFAULT_NAMESPACE and meta.name == _API_SERVICE:
            variables |= variables_of(service)
    for service in own:
        variables |= variables_of(service)
    return variables | dict(overrides)


def variables_of(service: Service) -> dict[str, str]:
    """Return the variables of one service: host, ports, and Docker link variables."""
    prefix = _variable(service.metadata.name)
    address = service.spec.cluster_ip
    first = service.spec.ports[0]
    variables = {
        f"{prefix}_SERVICE_HOST": address,
        f"{prefix}_SERVICE_PORT": str(first.port),
        f"{prefix}_PORT": _url(first, address),
    }
    for port in service.spec.ports:
        if port.name:
            variables[f"{prefix}_SERVICE_PORT_{_variable(port.name)}"] = str(port.port)
        link = f"{prefix}_PORT_{port.port}_{_protocol(port)}"
        variables[link] = _url(port, address)
        variables[f"{link}_PROTO"] = _protocol(port).lower()
        variables[f"{link}_PORT"] = str(port.port)
        variables[f"{link}_ADDR"] = address
    return variables


def _protocol(port: ServicePort) -> str:
    return (port.protocol or "TCP").upper()


def _url(port: ServicePort, address: str) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"{_protocol(port).lower()}://{host}:{port.port}"


def _variable(name: str) -> str:
    return name.upper().replace("-", "_")


# `$(NAME)` expansion in commands, arguments and environment variables.
#
# `$$` is one dollar sign; a reference to an unknown name is left unchanged. Source: core/v1
# Container.command, third_party/forked/golang/expansion.

# Limits of execve(2): 32 pages per string, 6 MiB in total. Nested references grow exponentially, so
# a text beyond the limits is refused before it is built.
MOST_OF_ONE = 128 * 1024
MOST_OF_ALL = 6 * 1024 * 1024

_REFERENCE = re.compile(r"\$(?:\$|\((?P<name>[^)]*)\))")
_SHOWN = 60


def expand(text: str, *values: Mapping[str, str]) -> str:
    """Replace the references in a text, each from the first mapping that has the name.

    Raises ConfigError when the result exceeds MOST_OF_ONE characters.
    """
    if "$" not in text:
        return text
    size = len(text)
    pieces: list[str] = []
    end = 0
    for match in _REFERENCE.finditer(text):
        replacement = _replacement(match, values)
        size += len(replacement) - len(match[0])
        if size > max(MOST_OF_ONE, len(text)):
            raise ConfigError(
                f"{text[:_SHOWN]!r} becomes longer than the {MOST_OF_ONE} bytes that a program can "
                "be given: use fewer or shorter $(NAME) references"
            )
        pieces += (text[end : match.start()], replacement)
        end = match.end()
    return "".join((*pieces, text[end:]))


def expand_all(texts: Iterable[str], *values: Mapping[str, str]) -> list[str]:
    """Expand the arguments of a command.

    Raises ConfigError beyond MOST_OF_ALL characters in total too.
    """
    expanded: list[str] = []
    size = 0
    for text in texts:
        expanded.append(expand(text, *values))
        size += len(expanded[-1])
        check_size(size, "the command")
    return expanded


def check_size(size: int, what: str) -> None:
    """Raise ConfigError when the total size of all strings exceeds what execve(2) accepts."""
    if size > MOST_OF_ALL:
        raise ConfigError(
            f"{what} is longer than the {MOST_OF_ALL} bytes that a program can be given"
        )


def _replacement(match: re.Match[str], values: Iterable[Mapping[str, str]]) -> str:
    name = match["name"]
    if name is None:
        return "$"
    for mapping in values:
        if name in mapping:
            return mapping[name]
    return match[0]


def expand_strictly(text: str, values: Mapping[str, str]) -> str:
    """Expand a text as `expand` does. Raises KeyError with the first name that has no value."""
    for match in _REFERENCE.finditer(text):
        name = match["name"]
        if name is not None and name not in values:
            raise KeyError(name)
    return expand(text, values)


T = TypeVar("T")

_ENVIRONMENT = "the environment"

Environment = dict[str, str]
EnvFileReader = Callable[[str, str], str]
"""Returns the text of a file (path) in a volume (name). Raises ConfigError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSources:
    """Sources of variables. A missing object is None."""

    services: Mapping[str, str] = field(default_factory=dict)
    config_maps: Mapping[str, ConfigMap | None] = field(default_factory=dict)
    secrets: Mapping[str, Secret | None] = field(default_factory=dict)
    read_env_file: EnvFileReader | None = None


@dataclass(frozen=True, slots=True)
class References:
    """ConfigMaps and Secrets that environments refer to."""

    config_maps: frozenset[str]
    secrets: frozenset[str]


def references(containers: Iterable[AnyContainer]) -> References:
    """Return the objects to fetch before the environments of these containers can be built."""
    config_maps: set[str] = set()
    secrets: set[str] = set()
    for container in containers:
        for source in container.env_from:
            if source.config_map_ref is not None:
                config_maps.add(source.config_map_ref.name)
            if source.secret_ref is not None:
                secrets.add(source.secret_ref.name)
        for variable in container.env:
            origin = variable.value_from
            if origin is not None and origin.config_map_key_ref is not None:
                config_maps.add(origin.config_map_key_ref.name)
            if origin is not None and origin.secret_key_ref is not None:
                secrets.add(origin.secret_key_ref.name)
    return References(frozenset(config_maps), frozenset(secrets))


def container_environment(
    pod: Pod, container: AnyContainer, sources: EnvironmentSources, where: DownwardInputs
) -> Environment:
    """Return the environment, NAME → value.

    Raises ConfigError for a missing source that is not optional, and when the environment exceeds
    the size that execve(2) accepts: one large value may be referred to many times.
    """
    own = _from_whole_objects(pod, container, sources)
    size = sum(len(name) + len(value) for name, value in own.items())
    for variable in container.env:
        if variable.value:
            own[variable.name] = expand(variable.value, own, sources.services)
        elif variable.value_from is not None:
            value = _value_from(pod, container, variable.value_from, sources, where)
            if value is not None:
                own[variable.name] = value
        else:
            own[variable.name] = ""
        size += len(variable.name) + len(own.get(variable.name, ""))
        check_size(size, _ENVIRONMENT)
    return {**sources.services, **own}


def static_environment(container: AnyContainer) -> Environment:
    """Return the variables with literal values, to which probe commands may refer."""
    return {
        variable.name: variable.value for variable in container.env if variable.value_from is None
    }


def _from_whole_objects(
    pod: Pod, container: AnyContainer, sources: EnvironmentSources
) -> Environment:
    own: Environment = {}
    size = 0
    for origin in container.env_from:
        variables: Environment = {}
        if origin.config_map_ref is not None:
            ref = origin.config_map_ref
            config_map = _found(sources.config_maps, ref.name, "configmap", bool(ref.optional))
            if config_map is not None:
                variables |= {origin.prefix + key: value for key, value in config_map.data.items()}
        if origin.secret_ref is not None:
            secret_ref = origin.secret_ref
            secret = _found(sources.secrets, secret_ref.name, "secret", bool(secret_ref.optional))
            if secret is not None:
                variables |= {
                    origin.prefix + key: _decoded(pod, secret_ref.name, key, value)
                    for key, value in secret.data.items()
                }
        size += sum(len(name) + len(value) for name, value in variables.items())
        check_size(size, _ENVIRONMENT)
        own |= variables
    return own


def _value_from(
    pod: Pod,
    container: AnyContainer,
    origin: EnvVarSource,
    sources: EnvironmentSources,
    where: DownwardInputs,
) -> str | None:
    """Return the value; None for an optional source that is missing."""
    if origin.field_ref is not None:
        return field_value(pod, origin.field_ref.field_path, where)
    if origin.resource_field_ref is not None:
        return resource_value(pod, container, origin.resource_field_ref, where)
    if origin.config_map_key_ref is not None:
        ref = origin.config_map_key_ref
        config_map = _found(sources.config_maps, ref.name, "configmap", bool(ref.optional))
        return _key(pod, config_map, ref.key, "ConfigMap", ref.name, bool(ref.optional))
    if origin.secret_key_ref is not None:
        key_ref = origin.secret_key_ref
        secret = _found(sources.secrets, key_ref.name, "secret", bool(key_ref.optional))
        text = _key(pod, secret, key_ref.key, "Secret", key_ref.name, bool(key_ref.optional))
        return None if text is None else _decoded(pod, key_ref.name, key_ref.key, text)
    if origin.file_key_ref is not None:
        file_ref = origin.file_key_ref
        if sources.read_env_file is None:
            raise ConfigError(f"cannot find the volume {file_ref.volume_name!r} of fileKeyRef")
        text = sources.read_env_file(file_ref.volume_name, file_ref.path)
        value = env_file_value(text, file_ref.key)
        if value is None and not file_ref.optional:
            raise MissingError(
                f'environment variable key "{file_ref.key}" not found in file "{file_ref.path}"'
            )
        return value
    raise ConfigError("a variable's valueFrom names no source that this node knows")


def _found(objects: Mapping[str, T | None], name: str, kind: str, is_optional: bool) -> T | None:
    obj = objects.get(name)
    if obj is None and not is_optional:
        raise MissingError(f'{kind} "{name}" not found')
    return obj


def _key(
    pod: Pod,
    holder: ConfigMap | Secret | None,
    key: str,
    kind: str,
    name: str,
    is_optional: bool,
) -> str | None:
    if holder is not None and key in holder.data:
        return holder.data[key]
    if is_optional:
        return None
    raise MissingError(f"couldn't find key {key} in {kind} {pod.metadata.namespace}/{name}")


def _decoded(pod: Pod, name: str, key: str, text: str) -> str:
    try:
        # Values are sent to the engine as bytes; those that are not UTF-8 must be preserved.
        return base64.b64decode(text).decode(errors="surrogateescape")
    except binascii.Error as error:
        raise ConfigError(
            f"Secret {pod.metadata.namespace}/{name}: key {key} is not base64"
        ) from error


def env_file_value(text: str, key: str) -> str | None:
    """Return a key's value in an environment file (`KEY='value'` lines), or None if it is missing.

    Raises ConfigError for a malformed file. Source: KEP-3721.
    """
    position = 0
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        line = text[position:end].lstrip(" \t")
        if not line or line.startswith("#"):
            position = end + 1
            continue
        name, equals, rest = line.partition("=")
        if not equals or not name or name != name.rstrip():
            raise ConfigError("couldn't parse env file: a line is not of the form KEY='value'")
        if rest.startswith((" ", "\t")) or not rest:
            value, position = "", end + 1
        elif rest.startswith("'"):
            opening = end - len(rest) + 1
            closing = text.find("'", opening)
            if closing < 0:
                raise ConfigError("couldn't parse env file: a value has no closing quote")
            value = text[opening:closing]
            newline = text.find("\n", closing)
            position = len(text) if newline < 0 else newline + 1
        else:
            raise ConfigError("couldn't parse env file: values must be in single quotes")
        if name == key:
            return value
    return None
