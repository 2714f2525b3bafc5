"""Engine configurations as handler files, classes and edits of their own."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.yaml_values import parse_documents
from moorage.engine.handlers import parse_definition
from moorage.migrate.rules import Options, Plan, Source, make_plan

_CRI = 'plugins."io.containerd.grpc.v1.cri".containerd'
_CRI_2 = "plugins.'io.containerd.cri.v1.runtime'.containerd"


def _plan(name: str, text: str) -> Plan:
    return make_plan([Source(name, text)], {}, Options())


def _handlers(plan: Plan) -> dict[str, dict[str, Any]]:
    """What the handler files say; our own reader must accept each."""
    files = {}
    for name, text in plan.outputs.items():
        if name.startswith("handlers.d/"):
            parse_definition(Path("/etc/moorage") / name, text.encode())
            files[name.removeprefix("handlers.d/").removesuffix(".toml")] = tomllib.loads(text)
    return files


def _classes(plan: Plan) -> dict[str, tuple[str, str]]:
    """Handler and isolation of each class."""
    return {
        item["metadata"]["name"]: (
            item["handler"],
            item["metadata"].get("labels", {}).get("runtime.moorage.dev/isolation", ""),
        )
        for item in parse_documents(plan.outputs.get("runtimeclasses.yaml", ""))
    }


@pytest.mark.parametrize(
    ("table", "handler"),
    [
        ('runtime_type = "io.containerd.runc.v2"', {"adapter": "oci", "binary": "runc"}),
        (
            'runtime_type = "io.containerd.runc.v2"\noptions.BinaryName = "/usr/bin/crun"\n'
            "options.NoPivotRoot = true",
            {"adapter": "oci", "binary": "/usr/bin/crun", "options": {"no_pivot_root": True}},
        ),
        ('runtime_type = "io.containerd.runsc.v1"', {"adapter": "runsc", "binary": "runsc"}),
        (
            'runtime_type = "io.containerd.runsc.v1"\n'
            'options = {TypeUrl = "io.containerd.runsc.v1.options", ConfigPath = "/etc/r.toml"}',
            {
                "adapter": "shim",
                "binary": "containerd-shim-runsc-v1",
                "options": {
                    "runtime_type": "io.containerd.runsc.v1",
                    "config_path": "/etc/r.toml",
                    "options_type_url": "io.containerd.runsc.v1.options",
                },
            },
        ),
        (
            'runtime_type = "io.containerd.kata-qemu.v2"\npod_annotations = ["io.kata.*"]\n'
            'container_annotations = ["c.*"]\nsnapshotter = "nydus"\n'
            'privileged_without_host_devices = true\nruntime_path = "/opt/kata/bin/shim"',
            {
                "adapter": "shim",
                "binary": "/opt/kata/bin/shim",
                "annotations": ["io.kata.*"],
                "container_annotations": ["c.*"],
                "snapshotter": "nydus",
                "privileged_without_host_devices": True,
                "options": {"runtime_type": "io.containerd.kata-qemu.v2"},
            },
        ),
        (
            'runtime_type = "/opt/kata/bin/containerd-shim-kata-v2"',
            {
                "adapter": "shim",
                "binary": "/opt/kata/bin/containerd-shim-kata-v2",
                "options": {"runtime_type": "io.containerd.kata.v2"},
            },
        ),
        (
            'runtime_type = "io.containerd.runtime.v1.linux"\nruntime_engine = "/bin/runsc"\n'
            'runtime_root = "/run/runsc"',
            {"adapter": "runsc", "binary": "/bin/runsc", "options": {"root": "/run/runsc"}},
        ),
    ],
)
@pytest.mark.parametrize(
    ("version", "cri"), [(2, _CRI), (3, _CRI_2), (4, _CRI_2), (1, "plugins.cri.containerd")]
)
def test_a_handler_of_containerd(
    version: int, cri: str, table: str, handler: dict[str, Any]
) -> None:
    plan = _plan("config.toml", f"version = {version}\n[{cri}.runtimes.h]\n{table}\n")
    assert _handlers(plan) == {"h": handler}
    assert not plan.changed


def test_handlers_of_containerd_are_renamed_in_its_own_configuration() -> None:
    before = (
        "# Ours.\nversion = 2\n"
        f"[{_CRI}]  # CRI\n  default_runtime_name = 'kata.qemu' # the default\n"
        f'[{_CRI}.untrusted_workload_runtime]\n  runtime_type = "io.containerd.runsc.v1"\n'
        f"  [{_CRI}.runtimes.'kata.qemu']   # in a VM\n"
        '    runtime_type = "io.containerd.kata.v2"\n'
        f'    [ {_CRI} . runtimes . "kata.qemu" . options ]\n      ConfigPath = "/k.toml"\n'
        "[other]\ndefault_runtime_name = 'kata.qemu'\n"
    )
    plan = _plan("config.toml", before)
    assert plan.changed["config.toml"] == (
        "# Ours.\nversion = 2\n"
        f"[{_CRI}]  # CRI\n  default_runtime_name = 'kata-qemu' # the default\n"
        f'[{_CRI}.runtimes.untrusted]\n  runtime_type = "io.containerd.runsc.v1"\n'
        f'  [{_CRI}.runtimes.kata-qemu]   # in a VM\n    runtime_type = "io.containerd.kata.v2"\n'
        f'    [ {_CRI} . runtimes . kata-qemu . options ]\n      ConfigPath = "/k.toml"\n'
        "[other]\ndefault_runtime_name = 'kata.qemu'\n"
    )
    assert _handlers(plan)["kata-qemu"]["default"] is True
    assert _classes(plan) == {
        "kata-qemu": ("kata-qemu", "virtual-machine"),
        "untrusted": ("untrusted", "user-space-kernel"),
    }
    again = make_plan([Source("config.toml", plan.changed["config.toml"])], plan.outputs, Options())
    assert not again.changed
    assert not again.outputs


@pytest.mark.parametrize(
    "text",
    [
        f"[{_CRI}]\nruntimes = {{\"a.b\" = {{runtime_type = \"io.containerd.kata.v2\"}}}}\n",
        f"[{_CRI}]\nruntimes.\"a.b\".runtime_type = \"io.containerd.kata.v2\"\n",
        f"x = '''\n[{_CRI}.runtimes.\"a.b\"]\n'''\n"
        f"[{_CRI}.runtimes.'a.b']\nruntime_type = \"io.containerd.kata.v2\"\n",
    ],
)  # fmt: skip
def test_an_unusual_form_of_toml_is_refused_and_not_guessed(text: str) -> None:
    plan = _plan("config.toml", text)
    assert not plan.changed
    assert plan.is_refused
    assert "cannot be edited in place" in str(plan.findings[-1])


def test_settings_without_counterpart_are_named() -> None:
    plan = _plan(
        "config.toml",
        f'[{_CRI}.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'
        'base_runtime_spec = "/etc/spec.json"\nsandboxer = "podsandbox"\n'
        "options.SystemdCgroup = true\n",
    )
    assert [str(finding) for finding in plan.findings] == [
        "config.toml: note: handler runc: a handler file has no counterpart for base_runtime_spec, "
        "options.SystemdCgroup"
    ]


def test_handlers_of_cri_o() -> None:
    text = (
        "[crio.runtime]\ndefault_runtime = \"kata.vm\" # VM\n"
        "runtime_untrusted_workload = \"/usr/bin/runsc\"\n"
        "[crio.runtime.runtimes.\"kata.vm\"]\nruntime_type = \"vm\"\n"
        "runtime_path = \"/usr/bin/containerd-shim-kata-v2\"\nruntime_config_path = \"/k.toml\"\n"
        "privileged_without_host_devices = true\nallowed_annotations = [\"x\"]\n"
        "[crio.runtime.runtimes.crun]\nruntime_path = \"/usr/bin/crun\"\n"
        "runtime_root = \"/run/crun\"\n"
        "monitor_path = \"/usr/bin/conmon\"\n"
    )  # fmt: skip
    plan = _plan("crio.conf", text)
    assert _handlers(plan) == {
        "kata-vm": {
            "adapter": "shim",
            "binary": "/usr/bin/containerd-shim-kata-v2",
            "privileged_without_host_devices": True,
            "default": True,
            "options": {"runtime_type": "io.containerd.kata.v2", "config_path": "/k.toml"},
        },
        "crun": {"adapter": "oci", "binary": "/usr/bin/crun", "options": {"root": "/run/crun"}},
        "untrusted": {"adapter": "runsc", "binary": "/usr/bin/runsc"},
    }
    assert plan.changed["crio.conf"] == text.replace("kata.vm", "kata-vm").replace(
        '"kata-vm"]', "kata-vm]"
    )
    assert "no counterpart for allowed_annotations" in str(plan.findings[0])


def test_handlers_of_docker() -> None:
    configuration = {
        "default-runtime": "runsc",
        "runtimes": {
            "runsc": {"path": "/usr/bin/runsc", "runtimeArgs": ["--platform=kvm"]},
            "nvidia": {"path": "nvidia-container-runtime"},
            "io.containerd.kata.v2": {
                "runtimeType": "io.containerd.kata.v2",
                "options": {"ConfigPath": "/k.toml"},
            },
        },
    }
    plan = _plan("daemon.json", json.dumps(configuration))
    assert not plan.changed
    assert _handlers(plan) == {
        "runsc": {
            "adapter": "runsc",
            "binary": "/usr/bin/runsc",
            "default": True,
            "options": {"global_arguments": ["--platform=kvm"]},
        },
        "nvidia": {"adapter": "oci", "binary": "nvidia-container-runtime"},
        "kata": {
            "adapter": "shim",
            "binary": "containerd-shim-kata-v2",
            "options": {"runtime_type": "io.containerd.kata.v2", "config_path": "/k.toml"},
        },
    }


def test_handlers_of_podman() -> None:
    plan = _plan(
        "containers.conf",
        '[engine]\nruntime = "krun"\n[engine.runtimes]\n'
        'krun = ["/usr/bin/krun", "/usr/local/bin/krun"]\nyouki = ["/usr/bin/youki"]\nnone = []\n',
    )
    assert _handlers(plan) == {
        "krun": {"adapter": "oci", "binary": "krun", "default": True},
        "youki": {"adapter": "oci", "binary": "/usr/bin/youki"},
    }
    assert _classes(plan)["krun"] == ("krun", "virtual-machine")


def test_a_service_of_compose_becomes_a_patch_or_an_edit() -> None:
    compose = Source("compose.yaml", "services:\n  web: {runtime: kata.vm}\n  db: {image: x}\n")
    plan = make_plan([compose], {}, Options())
    assert parse_documents(plan.outputs["patches.yaml"]) == [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {"template": {"spec": {"runtimeClassName": "kata-vm"}}},
        }
    ]
    converted = Source(
        "web.yaml",
        "apiVersion: apps/v1\nkind: Deployment\n"
        "metadata:\n  name: web\n  labels: {io.kompose.service: web}\n"
        "spec:\n  template:\n    spec:\n      containers: []\n",
    )
    both = make_plan([compose, converted], {}, Options())
    assert "patches.yaml" not in both.outputs
    assert "    spec:\n      runtimeClassName: kata-vm\n" in both.changed["web.yaml"]


def test_a_class_that_exists_for_the_handler_is_used() -> None:
    sources = [
        Source("compose.yaml", "services:\n  web: {runtime: runsc}\n"),
        Source(
            "class.yaml",
            "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: sandboxed}\n"
            "handler: runsc\n",
        ),
    ]
    plan = make_plan(sources, {}, Options())
    assert "runtimeClassName: sandboxed" in plan.outputs["patches.yaml"]
    assert "runtimeclasses.yaml" not in plan.outputs


def test_a_handler_file_of_the_users_stays() -> None:
    own = 'adapter = "oci"\nbinary = "/opt/crun"\n'
    text = '[engine.runtimes]\ncrun = ["/usr/bin/crun"]\n'
    plan = make_plan([Source("containers.conf", text)], {"handlers.d/crun.toml": own}, Options())
    assert "handlers.d/crun.toml" not in plan.outputs
    assert "handlers.d/crun.toml is there and stays" in str(plan.findings[0])


_ANY = st.recursive(
    st.one_of(st.booleans(), st.integers(0, 3), st.sampled_from(["", "/a", "a.b", "é\x7f\"'\\"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(
            st.sampled_from(
                [
                    "path",
                    "runtimeArgs",
                    "runtimeType",
                    "options",
                    "ConfigPath",
                    "Root",
                    "BinaryName",
                ]
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["runsc", "kata.x", "A_b", "..", "k" * 64]), _ANY, max_size=3)
)
def test_every_handler_file_is_one_that_our_reader_accepts(runtimes: dict[str, Any]) -> None:
    plan = _plan("daemon.json", json.dumps({"runtimes": runtimes, "default-runtime": "runsc"}))
    _handlers(plan)


def test_lists_in_a_table_are_no_headers_of_another() -> None:
    text = (
        '[crio.runtime]\ndefault_ulimits = [\n]\nhooks_dir = ["/etc/hooks"]  # [x]\n'
        'default_runtime = "a.b"\n[crio.runtime.runtimes."a.b"]\nruntime_path = "/usr/bin/crun"\n'
    )
    plan = _plan("crio.conf", text)
    assert [finding.text for finding in plan.findings] == [
        "not read, since they are about all pods of the engine: hooks_dir"
    ]
    assert plan.changed == {"crio.conf": text.replace('"a.b"', '"a-b"', 1).replace('"a.b"', "a-b")}


@pytest.mark.parametrize("padding", [" ", "[ ", "[ ] ", "\t", "]", "#"])
def test_a_table_is_renamed_in_linear_time_beside_any_long_line(padding: str) -> None:
    text = '[crio.runtime.runtimes."a.b"]\nruntime_path = "/usr/bin/crun"\n'
    line = f"# {padding * (120_000 // len(padding))}\n"
    plan = _plan("crio.conf", text + line)
    assert plan.changed == {"crio.conf": text.replace('"a.b"', "a-b") + line}


def test_a_configuration_with_thousands_of_runtimes_is_refused() -> None:
    runtimes = {f"r{number}": {"path": "/usr/bin/r"} for number in range(1001)}
    plan = _plan("daemon.json", json.dumps({"runtimes": runtimes}))
    assert not plan.outputs
    assert [finding.text for finding in plan.findings] == ["it has more than 1000 runtimes"]
