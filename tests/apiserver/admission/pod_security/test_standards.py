"""What each standard objects to, word for word, and from which version."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.admission.pod_security.policy import LATEST, Standard, violations

SAFE = {
    "allowPrivilegeEscalation": False, "runAsNonRoot": True, "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}  # fmt: skip
Json = dict[str, Any]


def container(name: str = "c", **fields: Any) -> Json:
    context = fields.pop("context", {})
    return {"name": name, "image": "i", "securityContext": context, **fields}


def found(
    level: str, spec: Json, version: int = LATEST, annotations: Json | None = None
) -> list[str]:
    metadata = {"name": "p", "annotations": annotations or {}}
    return [str(one) for one in violations(Standard(level, version), metadata, spec)]


def pod(*containers: Json, **spec: Any) -> Json:
    return {"containers": list(containers or [container()]), **spec}


BASELINE: list[tuple[Json, str]] = [
    (pod(hostNetwork=True, hostPID=True, hostIPC=True),
     "host namespaces (hostNetwork=true, hostPID=true, hostIPC=true)"),
    (pod(container("a", context={"privileged": True}), container("b"),
         initContainers=[container("i", context={"privileged": True})]),
     'privileged (containers "i", "a" must not set securityContext.privileged=true)'),
    (pod(container(context={"capabilities": {"add": ["SYS_ADMIN", "CHOWN", "BPF"]}})),
     'non-default capabilities (container "c" must not include "BPF", "SYS_ADMIN" in '
     "securityContext.capabilities.add)"),
    (pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}, {"name": "e", "emptyDir": {}}]),
     'hostPath volumes (volume "v")'),
    (pod(container(ports=[{"containerPort": 1, "hostPort": 80}, {"containerPort": 2}]),
         container("d", ports=[{"containerPort": 1, "hostPort": 8080}])),
     'hostPort (containers "c", "d" use hostPorts 80, 8080)'),
    (pod(container(ports=[{"containerPort": 1, "hostPort": 80}])),
     'hostPort (container "c" uses hostPort 80)'),
    (pod(container(livenessProbe={"httpGet": {"host": "h", "port": 1}},
                   lifecycle={"preStop": {"tcpSocket": {"host": "i", "port": 1}}})),
     'probe or lifecycle host (container "c" uses probe or lifecycle hosts "h", "i")'),
    (pod(container(context={"appArmorProfile": {"type": "Unconfined"}}),
         securityContext={"appArmorProfile": {"type": "Unconfined"}}),
     'forbidden AppArmor profile (pod and container "c" must not set AppArmor profile type to '
     '"Unconfined")'),
    (pod(container(context={"seccompProfile": {"type": "Unconfined"}})),
     'seccompProfile (container "c" must not set securityContext.seccompProfile.type to '
     '"Unconfined")'),
    (pod(container(context={"procMount": "Unmasked"})),
     'procMount (container "c" must not set securityContext.procMount to "Unmasked")'),
    (pod(container(context={"seLinuxOptions": {"type": "spc_t", "user": "u", "role": "r"}}),
         securityContext={"seLinuxOptions": {"type": "x_t"}}),
     'seLinuxOptions (pod and container "c" set forbidden securityContext.seLinuxOptions: types '
     '"spc_t", "x_t"; user may not be set; role may not be set)'),
    (pod(securityContext={"sysctls": [{"name": "kernel.msgmax"},
                                      {"name": "net.ipv4.tcp_syncookies"},
                                      {"name": "net.core.somaxconn"}]}),
     "forbidden sysctls (kernel.msgmax, net.core.somaxconn)"),
    (pod(container(context={"windowsOptions": {"hostProcess": True}}),
         securityContext={"windowsOptions": {"hostProcess": True}}),
     'hostProcess (pod and container "c" must not set '
     "securityContext.windowsOptions.hostProcess=true)"),
    (pod(ephemeralContainers=[container("e", context={"privileged": True})]),
     'privileged (container "e" must not set securityContext.privileged=true)'),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "says"), BASELINE)
def test_what_the_baseline_objects_to(spec: Json, says: str) -> None:
    assert found("baseline", spec) == [says]
    assert found("privileged", spec) == []


def test_profiles_in_annotations() -> None:
    key = "container.apparmor.security.beta.kubernetes.io/c"
    for value in ("runtime/default", "localhost/x", ""):
        assert found("baseline", pod(), annotations={key: value}) == []
    assert found("baseline", pod(), annotations={key: "unconfined"}) == [
        "forbidden AppArmor profile (annotation must not set AppArmor profile type to "
        f'"{key}="unconfined"")'
    ]
    pod_key = "seccomp.security.alpha.kubernetes.io/pod"
    container_key = "container.seccomp.security.alpha.kubernetes.io/c"
    wrong = {pod_key: "unconfined", container_key: "unconfined"}
    assert found("baseline", pod(), 18, wrong) == [
        f'seccompProfile (forbidden annotations {container_key}="unconfined", '
        f'{pod_key}="unconfined")'
    ]
    assert found("baseline", pod(), 19, wrong) == []
    assert found("baseline", pod(), 18, {pod_key: "docker/default"}) == []


RESTRICTED: list[tuple[Json, str]] = [
    (pod(container(context={**SAFE, "allowPrivilegeEscalation": True})),
     'allowPrivilegeEscalation != false (container "c" must set '
     "securityContext.allowPrivilegeEscalation=false)"),
    (pod(container(context={**SAFE, "capabilities": {"add": ["CHOWN", "NET_BIND_SERVICE"]}})),
     'unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]; '
     'container "c" must not include "CHOWN" in securityContext.capabilities.add)'),
    (pod(container(context=SAFE), volumes=[{"name": "n", "nfs": {"server": "s"}},
                                           {"name": "h", "hostPath": {"path": "/"}},
                                           {"name": "s", "secret": {}}]),
     'restricted volume types (volumes "n", "h" use restricted volume types "hostPath", "nfs")'),
    (pod(container(context={**SAFE, "runAsNonRoot": False})),
     'runAsNonRoot != true (container "c" must not set securityContext.runAsNonRoot=false)'),
    (pod(container(context={key: SAFE[key] for key in SAFE if key != "runAsNonRoot"})),
     'runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true)'),
    (pod(container(context={**SAFE, "runAsUser": 0}), securityContext={"runAsUser": 0}),
     'runAsUser=0 (pod and container "c" must not set runAsUser=0)'),
    (pod(container(context={key: SAFE[key] for key in SAFE if key != "seccompProfile"})),
     'seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to '
     '"RuntimeDefault" or "Localhost")'),
    (pod(container(context=SAFE), securityContext={"seccompProfile": {"type": "Unconfined"}}),
     'seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")'),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "says"), RESTRICTED)
def test_what_restricted_objects_to(spec: Json, says: str) -> None:
    assert found("restricted", spec) == [says]


def test_a_plain_pod_violates_restricted_in_a_stated_order() -> None:
    reasons = [text.partition(" (")[0] for text in found("restricted", pod(hostNetwork=True))]
    assert reasons == [
        "host namespaces", "allowPrivilegeEscalation != false", "unrestricted capabilities",
        "runAsNonRoot != true", "seccompProfile",
    ]  # fmt: skip


def test_settings_of_the_pod_stand_for_its_containers() -> None:
    context = {"runAsNonRoot": True, "seccompProfile": {"type": "Localhost"}}
    own = {key: SAFE[key] for key in ("allowPrivilegeEscalation", "capabilities")}
    assert found("restricted", pod(container(context=own), securityContext=context)) == []


def test_pods_for_windows_need_no_linux_settings() -> None:
    context = {"runAsNonRoot": True}
    windows = pod(os={"name": "windows"}, securityContext=context)
    assert found("restricted", windows, 25) == []
    assert len(found("restricted", windows, 24)) == 3


def test_root_in_a_user_namespace_is_permitted() -> None:
    own = {**SAFE, "runAsUser": 0, "runAsNonRoot": False}
    mapped = pod(container(context=own), hostUsers=False)
    assert found("restricted", mapped) == []
    assert len(found("restricted", mapped, 34)) == 2
    unmasked = pod(container(context={"procMount": "Unmasked"}), hostUsers=False)
    assert found("baseline", unmasked) == []
    assert len(found("baseline", unmasked, 34)) == 1
    assert any(text.startswith("procMount") for text in found("restricted", unmasked))


@pytest.mark.parametrize(
    ("level", "spec", "since"),
    [
        ("baseline", pod(container(readinessProbe={"tcpSocket": {"host": "h"}})), 34),
        ("restricted", pod(container(context={**SAFE, "runAsUser": 0})), 23),
        ("restricted", pod(container(context={**SAFE, "capabilities": {}})), 22),
        ("restricted", pod(container(context={**SAFE, "allowPrivilegeEscalation": True})), 8),
        ("restricted", pod(container(context={**SAFE, "seccompProfile": {"type": "x"}})), 19),
    ],
)
def test_checks_that_came_later(level: str, spec: Json, since: int) -> None:
    assert found(level, spec, since - 1) == []
    assert len(found(level, spec, since)) == 1


@pytest.mark.parametrize(
    ("name", "since"),
    [
        ("net.ipv4.ip_local_reserved_ports", 27), ("net.ipv4.tcp_fin_timeout", 29),
        ("net.ipv4.tcp_rmem", 32), ("net.ipv4.tcp_notsent_lowat", 37),
    ],
)  # fmt: skip
def test_sysctls_that_were_permitted_later(name: str, since: int) -> None:
    spec = pod(securityContext={"sysctls": [{"name": name}]})
    assert found("baseline", spec, since - 1) == [f"forbidden sysctls ({name})"]
    assert found("baseline", spec, since) == []


def test_an_selinux_type_that_was_permitted_later() -> None:
    spec = pod(container(context={"seLinuxOptions": {"type": "container_engine_t"}}))
    assert len(found("baseline", spec, 30)) == 1
    assert found("baseline", spec, 31) == []
