"""Accounts and their tokens in pods."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.admission.service_account import ServiceAccountAdmission
from moorage.api.configuration import ServiceAccount
from moorage.api.errors import ForbiddenError
from moorage.api.pods import MIRROR_ANNOTATION
from moorage.registry.kinds.pod import POD
from tests.admission.writes import admit, pod, write

TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
ACCOUNTS: dict[str, dict[str, Any]] = {
    "default": {},
    "shy": {"automountServiceAccountToken": False},
    "puller": {"imagePullSecrets": [{"name": "registry"}]},
}


def find(name: str, namespace: str) -> ServiceAccount | None:
    if name not in ACCOUNTS or namespace != "default":
        return None
    return msgspec.convert({"metadata": {"name": name}, **ACCOUNTS[name]}, ServiceAccount)


PLUGIN = ServiceAccountAdmission(find)


def admitted(spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    after: dict[str, Any] = admit(PLUGIN, write(POD, pod(spec, **metadata)))["spec"]
    return after


def test_a_pod_runs_as_the_default_account_with_its_token() -> None:
    spec = admitted({})
    assert spec["serviceAccountName"] == spec["serviceAccount"] == "default"
    (volume,) = spec["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    assert volume["projected"] == {
        "defaultMode": 0o644,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {
                "configMap": {
                    "name": "kube-root-ca.crt",
                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                }
            },
            {
                "downwardAPI": {
                    "items": [
                        {
                            "path": "namespace",
                            "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                        }
                    ]
                }
            },
        ],
    }
    assert spec["containers"][0]["volumeMounts"] == [
        {"name": volume["name"], "readOnly": True, "mountPath": TOKEN_PATH}
    ]


def test_every_container_gets_the_token_unless_its_place_is_taken() -> None:
    own = {"name": "mine", "mountPath": TOKEN_PATH}
    spec = admitted(
        {
            "initContainers": [{"name": "i"}],
            "containers": [
                {"name": "a", "volumeMounts": [own]},
                {"name": "b", "volumeMounts": [{"name": "v", "mountPath": "/v"}]},
            ],
            "volumes": [{"name": "v", "emptyDir": {}}],
        }
    )
    token = spec["volumes"][1]["name"]

    def mounts(container: dict[str, Any]) -> list[str]:
        return [mount["name"] for mount in container["volumeMounts"]]

    assert mounts(spec["initContainers"][0]) == [token]
    assert mounts(spec["containers"][0]) == ["mine"]
    assert mounts(spec["containers"][1]) == ["v", token]


def test_no_volume_without_a_mount() -> None:
    own = {"name": "mine", "mountPath": TOKEN_PATH}
    assert "volumes" not in admitted({"containers": [{"name": "a", "volumeMounts": [own]}]})


@pytest.mark.parametrize(
    ("spec", "is_mounted"),
    [
        ({"serviceAccountName": "shy"}, False),
        ({"serviceAccountName": "shy", "automountServiceAccountToken": True}, True),
        ({"automountServiceAccountToken": False}, False),
        ({"automountServiceAccountToken": None}, True),
    ],
)
def test_pod_and_account_may_say_no_to_the_token(spec: dict[str, Any], is_mounted: bool) -> None:
    assert ("volumes" in admitted(spec)) is is_mounted


def test_pull_secrets_come_from_the_account_if_the_pod_has_none() -> None:
    account = {"serviceAccountName": "puller"}
    assert admitted(account)["imagePullSecrets"] == [{"name": "registry"}]
    own = admitted({**account, "imagePullSecrets": [{"name": "own"}]})
    assert own["imagePullSecrets"] == [{"name": "own"}]


def test_an_account_that_is_not_there_is_a_403() -> None:
    with pytest.raises(ForbiddenError) as refusal:
        admitted({"serviceAccountName": "ghost"})
    assert refusal.value.message == (
        'pods "p" is forbidden: error looking up service account default/ghost: '
        'serviceaccount "ghost" not found'
    )


MIRROR = {MIRROR_ANNOTATION: "hash"}


def test_a_mirror_pod_is_left_as_it_is() -> None:
    mirror = pod(annotations=MIRROR)
    assert admit(PLUGIN, write(POD, mirror)) == pod(annotations=MIRROR)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"serviceAccountName": "default"}, "a mirror pod may not reference service accounts"),
        (
            {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
            "a mirror pod may not reference secrets",
        ),
        (
            {"containers": [{"name": "c", "envFrom": [{"secretRef": {"name": "s"}}]}]},
            "a mirror pod may not reference secrets",
        ),
        (
            {
                "volumes": [
                    {
                        "name": "v",
                        "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]},
                    }
                ]
            },
            "a mirror pod may not use ServiceAccountToken volume projections",
        ),
    ],
)
def test_a_mirror_pod_may_not_lean_on_the_api(spec: dict[str, Any], why: str) -> None:
    with pytest.raises(ForbiddenError) as refusal:
        admitted(spec, annotations=MIRROR)
    assert refusal.value.message == f'pods "p" is forbidden: {why}'


def test_a_second_run_gives_a_new_container_the_same_token() -> None:
    attributes = write(POD, pod({"serviceAccountName": "puller"}))
    spec = admit(PLUGIN, attributes)["spec"]
    spec["containers"].append({"name": "side", "image": "i"})
    spec = admit(PLUGIN, attributes)["spec"]
    (volume,) = spec["volumes"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    for container in spec["containers"]:
        assert [mount["name"] for mount in container["volumeMounts"]] == [volume["name"]]
