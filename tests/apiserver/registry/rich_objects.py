"""Objects of each kind that use as many fields as one object can."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_META: Json = {"labels": {"app": "web", "x.io/y": "z"}, "annotations": {"x.io/note": "text"},
               "finalizers": ["x.io/f"]}  # fmt: skip
_SECURITY: Json = {
    "runAsUser": 5, "runAsGroup": 6, "runAsNonRoot": True, "seLinuxOptions": {"level": "s0"},
    "seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"},
}  # fmt: skip
_PROBE: Json = {"httpGet": {"path": "/p", "port": "http", "scheme": "HTTP", "host": "h",
                            "httpHeaders": [{"name": "X-A", "value": "v"}]},
                "initialDelaySeconds": 1, "timeoutSeconds": 2, "periodSeconds": 3,
                "successThreshold": 1, "failureThreshold": 4}  # fmt: skip
_CONTAINER: Json = {
    "name": "c", "image": "i:1", "command": ["run"], "args": ["a"], "workingDir": "/w",
    "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/t",
    "terminationMessagePolicy": "FallbackToLogsOnError", "stdin": True, "stdinOnce": True,
    "tty": True,
    "ports": [{"name": "http", "containerPort": 80, "protocol": "TCP", "hostPort": 8080,
               "hostIP": "10.0.0.1"}, {"name": "dns", "containerPort": 53, "protocol": "UDP"}],
    "env": [
        {"name": "A", "value": "1"},
        {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu",
                                                         "containerName": "c", "divisor": "1m"}}},
        {"name": "D", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k",
                                                        "optional": True}}},
        {"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ],
    "envFrom": [{"prefix": "P_", "configMapRef": {"name": "m"}}, {"secretRef": {"name": "s"}}],
    "resources": {"limits": {"cpu": "1", "memory": "1Gi"},
                  "requests": {"cpu": "500m", "memory": "512Mi"}},
    "volumeMounts": [
        {"name": "data", "mountPath": "/data", "subPath": "s", "readOnly": True,
         "recursiveReadOnly": "IfPossible", "mountPropagation": "None"},
        {"name": "settings", "mountPath": "/etc/s", "subPathExpr": "$(A)"},
    ],
    "livenessProbe": _PROBE,
    "readinessProbe": {"exec": {"command": ["ok"]}},
    "startupProbe": {"tcpSocket": {"port": 80, "host": "h"}},
    "lifecycle": {"postStart": {"exec": {"command": ["up"]}},
                  "preStop": {"sleep": {"seconds": 5}}},
    "securityContext": {
        "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}, "privileged": False,
        "readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False,
        "procMount": "Default", "runAsUser": 7,
        "seccompProfile": {"type": "RuntimeDefault"},
        "appArmorProfile": {"type": "Localhost", "localhostProfile": "a"},
    },
}  # fmt: skip
_EXPRESSION: Json = {"key": "k", "operator": "In", "values": ["v"]}
_SELECTOR: Json = {"matchLabels": {"app": "web"}, "matchExpressions": [_EXPRESSION]}
_TERM: Json = {"labelSelector": _SELECTOR, "topologyKey": "zone", "namespaces": ["n"],
               "namespaceSelector": {"matchLabels": {"a": "b"}}}  # fmt: skip
_LATER = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_VOLUMES: list[Json] = [
    {"name": "data", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
    {"name": "settings", "configMap": {"name": "m", "defaultMode": 0o644, "optional": True,
                                       "items": [{"key": "k", "path": "p", "mode": 0o600}]}},
    {"name": "secret", "secret": {"secretName": "s", "defaultMode": 0o400,
                                  "items": [{"key": "k", "path": "p"}]}},
    {"name": "host", "hostPath": {"path": "/x", "type": "Directory"}},
    {"name": "down", "downwardAPI": {"items": [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "cpu", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}}]}},
    {"name": "model", "image": {"reference": "r:1", "pullPolicy": "Always"}},
    {"name": "all", "projected": {"defaultMode": 0o440, "sources": [
        {"serviceAccountToken": {"path": "token", "audience": "a", "expirationSeconds": 3600}},
        {"configMap": {"name": "m", "items": [{"key": "k", "path": "c"}]}},
        {"secret": {"name": "s", "optional": False}},
        {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]}},
]  # fmt: skip
_POD_SPEC: Json = {
    "containers": [_CONTAINER, {"name": "side", "image": "j"}],
    "initContainers": [{"name": "init", "image": "k"},
                       {"name": "sidecar", "image": "l", "restartPolicy": "Always"}],
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "activeDeadlineSeconds": 600,
    "dnsPolicy": "None",
    "dnsConfig": {"nameservers": ["10.0.0.2"], "searches": ["s.io"],
                  "options": [{"name": "ndots", "value": "2"}]},
    "nodeSelector": {"disk": "ssd"},
    "serviceAccountName": "robot",
    "automountServiceAccountToken": False,
    "shareProcessNamespace": True,
    "hostAliases": [{"ip": "10.0.0.3", "hostnames": ["h"]}],
    "securityContext": {**_SECURITY, "supplementalGroups": [7], "fsGroup": 8,
                        "fsGroupChangePolicy": "OnRootMismatch",
                        "supplementalGroupsPolicy": "Strict",
                        "sysctls": [{"name": "net.ipv4.x", "value": "1"}]},
    "imagePullSecrets": [{"name": "pull"}],
    "hostname": "h", "subdomain": "sub", "setHostnameAsFQDN": True, "enableServiceLinks": False,
    "affinity": {
        "nodeAffinity": {
            _LATER: {"nodeSelectorTerms": [{
                "matchExpressions": [_EXPRESSION],
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]},
            _PREFERRED: [{"weight": 5, "preference": {"matchExpressions": [
                {"key": "n", "operator": "Gt", "values": ["3"]}]}}],
        },
        "podAffinity": {_LATER: [_TERM], _PREFERRED: [{"weight": 7, "podAffinityTerm": _TERM}]},
        "podAntiAffinity": {_LATER: [{**_TERM, "matchLabelKeys": ["x"]}]},
    },
    "schedulerName": "mine",
    "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute",
                     "tolerationSeconds": 30}, {"operator": "Exists"}],
    "topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": _SELECTOR, "minDomains": 2, "nodeAffinityPolicy": "Honor",
        "nodeTaintsPolicy": "Ignore", "matchLabelKeys": ["y"]}],
    "priorityClassName": "high", "runtimeClassName": "gvisor",
    "overhead": {"cpu": "10m"}, "preemptionPolicy": "Never",
    "readinessGates": [{"conditionType": "x.io/ready"}],
    "schedulingGates": [{"name": "x.io/gate"}],
    "os": {"name": "linux"},
    "volumes": _VOLUMES,
}  # fmt: skip
_PLAIN: Json = {"name": "c", "image": "i"}


def _only(*fields: str) -> Json:
    return {field: _POD_SPEC[field] for field in fields}


_TEMPLATE: Json = {
    "metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}],
             "tolerations": [{"operator": "Exists"}], "restartPolicy": "Always"},
}  # fmt: skip
_RULE: Json = {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get"],
               "resourceNames": ["a"]}  # fmt: skip
_RBAC = "rbac.authorization.k8s.io"
_SUBJECTS: list[Json] = [
    {"kind": "User", "apiGroup": _RBAC, "name": "u"},
    {"kind": "Group", "apiGroup": _RBAC, "name": "g"},
    {"kind": "ServiceAccount", "name": "robot", "namespace": "n"},
]

RICH: dict[str, Json] = {
    "Pod container": {
        "metadata": {"name": "p"},
        "spec": {**_only("containers"), "volumes": _VOLUMES[:2]},
    },
    "Pod volumes": {
        "metadata": {"name": "p"}, "spec": {**_only("volumes"), "containers": [_PLAIN]},
    },
    "Pod rest": {
        "metadata": {"name": "p", **_META},
        "spec": {**{key: value for key, value in _POD_SPEC.items() if key != "volumes"},
                 "containers": [_PLAIN]},
    },
    "Deployment": {
        "metadata": {"name": "d", **_META},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
                 "template": _TEMPLATE, "minReadySeconds": 5, "revisionHistoryLimit": 3,
                 "progressDeadlineSeconds": 60, "paused": True,
                 "strategy": {"type": "RollingUpdate",
                              "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}}},
    },
    "ReplicaSet": {
        "metadata": {"name": "r", **_META},
        "spec": {"replicas": 3, "minReadySeconds": 5,
                 "selector": {"matchLabels": {"app": "web"}}, "template": _TEMPLATE},
    },
    "RuntimeClass": {
        "metadata": {"name": "r", **_META}, "handler": "kata",
        "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
        "scheduling": {"nodeSelector": {"kata": "yes"},
                       "tolerations": [{"key": "k", "operator": "Equal", "value": "v",
                                        "effect": "NoSchedule"}]},
    },
    "Service": {
        "metadata": {"name": "s", **_META},
        "spec": {"type": "NodePort", "selector": {"app": "web"}, "sessionAffinity": "ClientIP",
                 "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
                 "externalIPs": ["1.2.3.4"], "externalTrafficPolicy": "Local",
                 "internalTrafficPolicy": "Cluster", "ipFamilyPolicy": "SingleStack",
                 "ipFamilies": ["IPv4"], "publishNotReadyAddresses": True,
                 "ports": [{"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP",
                            "appProtocol": "http", "nodePort": 30080},
                           {"name": "dns", "port": 53, "targetPort": 53, "protocol": "UDP"}]},
    },
    "ConfigMap": {"metadata": {"name": "c", **_META}, "data": {"a": "b"},
                  "binaryData": {"c": "AAA="}, "immutable": True},
    "Secret": {"metadata": {"name": "c", **_META}, "type": "kubernetes.io/basic-auth",
               "data": {"username": "eA==", "password": "eA=="}, "immutable": False},
    "Namespace": {"metadata": {"name": "n", **_META}, "spec": {"finalizers": ["kubernetes"]}},
    "PriorityClass": {"metadata": {"name": "n", **_META}, "value": 5, "globalDefault": True,
                      "description": "text", "preemptionPolicy": "Never"},
    "Lease": {
        "metadata": {"name": "n", **_META},
        "spec": {"holderIdentity": "x", "leaseDurationSeconds": 40, "leaseTransitions": 2,
                 "acquireTime": "2026-01-01T00:00:00.000000Z",
                 "renewTime": "2026-01-01T00:00:10.000000Z"},
    },
    "Role": {"metadata": {"name": "n", **_META}, "rules": [_RULE]},
    "ClusterRole": {"metadata": {"name": "n", **_META},
                    "rules": [_RULE, {"nonResourceURLs": ["/x/*"], "verbs": ["get"]}],
                    "aggregationRule": {"clusterRoleSelectors": [_SELECTOR]}},
    "RoleBinding": {"metadata": {"name": "n", **_META}, "subjects": _SUBJECTS,
                    "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "x"}},
    "ClusterRoleBinding": {"metadata": {"name": "n", **_META}, "subjects": _SUBJECTS,
                           "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "x"}},
    "Node": {
        "metadata": {"name": "nn", **_META},
        "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"], "providerID": "x://1",
                 "unschedulable": True,
                 "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"},
                            {"key": "k", "value": "v", "effect": "NoExecute"}]},
        "status": {"capacity": {"cpu": "4", "memory": "8Gi"}, "allocatable": {"cpu": "3"},
                   "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                   "conditions": [{"type": "Ready", "status": "True"}],
                   "nodeInfo": {"kernelVersion": "6", "kubeletVersion": "v1"}},
    },
    "Event": {
        "metadata": {"name": "e", "namespace": "default", **_META},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default", "uid": "u"},
        "reason": "r", "message": "m", "type": "Warning", "count": 2,
        "source": {"component": "c", "host": "h"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:10Z",
    },
    "Endpoints": {
        "metadata": {"name": "e", **_META},
        "subsets": [{"addresses": [{"ip": "10.0.0.1", "hostname": "h", "nodeName": "n",
                                    "targetRef": {"kind": "Pod", "name": "p"}}],
                     "notReadyAddresses": [{"ip": "10.0.0.2"}],
                     "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}],
    },
    "EndpointSlice": {
        "metadata": {"name": "e", **_META}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"], "hostname": "h", "nodeName": "n", "zone": "z",
                       "conditions": {"ready": True, "serving": True, "terminating": False}}],
        "ports": [{"name": "http", "port": 80, "protocol": "TCP", "appProtocol": "http"}],
    },
    "ServiceAccount": {"metadata": {"name": "sa", **_META}, "secrets": [{"name": "s"}],
                       "imagePullSecrets": [{"name": "p"}],
                       "automountServiceAccountToken": False},
    "PersistentVolume": {
        "metadata": {"name": "v", **_META},
        "spec": {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
                 "csi": {"driver": "disk.example.com", "volumeHandle": "h", "fsType": "ext4",
                         "readOnly": True, "volumeAttributes": {"a": "b"},
                         "nodePublishSecretRef": {"name": "s", "namespace": "n"}},
                 "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "n", "name": "c"},
                 "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "fast",
                 "volumeAttributesClassName": "gold", "mountOptions": ["ro"],
                 "volumeMode": "Block",
                 "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                     {"key": "z", "operator": "In", "values": ["a"]}]}]}}},
        "status": {"phase": "Bound", "message": "m", "reason": "r"},
    },
    "PersistentVolume elsewhere": {
        "metadata": {"name": "v", **_META},
        "spec": {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteMany"],
                 "iscsi": {"targetPortal": "10.0.0.1:3260", "lun": 1,
                           "iqn": "iqn.2020-01.com.example:disk", "chapAuthSession": True,
                           "initiatorName": "iqn.2020-01.com.example:node",
                           "secretRef": {"name": "s", "namespace": "n"}}},
    },
    "PersistentVolumeClaim": {
        "metadata": {"name": "c", **_META},
        "spec": {"accessModes": ["ReadWriteOnce"], "selector": _SELECTOR, "volumeName": "v",
                 "resources": {"requests": {"storage": "5Gi"}, "limits": {"storage": "9Gi"}},
                 "storageClassName": "fast", "volumeMode": "Filesystem",
                 "volumeAttributesClassName": "gold",
                 "dataSource": {"kind": "PersistentVolumeClaim", "name": "d"},
                 "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "d"}},
        "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"],
                   "capacity": {"storage": "5Gi"}, "allocatedResources": {"storage": "5Gi"},
                   "allocatedResourceStatuses": {"storage": "NodeResizePending"},
                   "currentVolumeAttributesClassName": "gold",
                   "conditions": [{"type": "Resizing", "status": "True"}]},
    },
    "StorageClass": {
        "metadata": {"name": "s", **_META}, "provisioner": "example.com/disk",
        "parameters": {"type": "fast"}, "reclaimPolicy": "Retain", "mountOptions": ["ro"],
        "allowVolumeExpansion": True, "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "z", "values": ["a", "b"]}]}],
    },
    "CSIDriver": {
        "metadata": {"name": "d", **_META},
        "spec": {"attachRequired": False, "podInfoOnMount": True, "storageCapacity": True,
                 "fsGroupPolicy": "File", "requiresRepublish": True, "seLinuxMount": True,
                 "volumeLifecycleModes": ["Persistent", "Ephemeral"],
                 "tokenRequests": [{"audience": "a", "expirationSeconds": 600}],
                 "serviceAccountTokenInSecrets": True, "nodeAllocatableUpdatePeriodSeconds": 10},
    },
    "CSINode": {
        "metadata": {"name": "n", **_META},
        "spec": {"drivers": [{"name": "d", "nodeID": "i", "topologyKeys": ["z", "r"],
                              "allocatable": {"count": 5}}]},
    },
    "CSIStorageCapacity": {
        "metadata": {"name": "c", **_META}, "storageClassName": "fast", "capacity": "5Gi",
        "maximumVolumeSize": "1Gi", "nodeTopology": _SELECTOR,
    },
    "VolumeAttachment": {
        "metadata": {"name": "a", **_META},
        "spec": {"attacher": "d", "nodeName": "n", "source": {"inlineVolumeSpec": {
            "accessModes": ["ReadWriteOnce"], "csi": {"driver": "d", "volumeHandle": "h"}}}},
        "status": {"attached": True, "attachmentMetadata": {"a": "b"},
                   "attachError": {"message": "m", "errorCode": 5}},
    },
    "VolumeAttributesClass": {
        "metadata": {"name": "a", **_META}, "driverName": "d", "parameters": {"iops": "1"},
    },
}  # fmt: skip
