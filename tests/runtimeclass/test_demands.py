"""Which fields of a pod ask for which features."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.pods import PodSpec
from moorage.runtimeclass.demands import demands, demands_of
from moorage.runtimeclass.features import CAPABILITIES, FEATURES


def container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": "i", **fields}]}


def security(**fields: Any) -> dict[str, Any]:
    return container(securityContext=fields)


_C = "spec.containers[0]"
_S = f"{_C}.securityContext"
_PROFILE = {"type": "Localhost", "localhostProfile": "p.json"}

ASKING = [
    ({"hostNetwork": True}, "spec.hostNetwork", "host-network"),
    ({"hostPID": True}, "spec.hostPID", "host-pid"),
    ({"hostIPC": True}, "spec.hostIPC", "host-ipc"),
    ({"hostUsers": False}, "spec.hostUsers", "user-namespaces"),
    ({"shareProcessNamespace": True}, "spec.shareProcessNamespace", "shared-process-namespace"),
    ({"securityContext": {"seccompProfile": _PROFILE}},
     "spec.securityContext.seccompProfile.type", "seccomp"),
    ({"securityContext": {"appArmorProfile": _PROFILE}},
     "spec.securityContext.appArmorProfile.type", "apparmor"),
    ({"securityContext": {"seLinuxOptions": {"type": "t"}}},
     "spec.securityContext.seLinuxOptions", "selinux"),
    ({"volumes": [{"name": "v"}, {"name": "d", "hostPath": {"path": "/d", "type": "CharDevice"}}]},
     "spec.volumes[1].hostPath.type", "devices"),
    (security(privileged=True), f"{_S}.privileged", "privileged"),
    (security(capabilities={"add": ["SYS_TIME"]}), f"{_S}.capabilities.add[0]",
     "capability-sys-time"),
    (security(capabilities={"add": ["CAP_BPF"]}), f"{_S}.capabilities.add[0]", "capability-bpf"),
    (security(seccompProfile=_PROFILE), f"{_S}.seccompProfile.type", "seccomp"),
    (security(readOnlyRootFilesystem=True), f"{_S}.readOnlyRootFilesystem", "read-only-root"),
    (security(allowPrivilegeEscalation=False), f"{_S}.allowPrivilegeEscalation",
     "no-new-privileges"),
    (security(procMount="Unmasked"), f"{_S}.procMount", "nested-containers"),
    (container(volumeMounts=[{"recursiveReadOnly": "Enabled"}]),
     f"{_C}.volumeMounts[0].recursiveReadOnly", "recursive-read-only-mounts"),
    (container(volumeMounts=[{"mountPropagation": "Bidirectional"}]),
     f"{_C}.volumeMounts[0].mountPropagation", "mount-propagation"),
    (container(volumeDevices=[{"name": "b", "devicePath": "/dev/x"}]),
     f"{_C}.volumeDevices[0].devicePath", "block-volumes"),
    (container(resources={"limits": {"nvidia.com/gpu": "1"}}),
     f"{_C}.resources.limits[nvidia.com/gpu]", "gpu"),
    (container(resources={"limits": {"devices.kubevirt.io/kvm": "1"}}),
     f"{_C}.resources.limits[devices.kubevirt.io/kvm]", "devices"),
    (container(resources={"limits": {"memory": "1Gi"}}), f"{_C}.resources.limits.memory",
     "memory-limit"),
    (container(resources={"claims": [{"name": "gpu"}]}), f"{_C}.resources.claims[0].name",
     "devices"),
    (container(tty=True), f"{_C}.tty", "terminal"),
    (container(livenessProbe={"exec": {"command": ["true"]}}), f"{_C}.livenessProbe.exec", "exec"),
    (container(lifecycle={"preStop": {"exec": {"command": ["true"]}}}),
     f"{_C}.lifecycle.preStop.exec", "exec"),
    ({"initContainers": [{"name": "i", "tty": True}]}, "spec.initContainers[0].tty", "terminal"),
    ({"ephemeralContainers": [{"name": "e", "securityContext": {"privileged": True}}]},
     "spec.ephemeralContainers[0].securityContext.privileged", "privileged"),
]  # fmt: skip

NOT_ASKING = [
    container(),
    {"hostNetwork": False, "hostUsers": True, "hostPID": None},
    security(privileged=False, capabilities={"drop": ["ALL"]}, allowPrivilegeEscalation=True),
    security(seccompProfile={"type": "RuntimeDefault"}, procMount="Default"),
    security(capabilities={"add": ["NO_SUCH_CAPABILITY", 7]}),
    container(volumeMounts=[{"recursiveReadOnly": "IfPossible", "mountPropagation": "None"}]),
    container(resources={"requests": {"cpu": "1"}, "limits": {"example.com/licence": "1"}}),
    # Of a wrong type: the schema's affair.
    {"hostNetwork": "true", "containers": {"tty": True}, "volumes": 7, "securityContext": []},
]


@pytest.mark.parametrize(("spec", "field", "feature"), ASKING, ids=[row[1] for row in ASKING])
def test_a_field_asks_for_a_feature(spec: dict[str, Any], field: str, feature: str) -> None:
    assert [(one.field, one.feature) for one in demands(spec)] == [(field, feature)]


@pytest.mark.parametrize("spec", NOT_ASKING)
def test_what_every_runtime_gives_is_no_demand(spec: dict[str, Any]) -> None:
    assert demands(spec) == ()


def test_every_feature_that_is_asked_for_is_in_the_vocabulary() -> None:
    assert {feature for _, _, feature in ASKING} <= FEATURES.keys()


def test_net_raw_asks_for_the_capability_and_for_raw_sockets() -> None:
    found = demands(security(capabilities={"add": ["NET_RAW"]}))
    assert [one.feature for one in found] == ["capability-net-raw", "raw-sockets"]


def test_all_capabilities_are_each_asked_for() -> None:
    assert len(demands(security(capabilities={"add": ["ALL"]}))) == len(CAPABILITIES)


@pytest.mark.parametrize("spec", [row[0] for row in ASKING])
def test_a_typed_specification_asks_for_the_same(spec: dict[str, Any]) -> None:
    assert demands_of(msgspec.convert(spec, PodSpec)) == demands(spec)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["containers", "securityContext", "capabilities", "add", "resources",
                         "limits", "hostNetwork", "volumeMounts", "tty", "x"]),
        inner, max_size=4,
    ),
    max_leaves=20,
)  # fmt: skip


@given(_JSON)
def test_anything_can_be_asked_what_it_demands(value: Any) -> None:
    spec = value if isinstance(value, dict) else {"containers": value}
    assert all(one.feature in FEATURES for one in demands(spec))
