from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from moorage.api.configuration import ConfigMap, Secret
from moorage.api.volumes import Volume
from moorage.node.config.errors import ConfigError, MissingError
from moorage.node.volumes.atomic import ProjectedFile
from moorage.node.volumes.payload import (
    TokenWanted,
    VolumeSources,
    needs_of,
    payload_of,
    shared_user,
)
from tests.node.objects import WHERE, Wire, a_pod, wire_container


def encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()


TOKEN = TokenWanted("vault", 600)
SOURCES = VolumeSources(
    config_maps={
        "settings": ConfigMap(data={"a": "one", "b": "two"}, binary_data={"raw": encoded(b"\xff")}),
        "gone": None,
    },
    secrets={"login": Secret(data={"user": encoded(b"root")})},
    tokens={TOKEN: "the-token", TokenWanted("", 3600): "default-token"},
)


def volume(**source: Any) -> Volume:
    return msgspec.convert({"name": "v", **source}, Volume)


def files(pod_spec: Wire | None = None, **source: Any) -> dict[str, ProjectedFile]:
    pod = a_pod(meta={"labels": {"tier": "front"}}, **(pod_spec or {}))
    return payload_of(pod, volume(**source), SOURCES, WHERE)


def shown(pod_spec: Wire | None = None, **source: Any) -> dict[str, tuple[bytes, str]]:
    contents = files(pod_spec, **source)
    return {path: (file.content, f"{file.mode:o}") for path, file in contents.items()}


def projected(*sources: Wire, **more: Any) -> Wire:
    return {"projected": {"sources": list(sources), **more}}


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (
            {"configMap": {"name": "settings"}},
            {"a": (b"one", "644"), "b": (b"two", "644"), "raw": (b"\xff", "644")},
        ),
        (
            {"configMap": {"name": "settings", "items": [{"key": "a", "path": "x/y"}]}},
            {"x/y": (b"one", "644")},
        ),
        (
            {
                "secret": {
                    "secretName": "login",
                    "defaultMode": 0o400,
                    "items": [{"key": "user", "path": "u"}],
                }
            },
            {"u": (b"root", "400")},
        ),
        (
            {"configMap": {"name": "settings", "items": [{"key": "a", "path": "a", "mode": 0}]}},
            {"a": (b"one", "0")},
        ),
        (
            {
                "downwardAPI": {
                    "defaultMode": 0o440,
                    "items": [
                        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                        {
                            "path": "cpu",
                            "mode": 0o600,
                            "resourceFieldRef": {"containerName": "app", "resource": "limits.cpu"},
                        },
                    ],
                }
            },
            {"labels": (b'tier="front"', "440"), "cpu": (b"4", "600")},
        ),
    ],
    ids=["config map", "chosen keys", "secret", "mode of zero", "downward api"],
)
def test_one_source(source: Wire, wanted: Any) -> None:
    assert shown(**source) == wanted


def test_projections_are_put_together_the_later_winning() -> None:
    fields = shown(
        **projected(
            {"configMap": {"name": "settings", "items": [{"key": "a", "path": "same"}]}},
            {"secret": {"name": "login", "items": [{"key": "user", "path": "same"}]}},
            {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            defaultMode=0o600,
        )
    )
    assert fields == {"same": (b"root", "600"), "n": (b"web", "600")}


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ({"configMap": {"name": "gone"}}, 'configmap "gone" not found'),
        ({"secret": {"secretName": "other"}}, 'secret "other" not found'),
        (
            {"configMap": {"name": "settings", "items": [{"key": "z", "path": "z"}]}},
            "configmap references non-existent config key: z",
        ),
        (
            {"secret": {"secretName": "login", "items": [{"key": "z", "path": "z"}]}},
            "references non-existent secret key: z",
        ),
    ],
)
def test_what_is_missing_is_named_unless_it_is_optional(source: Wire, complaint: str) -> None:
    with pytest.raises(MissingError) as caught:
        files(**source)
    assert str(caught.value) == complaint
    ((kind, fields),) = source.items()
    assert files(**{kind: {**fields, "optional": True}}) == {}


def test_sources_this_node_does_not_know_are_named() -> None:
    with pytest.raises(ConfigError, match="projected source clusterTrustBundle is not supported"):
        files(**projected({"clusterTrustBundle": {"name": "x"}}))


TOKEN_SOURCE = projected(
    {"serviceAccountToken": {"audience": "vault", "expirationSeconds": 600, "path": "token"}}
)


@pytest.mark.parametrize(
    ("spec", "mode", "owner"),
    [
        ({}, 0o644, None),
        ({"securityContext": {"runAsUser": 5}}, 0o600, 5),
        ({"securityContext": {"fsGroup": 9}}, 0o600, None),
        (
            {
                "containers": [
                    wire_container("a", securityContext={"runAsUser": 5}),
                    wire_container("b", securityContext={"runAsUser": 6}),
                ]
            },
            0o644,
            None,
        ),
    ],
    ids=["anyone", "one user", "group", "several users"],
)
def test_a_token_belongs_to_the_user_all_containers_run_as(
    spec: Wire, mode: int, owner: int | None
) -> None:
    containers = spec.get("containers", [])
    pod = a_pod(*containers, **{k: v for k, v in spec.items() if k != "containers"})
    payload = payload_of(pod, volume(**TOKEN_SOURCE), SOURCES, WHERE)
    assert payload == {"token": ProjectedFile(b"the-token", mode, owner)}


def test_the_shared_user_counts_init_containers_and_the_pods_default() -> None:
    pod = a_pod(
        wire_container("a", securityContext={"runAsUser": 5}),
        initContainers=[wire_container("i")],
        securityContext={"runAsUser": 5},
    )
    assert shared_user(pod) == 5
    assert shared_user(a_pod(initContainers=[wire_container("i")])) is None


def test_needs_list_what_must_be_fetched() -> None:
    needs = needs_of(
        volume(
            **projected(
                {"configMap": {"name": "a"}},
                {"secret": {"name": "b"}},
                {"serviceAccountToken": {"path": "t"}},
            )
        )
    )
    assert (needs.config_maps, needs.secrets) == (frozenset({"a"}), frozenset({"b"}))
    assert needs.tokens == {TokenWanted("", 3600)}
    assert needs_of(volume(secret={"secretName": "b"})).secrets == {"b"}
    assert needs_of(volume(emptyDir={})) == needs_of(volume(hostPath={"path": "/"}))


@pytest.mark.parametrize("kind", ["configMap", "secret", "projected"])
def test_one_large_value_at_many_paths_is_refused(kind: str) -> None:
    """A secret's files are in the machine's memory: a pod of 3 MiB could fill it."""
    large = "x" * 1_000_000
    sources = VolumeSources(
        config_maps={"large": ConfigMap(data={"k": large})},
        secrets={"large": Secret(data={"k": base64.b64encode(large.encode()).decode()})},
    )
    items = [{"key": "k", "path": f"p{n}"} for n in range(70)]
    sources_of_kinds: dict[str, dict[str, Any]] = {
        "configMap": {"name": "large", "items": items},
        "secret": {"secretName": "large", "items": items},
        "projected": {"sources": [{"configMap": {"name": "large", "items": items}}]},
    }
    source = sources_of_kinds[kind]
    with pytest.raises(ConfigError, match="larger than 67108864 bytes together"):
        payload_of(a_pod(), volume(**{kind: source}), sources, WHERE)
