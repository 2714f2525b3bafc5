"""The runtime agent's objects: privileges are those that docs name, and no more."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.runtime_group import PROBE_NAMESPACE
from moorage.attach.manifests.runtime_agent import CAPABILITIES, objects
from moorage.attach.values import AgentValues, Values
from moorage.runtimes.probing.pod_carrier import NAMESPACE
from tests.documents import REPOSITORY

PAGE = (REPOSITORY / "docs" / "runtime-agent.md").read_text()


def pod_of(values: Values) -> dict[str, Any]:
    (daemon_set,) = [obj for obj in objects(values) if obj["kind"] == "DaemonSet"]
    spec: dict[str, Any] = daemon_set["spec"]["template"]["spec"]
    return spec


def container_of(values: Values) -> dict[str, Any]:
    (container,) = pod_of(values)["containers"]
    return dict(container)


def test_an_agent_that_installs_nothing_has_no_capability_and_mounts_no_configuration() -> None:
    values = Values(agent=AgentValues(installs_runtimes=False))
    container = container_of(values)
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "appArmorProfile" not in container["securityContext"]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert mounts == ["/run", "/var/lib/moorage-agent", "/tmp"]
    assert "--no-install" in container["args"]
    rules = next(obj["rules"] for obj in objects(values) if obj["kind"] == "ClusterRole")
    assert not [rule for rule in rules if "runtimeinstallations/status" in rule["resources"]]


@pytest.mark.parametrize("installs", [True, False])
def test_no_container_is_privileged_or_writes_into_its_image(installs: bool) -> None:
    context = container_of(Values(agent=AgentValues(installs_runtimes=installs)))["securityContext"]
    assert context["privileged"] is False
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True


def test_every_host_directory_is_at_its_own_path() -> None:
    values = Values(agent=AgentValues(host_paths=("/opt/runtimes",)))
    volumes = {volume["name"]: volume for volume in pod_of(values)["volumes"]}
    paths = {}
    for mount in container_of(values)["volumeMounts"]:
        if "hostPath" in volumes[mount["name"]]:
            paths[volumes[mount["name"]]["hostPath"]["path"]] = mount["mountPath"]
    assert paths == {path: path for path in paths}
    assert "/opt/runtimes" in paths


def test_a_chosen_engine_is_the_only_socket_directory() -> None:
    values = Values(agent=AgentValues(cri="unix:///run/k3s/containerd/containerd.sock"))
    assert pod_of(values)["volumes"][0]["hostPath"]["path"] == "/run/k3s/containerd"
    assert "--cri=unix:///run/k3s/containerd/containerd.sock" in container_of(values)["args"]


def test_the_page_names_each_privilege() -> None:
    values = Values()
    for capability in CAPABILITIES:
        assert f"`{capability}`" in PAGE
    for volume in pod_of(values)["volumes"]:
        if "hostPath" in volume:
            assert f"`{volume['hostPath']['path']}`" in PAGE
    for word in ("`hostPID`", "`spc_t`", "`Unconfined`", "`system-node-critical`"):
        assert word in PAGE


def test_the_namespace_of_probes_is_where_the_agent_runs_them() -> None:
    names = [obj["metadata"]["name"] for obj in objects(Values()) if obj["kind"] == "Namespace"]
    assert names == [NAMESPACE] == [PROBE_NAMESPACE]


def test_probes_run_from_the_agents_own_image() -> None:
    container = container_of(Values(image="registry.example/m@sha256:1"))
    assert "--probe-image=registry.example/m@sha256:1" in container["args"]
