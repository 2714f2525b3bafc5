"""Accounts and their tokens in pods."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.configuration import ServiceAccount
from moorage.api.errors import ForbiddenError
from moorage.api.pods import MIRROR_ANNOTATION
from moorage.apiserver.admission.service_account import ServiceAccountAdmission
from moorage.apiserver.registry.kinds.pod import POD
from tests.apiserver.admission.writes import admit, pod, write

TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
ACCOUNTS: dict[str, dict[str, Any]] = {
    "default": {},
    "shy": {"automountServiceAccountToken": False},
    "puller": {"imagePullSecrets": [{"name": "registry"}]},
    "strict": {
        "metadata": {
            "name": "strict", "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"},
        },
        "secrets": [{"name": "allowed"}], "imagePullSecrets": [{"name": "registry"}],
    },
    "lax": {
        "metadata": {
            "name": "lax", "annotations": {"kubernetes.io/enforce-mountable-secrets": "no"},
        },
    },
}  # fmt: skip


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


def container(env: str = "", env_from: str = "") -> dict[str, Any]:
    made: dict[str, Any] = {"name": "c", "image": "i"}
    if env:
        reference = {"secretKeyRef": {"name": env, "key": "k"}}
        made["env"] = [{"name": "E", "valueFrom": reference}]
    if env_from:
        made["envFrom"] = [{"secretRef": {"name": env_from}}]
    return made


def secrets(name: str) -> list[tuple[dict[str, Any], str]]:
    """Every place of a new pod that names a Secret, and what a refusal says of it."""
    end = (
        f'secret.secretName="{name}" is not allowed because service account strict does not '
        "reference that secret"
    )
    projected = {"sources": [{"secret": {"name": name}}]}
    return [
        ({"volumes": [{"name": "v", "secret": {"secretName": name}}]}, f"volume with {end}"),
        ({"volumes": [{"name": "v", "projected": projected}]}, f"projected volume with {end}"),
        ({"containers": [container(env=name)]},
         f"container c with envVar E referencing {end}"),
        ({"containers": [container(env_from=name)]},
         f"container c with envFrom referencing {end}"),
        ({"initContainers": [container(env=name)]},
         f"init container c with envVar E referencing {end}"),
        ({"initContainers": [container(env_from=name)]},
         f"init container c with envFrom referencing {end}"),
    ]  # fmt: skip


@pytest.mark.parametrize(("spec", "why"), secrets("hidden"))
def test_an_account_may_limit_the_secrets_of_its_pods(spec: dict[str, Any], why: str) -> None:
    with pytest.raises(ForbiddenError) as refusal:
        admitted({"serviceAccountName": "strict", **spec})
    assert refusal.value.message == f'pods "p" is forbidden: {why}'
    admitted({"serviceAccountName": "lax", **spec})
    admitted(spec)


@pytest.mark.parametrize("spec", [spec for spec, _ in secrets("allowed")])
def test_secrets_that_the_account_lists_are_allowed(spec: dict[str, Any]) -> None:
    assert admitted({"serviceAccountName": "strict", **spec})


def test_pull_secrets_are_limited_by_those_of_the_account() -> None:
    strict = {"serviceAccountName": "strict"}
    assert admitted(strict)["imagePullSecrets"] == [{"name": "registry"}]
    with pytest.raises(ForbiddenError) as refusal:
        admitted({**strict, "imagePullSecrets": [{"name": "registry"}, {"name": "allowed"}]})
    assert refusal.value.message == (
        'pods "p" is forbidden: imagePullSecrets[1].name="allowed" is not allowed because service '
        "account strict does not reference that imagePullSecret"
    )


@pytest.mark.parametrize(
    ("added", "what"),
    [
        (container(env="hidden"), "envVar E"), (container(env_from="hidden"), "envFrom"),
        (container(env="allowed", env_from="allowed"), ""),
    ],
)  # fmt: skip
def test_ephemeral_containers_are_limited_too(added: dict[str, Any], what: str) -> None:
    new = pod({"serviceAccountName": "strict", "ephemeralContainers": [added]})
    changed = write(
        POD, new, old=pod({"serviceAccountName": "strict"}), operation="UPDATE",
        subresource="ephemeralcontainers",
    )  # fmt: skip
    if not what:
        assert admit(PLUGIN, changed) == new
        return
    with pytest.raises(ForbiddenError) as refusal:
        admit(PLUGIN, changed)
    assert refusal.value.message == (
        f'pods "p" is forbidden: ephemeral container c with {what} referencing '
        'secret.secretName="hidden" is not allowed because service account strict does not '
        "reference that secret"
    )


def test_other_updates_are_not_looked_at() -> None:
    new = pod({"serviceAccountName": "gone", "containers": [container(env="hidden")]})
    assert admit(PLUGIN, write(POD, new, old=new, operation="UPDATE")) == new
