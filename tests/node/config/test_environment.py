from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from moorage.api.configuration import ConfigMap, Secret
from moorage.node.config.environment import (
    EnvironmentSources,
    container_environment,
    env_file_value,
    references,
    static_environment,
)
from moorage.node.config.errors import ConfigError, MissingError
from tests.node.objects import WHERE, a_container, a_pod


def encoded(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


SOURCES = EnvironmentSources(
    services={"WEB_SERVICE_HOST": "10.0.0.9", "COMMON": "of the service"},
    config_maps={"settings": ConfigMap(data={"level": "debug", "dotted.key": "yes"}), "gone": None},
    secrets={"login": Secret(data={"user": encoded("root"), "raw": encoded(b"\xff\x00")})},
    read_env_file=lambda volume, path: f"FROM='{volume}:{path}'\n",
)


def environment(*env: dict[str, Any], **fields: Any) -> dict[str, str]:
    """What the container sees, the services' variables left out where they are as they were."""
    pod = a_pod(meta={"labels": {"tier": "front"}}, serviceAccountName="robot")
    container = a_container(env=list(env), **fields)
    variables = container_environment(pod, container, SOURCES, WHERE)
    return {key: value for key, value in variables.items() if SOURCES.services.get(key) != value}


def value_from(**origin: Any) -> dict[str, Any]:
    return {"name": "X", "valueFrom": origin}


@pytest.mark.parametrize(
    ("env", "wanted"),
    [
        ([{"name": "A", "value": "1"}], {"A": "1"}),
        ([{"name": "A"}], {"A": ""}),
        ([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}], {"A": "2"}),
        ([{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2"}], {"A": "1", "B": "12"}),
        ([{"name": "B", "value": "$(A)"}, {"name": "A", "value": "1"}], {"B": "$(A)", "A": "1"}),
        ([{"name": "A", "value": "$(WEB_SERVICE_HOST):80"}], {"A": "10.0.0.9:80"}),
        ([{"name": "COMMON", "value": "own"}], {"COMMON": "own"}),
    ],
    ids=["literal", "empty", "later wins", "sees earlier", "not later ones", "services", "own"],
)
def test_literal_variables(env: list[dict[str, Any]], wanted: dict[str, str]) -> None:
    assert environment(*env) == wanted


@pytest.mark.parametrize(
    ("origin", "wanted"),
    [
        ({"fieldRef": {"fieldPath": "metadata.name"}}, "web"),
        ({"fieldRef": {"fieldPath": "metadata.labels['tier']"}}, "front"),
        ({"fieldRef": {"fieldPath": "status.podIP"}}, "10.1.0.5"),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, "4"),
        ({"configMapKeyRef": {"name": "settings", "key": "level"}}, "debug"),
        ({"secretKeyRef": {"name": "login", "key": "user"}}, "root"),
        ({"fileKeyRef": {"volumeName": "v", "path": "e.env", "key": "FROM"}}, "v:e.env"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_variables_taken_from_elsewhere(origin: dict[str, Any], wanted: str) -> None:
    assert environment(value_from(**origin)) == {"X": wanted}


@pytest.mark.parametrize(
    ("origin", "complaint"),
    [
        (
            {"configMapKeyRef": {"name": "gone", "key": "k"}},
            'configmap "gone" not found',
        ),
        (
            {"configMapKeyRef": {"name": "settings", "key": "k"}},
            "couldn't find key k in ConfigMap shop/settings",
        ),
        (
            {"secretKeyRef": {"name": "other", "key": "k"}},
            'secret "other" not found',
        ),
        (
            {"secretKeyRef": {"name": "login", "key": "k"}},
            "couldn't find key k in Secret shop/login",
        ),
        (
            {"fileKeyRef": {"volumeName": "v", "path": "e.env", "key": "K"}},
            'environment variable key "K" not found in file "e.env"',
        ),
    ],
    ids=["config map", "its key", "secret", "secret's key", "file's key"],
)
def test_what_is_missing_is_named(origin: dict[str, Any], complaint: str) -> None:
    with pytest.raises(MissingError) as caught:
        environment(value_from(**origin))
    assert str(caught.value) == complaint


@pytest.mark.parametrize(
    "origin",
    [
        {"configMapKeyRef": {"name": "gone", "key": "k", "optional": True}},
        {"configMapKeyRef": {"name": "settings", "key": "k", "optional": True}},
        {"secretKeyRef": {"name": "other", "key": "k", "optional": True}},
        {"secretKeyRef": {"name": "login", "key": "k", "optional": True}},
        {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "K", "optional": True}},
    ],
    ids=["config map", "its key", "secret", "secret's key", "file's key"],
)
def test_an_optional_one_that_is_missing_leaves_the_name_as_it_was(origin: dict[str, Any]) -> None:
    assert environment(value_from(**origin)) == {}
    assert environment({"name": "X", "value": "old"}, value_from(**origin)) == {"X": "old"}


def test_whole_objects_come_with_their_prefix_and_before_single_variables() -> None:
    variables = environment(
        {"name": "C_level", "value": "own"},
        envFrom=[
            {"configMapRef": {"name": "settings"}},
            {"prefix": "C_", "configMapRef": {"name": "settings"}},
            {"secretRef": {"name": "login"}},
            {"secretRef": {"name": "other", "optional": True}},
            {"configMapRef": {"name": "gone", "optional": True}},
        ],
    )
    assert variables == {
        "level": "debug",
        "dotted.key": "yes",
        "C_level": "own",
        "C_dotted.key": "yes",
        "user": "root",
        "raw": "\udcff\x00",
    }


def test_a_value_that_is_not_base64_is_refused() -> None:
    sources = replace(SOURCES, secrets={"login": Secret(data={"user": "a"})})
    container = a_container(env=[value_from(secretKeyRef={"name": "login", "key": "user"})])
    pod = a_pod()
    with pytest.raises(ConfigError) as caught:
        container_environment(pod, container, sources, WHERE)
    namespace = pod.metadata.namespace
    assert str(caught.value) == f"Secret {namespace}/login: key user is not base64"


def test_a_secret_that_is_not_text_survives_as_bytes() -> None:
    variables = environment(value_from(secretKeyRef={"name": "login", "key": "raw"}))
    assert variables["X"].encode(errors="surrogateescape") == b"\xff\x00"


def test_references_list_what_must_be_fetched() -> None:
    container = a_container(
        env=[
            value_from(configMapKeyRef={"name": "a", "key": "k"}),
            value_from(secretKeyRef={"name": "b", "key": "k", "optional": True}),
            {"name": "L", "value": "1"},
        ],
        envFrom=[{"configMapRef": {"name": "c"}}, {"secretRef": {"name": "d"}}],
    )
    refs = references([container, a_container("other")])
    assert refs.config_maps == {"a", "c"}
    assert refs.secrets == {"b", "d"}


def test_probes_may_only_refer_to_literal_values() -> None:
    container = a_container(
        env=[{"name": "A", "value": "1"}, value_from(fieldRef={"fieldPath": "metadata.name"})]
    )
    assert static_environment(container) == {"A": "1"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("K='v'", "v"),
        ("# note\n\nK='v'\n", "v"),
        ("  K='v' # note\n", "v"),
        ("K='a=b'\n", "a=b"),
        ("K='two\nlines'\nL='x'\n", "two\nlines"),
        ("K=\n", ""),
        ("K='$HOME'", "$HOME"),
        ("L='x'\n", None),
        ("", None),
    ],
)
def test_environment_files(text: str, value: str | None) -> None:
    assert env_file_value(text, "K") == value


@pytest.mark.parametrize("text", ["K", "='v'", "K ='v'", "K=v", 'K="v"', "K='v"])
def test_invalid_environment_file_is_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match="couldn't parse env file"):
        env_file_value(text, "K")


def test_variables_that_double_each_other_are_refused() -> None:
    """Forty of them would take 32 TiB; the agent was killed for less."""
    doubling = [{"name": f"A{n}", "value": f"$(A{n - 1})$(A{n - 1})"} for n in range(1, 40)]
    with pytest.raises(ConfigError, match="becomes longer than"):
        environment({"name": "A0", "value": "x" * 60}, *doubling)


@pytest.mark.parametrize("of", ["configMapKeyRef", "secretKeyRef", "fieldRef"])
def test_one_large_value_under_many_names_is_refused(of: str) -> None:
    large = "x" * 100_000
    sources = EnvironmentSources(
        config_maps={"large": ConfigMap(data={"k": large})},
        secrets={"large": Secret(data={"k": encoded(large)})},
    )
    field = {"fieldPath": "metadata.annotations['k']"}
    origin = field if of == "fieldRef" else {"name": "large", "key": "k"}
    env = [{"name": f"A{n}", "valueFrom": {of: origin}} for n in range(100)]
    pod = a_pod(meta={"annotations": {"k": large}})
    with pytest.raises(ConfigError, match="the environment is longer"):
        container_environment(pod, a_container(env=env), sources, WHERE)


@pytest.mark.parametrize("of", ["configMapRef", "secretRef"])
def test_one_large_object_under_many_prefixes_is_refused(of: str) -> None:
    large = "x" * 100_000
    sources = EnvironmentSources(
        config_maps={"large": ConfigMap(data={"k": large})},
        secrets={"large": Secret(data={"k": encoded(large)})},
    )
    origins = [{"prefix": f"P{n}", of: {"name": "large"}} for n in range(100)]
    with pytest.raises(ConfigError, match="the environment is longer"):
        container_environment(a_pod(), a_container(envFrom=origins), sources, WHERE)
