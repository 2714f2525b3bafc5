"""Which objects a pod refers to, at every place where it can."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.pod_references import (
    config_map_names,
    projected_audiences,
    projects_account_token,
    secret_names,
    uses_claim,
)
from moorage.api.pods import Pod


def _pod(**spec: Any) -> Pod:
    return msgspec.convert({"spec": spec}, Pod)


def _container(kind: str, ref: str, key_ref: str, *names: str) -> dict[str, Any]:
    """A container whose environment has two sources of a kind, beside some of no interest."""
    first, second = names
    return {
        "name": "c", "image": "i",
        "envFrom": [{}, {ref: {"name": first}}],
        "env": [{"name": "plain", "value": "x"}, {"name": "empty", "valueFrom": {}},
                {"name": kind, "valueFrom": {key_ref: {"name": second, "key": "k"}}}],
    }  # fmt: skip


def _projected(*sources: dict[str, Any]) -> dict[str, Any]:
    return {"name": "p", "projected": {"sources": list(sources)}}


_OTHER = {"name": "o", "emptyDir": {}}


@pytest.mark.parametrize(
    ("function", "ref", "key_ref", "volume", "source"),
    [
        (secret_names, "secretRef", "secretKeyRef", {"secret": {"secretName": "v"}}, "secret"),
        (config_map_names, "configMapRef", "configMapKeyRef", {"configMap": {"name": "v"}},
         "configMap"),
    ],
)  # fmt: skip
def test_names_in_volumes_and_environments(
    function: Any, ref: str, key_ref: str, volume: dict[str, Any], source: str
) -> None:
    pod = _pod(
        volumes=[
            _OTHER, {"name": "v", **volume},
            _projected({"downwardAPI": {}}, {source: {"name": "p1"}}, {source: {"name": "p2"}}),
        ],
        initContainers=[_container("a", ref, key_ref, "i1", "i2")],
        containers=[{"name": "x", "image": "i"}, _container("b", ref, key_ref, "c1", "c2")],
        ephemeralContainers=[_container("c", ref, key_ref, "e1", "e2")],
    )  # fmt: skip
    assert function(pod) == {"v", "p1", "p2", "i1", "i2", "c1", "c2", "e1", "e2"}
    other = config_map_names if function is secret_names else secret_names
    assert other(pod) == set()
    assert function(_pod()) == set()


def test_image_pull_secrets_are_secrets() -> None:
    assert secret_names(_pod(imagePullSecrets=[{"name": "a"}, {"name": "b"}])) == {"a", "b"}


@pytest.mark.parametrize(
    ("sources", "audiences"),
    [
        ([], set()),
        ([{"configMap": {"name": "m"}}], set()),
        ([{"serviceAccountToken": {"path": "t"}}], {""}),
        ([{"serviceAccountToken": {"path": "t", "audience": "a"}}, {"downwardAPI": {}},
          {"serviceAccountToken": {"path": "u", "audience": "b"}}], {"a", "b"}),
    ],
)  # fmt: skip
def test_audiences_of_account_tokens(sources: list[dict[str, Any]], audiences: set[str]) -> None:
    pod = _pod(volumes=[_OTHER, _projected(*sources)])
    assert projected_audiences(pod) == audiences
    assert projects_account_token(pod) is bool(audiences)


def test_claims() -> None:
    claim = {"name": "c", "persistentVolumeClaim": {"claimName": "x"}}
    assert uses_claim(_pod(volumes=[_OTHER, claim]))
    assert uses_claim(_pod(volumes=[_OTHER, {"name": "e", "ephemeral": {}}]))
    assert not uses_claim(_pod(volumes=[_OTHER]))
