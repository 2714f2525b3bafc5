"""Volume payloads: files of ConfigMaps, Secrets, the downward API, tokens and projected volumes.

Pure, from fetched objects to path → file. Source: core/v1 volume sources, kubelet's configmap,
secret, downwardapi and projected plugins.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from moorage.api.configuration import ConfigMap, Secret
from moorage.api.pods import Pod
from moorage.api.volumes import (
    DownwardAPIVolumeFile,
    KeyToPath,
    ProjectedVolumeSource,
    ServiceAccountTokenProjection,
    Volume,
    VolumeProjection,
)
from moorage.node.config.downward import DownwardInputs, field_value, resource_value
from moorage.node.config.errors import ConfigError, MissingError
from moorage.node.pod_facts.containers import members
from moorage.node.volumes.atomic import ProjectedFile

_DEFAULT_MODE = 0o644
_TOKEN_MODE = 0o600
_TOKEN_LIFE_S = 3600
# An object may appear at many paths, and a volume's files may be in the node's memory.
_MOST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TokenWanted:
    """A service account token of a volume: its audience and its lifetime in seconds."""

    audience: str
    life_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeSources:
    """Contents of volumes. A missing object is None."""

    config_maps: Mapping[str, ConfigMap | None] = field(default_factory=dict)
    secrets: Mapping[str, Secret | None] = field(default_factory=dict)
    tokens: Mapping[TokenWanted, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VolumeNeeds:
    """Objects and tokens to fetch before a volume can be filled."""

    config_maps: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()
    tokens: frozenset[TokenWanted] = frozenset()

    def __or__(self, other: VolumeNeeds) -> VolumeNeeds:
        return VolumeNeeds(
            self.config_maps | other.config_maps,
            self.secrets | other.secrets,
            self.tokens | other.tokens,
        )


def needs_of(volume: Volume) -> VolumeNeeds:
    """Return the objects and tokens that one volume needs."""
    if volume.config_map is not None:
        return VolumeNeeds(config_maps=frozenset({volume.config_map.name}))
    if volume.secret is not None:
        return VolumeNeeds(secrets=frozenset({volume.secret.secret_name}))
    needs = VolumeNeeds()
    for source in volume.projected.sources if volume.projected is not None else ():
        if source.config_map is not None:
            needs |= VolumeNeeds(config_maps=frozenset({source.config_map.name}))
        if source.secret is not None:
            needs |= VolumeNeeds(secrets=frozenset({source.secret.name}))
        if source.service_account_token is not None:
            wanted = token_wanted(source.service_account_token)
            needs |= VolumeNeeds(tokens=frozenset({wanted}))
    return needs


def token_wanted(projection: ServiceAccountTokenProjection) -> TokenWanted:
    """Return the token of a projection; its lifetime defaults to one hour."""
    return TokenWanted(projection.audience, projection.expiration_seconds or _TOKEN_LIFE_S)


def payload_of(
    pod: Pod, volume: Volume, sources: VolumeSources, where: DownwardInputs
) -> dict[str, ProjectedFile]:
    """Return the files of a volume.

    Raises ConfigError for a missing object that is not optional, and for more than 64 MiB.
    """
    files = _files_of(pod, volume, sources, where)
    if sum(len(file.content) for file in files.values()) > _MOST_BYTES:
        raise ConfigError(
            f'the files of volume "{volume.name}" are larger than {_MOST_BYTES} bytes together'
        )
    return files


def _files_of(
    pod: Pod, volume: Volume, sources: VolumeSources, where: DownwardInputs
) -> dict[str, ProjectedFile]:
    if volume.config_map is not None:
        config_map = volume.config_map
        mode = _mode(config_map.default_mode)
        return _config_map_files(
            sources, config_map.name, config_map.items, mode, bool(config_map.optional)
        )
    if volume.secret is not None:
        secret = volume.secret
        mode = _mode(secret.default_mode)
        return _secret_files(sources, secret.secret_name, secret.items, mode, bool(secret.optional))
    if volume.downward_api is not None:
        mode = _mode(volume.downward_api.default_mode)
        return _downward_files(pod, volume.downward_api.items, mode, where)
    if volume.projected is not None:
        return _projected_files(pod, volume.projected, sources, where)
    raise ConfigError(f'volume "{volume.name}" holds no files of the API')


def shared_user(pod: Pod) -> int | None:
    """Return the user that all containers run as, if the spec sets one.

    It owns the tokens.
    """
    spec = pod.spec
    of_pod = spec.security_context.run_as_user if spec.security_context else None
    users: set[int | None] = set()
    for container in members(spec):
        own = container.container.security_context
        users.add(own.run_as_user if own and own.run_as_user is not None else of_pod)
    return users.pop() if len(users) == 1 else None


def _projected_files(
    pod: Pod, projected: ProjectedVolumeSource, sources: VolumeSources, where: DownwardInputs
) -> dict[str, ProjectedFile]:
    mode = _mode(projected.default_mode)
    files: dict[str, ProjectedFile] = {}
    for source in projected.sources:
        files |= _projection_files(pod, source, mode, sources, where)
    return files


def _projection_files(
    pod: Pod,
    source: VolumeProjection,
    mode: int,
    sources: VolumeSources,
    where: DownwardInputs,
) -> dict[str, ProjectedFile]:
    if source.config_map is not None:
        ref = source.config_map
        return _config_map_files(sources, ref.name, ref.items, mode, bool(ref.optional))
    if source.secret is not None:
        secret = source.secret
        return _secret_files(sources, secret.name, secret.items, mode, bool(secret.optional))
    if source.downward_api is not None:
        return _downward_files(pod, source.downward_api.items, mode, where)
    if source.service_account_token is not None:
        return _token_files(pod, source.service_account_token, mode, sources)
    kinds = {
        "clusterTrustBundle": source.cluster_trust_bundle,
        "podCertificate": source.pod_certificate,
    }
    kind = next((name for name, value in kinds.items() if value is not None), "unknown")
    raise ConfigError(f"projected source {kind} is not supported by this node")


def _token_files(
    pod: Pod, projection: ServiceAccountTokenProjection, mode: int, sources: VolumeSources
) -> dict[str, ProjectedFile]:
    token = sources.tokens[token_wanted(projection)]
    owner = shared_user(pod)
    context = pod.spec.security_context
    if owner is not None or (context is not None and context.fs_group is not None):
        mode = _TOKEN_MODE
    return {projection.path: ProjectedFile(token.encode(), mode, owner)}


def _config_map_files(
    sources: VolumeSources,
    name: str,
    items: tuple[KeyToPath, ...],
    mode: int,
    is_optional: bool,
) -> dict[str, ProjectedFile]:
    config_map = sources.config_maps.get(name)
    if config_map is None:
        if is_optional:
            return {}
        raise MissingError(f'configmap "{name}" not found')
    contents = {key: text.encode() for key, text in config_map.data.items()}
    contents |= {key: _decoded(text, name) for key, text in config_map.binary_data.items()}
    if not items:
        return {key: ProjectedFile(content, mode) for key, content in contents.items()}
    complaint = "configmap references non-existent config key: {}"
    return _chosen(contents, items, mode, is_optional, complaint)


def _secret_files(
    sources: VolumeSources,
    name: str,
    items: tuple[KeyToPath, ...],
    mode: int,
    is_optional: bool,
) -> dict[str, ProjectedFile]:
    secret = sources.secrets.get(name)
    if secret is None:
        if is_optional:
            return {}
        raise MissingError(f'secret "{name}" not found')
    contents = {key: _decoded(text, name) for key, text in secret.data.items()}
    if not items:
        return {key: ProjectedFile(content, mode) for key, content in contents.items()}
    return _chosen(contents, items, mode, is_optional, "references non-existent secret key: {}")


def _chosen(
    contents: Mapping[str, bytes],
    items: Iterable[KeyToPath],
    mode: int,
    is_optional: bool,
    complaint: str,
) -> dict[str, ProjectedFile]:
    files: dict[str, ProjectedFile] = {}
    for item in items:
        content = contents.get(item.key)
        if content is not None:
            files[item.path] = ProjectedFile(content, item.mode if item.mode is not None else mode)
        elif not is_optional:
            raise MissingError(complaint.format(item.key))
    return files


def _downward_files(
    pod: Pod, items: Iterable[DownwardAPIVolumeFile], mode: int, where: DownwardInputs
) -> dict[str, ProjectedFile]:
    files: dict[str, ProjectedFile] = {}
    for item in items:
        if item.field_ref is not None:
            text = field_value(pod, item.field_ref.field_path, where)
        elif item.resource_field_ref is not None:
            text = resource_value(pod, None, item.resource_field_ref, where)
        else:
            raise ConfigError(f'downward API file "{item.path}" names no field')
        own = item.mode if item.mode is not None else mode
        files[item.path] = ProjectedFile(text.encode(), own)
    return files


def _mode(default: int | None) -> int:
    return _DEFAULT_MODE if default is None else default


def _decoded(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text)
    except binascii.Error as error:
        raise ConfigError(f'"{name}" holds a value that is not base64') from error
