"""Volumes of pods: each source as upstream validates it."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.validation.volumes import volume_errors
from tests.apiserver.registry.rules import changed, complaint

HOST_PORTS = "must be a host:port pair or multiple pairs separated by commas"
DISK = {"diskName": "d", "diskURI": "https://a/b", "kind": "Shared", "cachingMode": "None"}
URIS = {
    "Shared": "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd",
    "Managed": "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/"
    "microsoft.compute/disks/{disk-id}",
}
ISCSI = {"targetPortal": "10.0.0.1", "iqn": "iqn.2020-01.com.example:disk", "lun": 0}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
TOKEN = {"serviceAccountToken": {"path": "t", "expirationSeconds": 600}}


def errors(*volumes: dict[str, Any], pod_name: str | None = None) -> list[str]:
    named = [{"name": f"v{index}", **volume} for index, volume in enumerate(volumes)]
    return [str(error) for error in volume_errors(named, "volumes", pod_name)[1]]


REQUIRED: list[tuple[str, dict[str, Any], list[str]]] = [
    ("hostPath", {}, ["hostPath.path"]),
    ("gitRepo", {}, ["gitRepo.repository"]),
    ("gcePersistentDisk", {}, ["persistentDisk.pdName"]),
    ("awsElasticBlockStore", {}, ["awsElasticBlockStore.volumeID"]),
    ("secret", {}, ["secret.secretName"]),
    ("nfs", {"path": "/a"}, ["nfs.server"]),
    ("iscsi", {}, ["iscsi.targetPortal", "iscsi.iqn"]),
    ("iscsi", {**ISCSI, "chapAuthSession": True}, ["iscsi.secretRef"]),
    ("glusterfs", {}, ["glusterfs.endpoints", "glusterfs.path"]),
    ("persistentVolumeClaim", {}, ["persistentVolumeClaim.claimName"]),
    ("rbd", {}, ["rbd.monitors", "rbd.image"]),
    ("cinder", {"secretRef": {}}, ["cinder.volumeID", "cinder.secretRef.name"]),
    ("cephfs", {}, ["cephfs.monitors"]),
    ("quobyte", {"registry": "a:1"}, ["quobyte.volume"]),
    ("flexVolume", {}, ["flexVolume.driver"]),
    ("configMap", {}, ["configMap.name"]),
    ("azureFile", {}, ["azureFile.secretName", "azureFile.shareName"]),
    ("vsphereVolume", {}, ["vsphereVolume.volumePath"]),
    ("photonPersistentDisk", {}, ["photonPersistentDisk.pdID"]),
    ("portworxVolume", {}, ["portworxVolume.volumeID"]),
    ("storageos", {"secretRef": {}}, ["storageos.volumeName", "storageos.secretRef.name"]),
    ("scaleIO", {}, ["scaleIO.gateway", "scaleIO.system", "scaleIO.volumeName"]),
    ("csi", {}, ["csi.driver"]),
    ("csi", {"driver": "d", "nodePublishSecretRef": {}}, ["csi.nodePublishSecretRef.name"]),
    ("ephemeral", {}, ["ephemeral.volumeClaimTemplate"]),
    ("image", {"reference": "r"}, ["image.pullPolicy"]),
]


@pytest.mark.parametrize(("field", "source", "missing"), REQUIRED)
def test_what_a_source_needs(field: str, source: dict[str, Any], missing: list[str]) -> None:
    found = errors({field: source})
    assert found == [f"volumes[0].{place}: Required value" for place in missing]


LEGAL: list[tuple[str, dict[str, Any]]] = [
    ("emptyDir", {"sizeLimit": "0"}),
    ("hostPath", {"path": "/a", "type": "Socket"}),
    ("gitRepo", {"repository": "r", "directory": "a/b"}),
    ("gcePersistentDisk", {"pdName": "d", "partition": 255}),
    ("nfs", {"server": "s", "path": "/"}),
    ("iscsi", ISCSI),
    ("iscsi", {**ISCSI, "iqn": "naa.0123456789abcdef0123456789abcdef"}),
    ("flocker", {"datasetUUID": "u"}),
    ("fc", {"targetWWNs": ["w"], "lun": 0}),
    ("fc", {"wwids": ["w"]}),
    ("quobyte", {"registry": "a:1,[::1]:2", "volume": "v"}),
    ("flexVolume", {"driver": "d", "options": {"a/b": "c", "notkubernetes.io/x": ""}}),
    ("azureDisk", DISK),
    ("azureDisk", {**DISK, "kind": "Managed", "diskURI": "/subscriptions/x"}),
    ("storageos", {"volumeName": "v", "volumeNamespace": "n"}),
    ("csi", {"driver": "Disk.example.com", "nodePublishSecretRef": {"name": "s"}}),
    ("ephemeral", {"volumeClaimTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": CLAIM}}),
    ("projected", {"sources": [TOKEN, {"configMap": {"name": "c"}}]}),
]


@pytest.mark.parametrize(("field", "source"), LEGAL)
def test_legal_sources(field: str, source: dict[str, Any]) -> None:
    assert errors({field: source}) == []


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("emptyDir", {"sizeLimit": "-1"},
     "emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity"),
    ("hostPath", {"path": "/a/../b", "type": "File"},
     "hostPath.path: Invalid value: \"/a/../b\": must not contain '..'"),
    ("gitRepo", {"repository": "r", "directory": "/a"},
     'gitRepo.directory: Invalid value: "/a": must be a relative path'),
    ("awsElasticBlockStore", {"volumeID": "v", "partition": 256},
     "awsElasticBlockStore.partition: Invalid value: 256: must be between 1 and 255, inclusive"),
    ("iscsi", {**ISCSI, "lun": 256},
     "iscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive"),
    ("iscsi", {**ISCSI, "iqn": "abc"},
     'iscsi.iqn: Invalid value: "abc": must be valid format starting with iqn, eui, or naa'),
    ("iscsi", {**ISCSI, "iqn": "iqn.2020-01.com.example:a b"},
     'iscsi.iqn: Invalid value: "iqn.2020-01.com.example:a b": must be valid format'),
    ("iscsi", {**ISCSI, "initiatorName": "eui.1"},
     'iscsi.initiatorname: Invalid value: "eui.1": must be valid format'),
    ("iscsi", {**ISCSI, "initiatorName": "eui.0123456789abcdef", "targetPortal": "p" * 62},
     'name: Invalid value: "v0": Total length of <volume name>:<iscsi.targetPortal> must be under '
     "64 characters if iscsi.initiatorName is specified."),
    ("flocker", {}, "flocker: Required value: one of datasetName and datasetUUID is required"),
    ("flocker", {"datasetName": "a", "datasetUUID": "u"},
     'flocker: Invalid value: "resource": datasetName and datasetUUID can not be specified '
     "simultaneously"),
    ("flocker", {"datasetName": "a/b"},
     "flocker.datasetName: Invalid value: \"a/b\": must not contain '/'"),
    ("quobyte", {"volume": "v"}, f"quobyte.registry: Required value: {HOST_PORTS}"),
    ("quobyte", {"volume": "v", "registry": "a"},
     f'quobyte.registry: Invalid value: "a": {HOST_PORTS}'),
    ("quobyte", {"volume": "v", "registry": "a:1", "tenant": "t" * 65},
     "quobyte.tenant: Required value: must be a UUID and may not exceed a length of 64 characters"),
    ("fc", {}, "fc.targetWWNs: Required value: must specify either targetWWNs or wwids, but not "
     "both"),
    ("fc", {"targetWWNs": ["w"], "wwids": ["w"], "lun": 1},
     'fc.targetWWNs: Invalid value: ["w"]: targetWWNs and wwids can not be specified '
     "simultaneously"),
    ("fc", {"targetWWNs": ["w"]},
     "fc.lun: Required value: lun is required if targetWWNs is specified"),
    ("fc", {"targetWWNs": ["w"], "lun": -1},
     "fc.lun: Invalid value: -1: must be between 0 and 255, inclusive"),
    ("flexVolume", {"driver": "d", "options": {"A.K8s.io/x": "y"}},
     'flexVolume.options[A.K8s.io/x]: Invalid value: "A.K8s.io/x": kubernetes.io and k8s.io '
     "namespaces are reserved"),
    ("azureDisk", {**DISK, "diskURI": "/a"},
     f'azureDisk.diskURI: Unsupported value: "/a": supported values: "{URIS["Shared"]}"'),
    ("azureDisk", {**DISK, "kind": "Managed"},
     f'azureDisk.diskURI: Unsupported value: "https://a/b": supported values: "{URIS["Managed"]}"'),
    ("azureDisk", {**DISK, "cachingMode": "Some"},
     'azureDisk.cachingMode: Unsupported value: "Some": supported values: "None", "ReadOnly", '
     '"ReadWrite"'),
    ("csi", {"driver": "d" * 64}, "csi.driver: Too long: may not be more than 63 bytes"),
    ("ephemeral", {"volumeClaimTemplate": {"metadata": {"name": "n", "uid": "u"}, "spec": CLAIM}},
     "ephemeral.volumeClaimTemplate.metadata.name: Forbidden: cannot be set"),
    ("ephemeral", {"volumeClaimTemplate": {"spec": {"resources": CLAIM["resources"]}}},
     "ephemeral.volumeClaimTemplate.spec.accessModes: Required value: at least 1 access mode is "
     "required"),
    ("image", {"reference": "r", "pullPolicy": "Now"},
     'image.pullPolicy: Unsupported value: "Now": supported values: "Always", "IfNotPresent", '
     '"Never"'),
    ("secret", {"secretName": "s", "items": [{"key": "k", "path": "../a"}]},
     "secret.items[0].path: Invalid value: \"../a\": must not contain '..'"),
    ("secret", {"secretName": "s", "items": [{"key": "k", "path": "..a"}]},
     "secret.items[0].path: Invalid value: \"..a\": must not start with '..'"),
    ("projected", {"sources": [{**TOKEN, "secret": {"name": "s"}}]},
     "projected.sources[0]: Forbidden: may not specify more than 1 volume type per source"),
    ("projected", {"sources": [{"serviceAccountToken": {"path": "/t"}}]},
     'projected.path: Invalid value: "/t": must be a relative path'),
    ("projected", {"sources": [{"secret": {"name": name, "items": [{"key": "k", "path": "p"}]}}
                               for name in "ab"]},
     'projected: Invalid value: "b": conflicting duplicate paths'),
]  # fmt: skip


@pytest.mark.parametrize(("field", "source", "says"), WRONG)
def test_what_is_wrong_with_a_source(field: str, source: dict[str, Any], says: str) -> None:
    assert errors({field: source})[0] == f"volumes[0].{says}"


@pytest.mark.parametrize(
    ("volume", "at"),
    [
        ({"emptyDir": {}, "cephfs": {}}, "cephFS"),
        ({"emptyDir": {}, "downwardAPI": {}}, "downwarAPI"),
        ({"emptyDir": {}, "gcePersistentDisk": {}}, "gcePersistentDisk"),
        ({"csi": {"driver": "d"}, "secret": {"secretName": "s"}}, "csi"),
    ],
)
def test_a_volume_has_one_source(volume: dict[str, Any], at: str) -> None:
    assert errors(volume) == [
        f"volumes[0].{at}: Forbidden: may not specify more than 1 volume type"
    ]
    assert errors({}) == ["volumes[0]: Required value: must specify a volume type"]


EPHEMERAL = {"ephemeral": {"volumeClaimTemplate": {"spec": CLAIM}}}


def test_a_claim_made_for_a_volume_has_a_legal_name_of_its_own() -> None:
    found = errors(EPHEMERAL, pod_name="p" * 251)
    assert found == [
        f'volumes[0].name: Invalid value: "v0": PVC name "{"p" * 251}-v0": must be no more than '
        "253 characters"
    ]
    claim = {"persistentVolumeClaim": {"claimName": "p-v0"}}
    assert errors(EPHEMERAL, claim, pod_name="p") == [
        'volumes[1].persistentVolumeClaim.claimName: Invalid value: "p-v0": must not reference a '
        "PVC that gets created for an ephemeral volume"
    ]
    assert errors(EPHEMERAL, claim, pod_name="q") == []
    assert errors(EPHEMERAL, claim) == []


def test_only_a_pod_must_name_an_image() -> None:
    image = {"image": {"pullPolicy": "Always"}}
    assert errors(image) == []
    assert errors(image, pod_name="p") == ["volumes[0].image.reference: Required value"]
    assert complaint("Pod", changed("Pod", {"spec.volumes": [{"name": "v", "image": {}}]})) == (
        'Pod "p" is invalid: spec.volumes[0].image.reference: Required value'
    )
