"""Layers of configurations: imports, drop-ins, overrides, includes, in their own order."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from moorage.api.yaml_values import parse_documents
from moorage.migrate.files import FileMigration, plan_files
from moorage.migrate.rules import Options

_INPUTS = Path(__file__).parent / "layers"


def _plan(*paths: Path, out: Path) -> FileMigration:
    return plan_files(paths, out / "out", Options())


def _handlers(migration: FileMigration) -> dict[str, str]:
    """The program of each handler, with a star for the default one."""
    handlers = {}
    for name, text in migration.plan.outputs.items():
        if name.startswith("handlers.d/"):
            file = tomllib.loads(text)
            star = "*" if file.get("default") else ""
            handlers[name[11:-5]] = star + file["binary"].rpartition("/")[2]
    return handlers


def _services(migration: FileMigration) -> dict[str, str]:
    patches = parse_documents(migration.plan.outputs.get("patches.yaml", ""))
    return {
        patch["metadata"]["name"]: patch["spec"]["template"]["spec"]["runtimeClassName"]
        for patch in patches
    }


def _sentences(migration: FileMigration) -> str:
    return "\n".join(str(finding) for finding in migration.findings)


@pytest.mark.parametrize(
    ("name", "handlers", "unread"),
    [
        (
            "confd",
            {
                "nvidia": "*nvidia-container-runtime",
                "nvidia-cdi": "nvidia-container-runtime.cdi",
            },
            "its import /opt/gone/kata.toml is not read",
        ),
        (
            "onlyimp/config.toml",
            {
                "runc": "runc",
                "nvidia": "*nvidia-container-runtime",
                "nvidia-cdi": "nvidia-container-runtime.cdi",
            },
            "its import /opt/gone/kata.toml is not read",
        ),
        ("splitc", {"runc": "runc", "nvidia": "*nvidia-container-runtime"}, ""),
        ("split", {"crun": "*crun", "runc": "runc"}, ""),
        ("dup/crio.conf", {"runc": "runc"}, ""),
        (
            "crio",
            {
                "runc": "runc",
                "crun": "*crun",
                "high-performance": "crun",
                "kata-remote": "containerd-shim-kata-v2",
                "nopath": "nopath",
            },
            "no counterpart for runtime_pull_image",
        ),
        ("pod", {"crun": "crun", "runsc": "*runsc"}, ""),
        (
            "v2inv3.toml",
            {},
            'plugins."io.containerd.grpc.v1.cri".containerd is not read: containerd ignores it',
        ),
        ("v3mixed.toml", {"gvisor": "runsc"}, ""),
        (
            "v4.toml",
            {"runc": "*runc", "kata-erofs": "containerd-shim-kata-v2"},
            "its import /etc/containerd/conf.d/*.toml is not read",
        ),
        (
            "config-v3.toml.tmpl",
            {"gvisor": "runsc"},
            'line 1: {{ template "base" . }} is not read',
        ),
        (
            "crio/crio.conf.d/99-high-performance.conf",
            {"kata-remote": "containerd-shim-kata-v2", "nopath": "nopath"},
            "handler high-performance: it inherits the default runtime, which no file",
        ),
    ],
)
def test_an_engines_files_are_one_configuration(
    tmp_path: Path, name: str, handlers: dict[str, str], unread: str
) -> None:
    migration = _plan(_INPUTS / name, out=tmp_path)
    assert _handlers(migration) == handlers
    assert unread in _sentences(migration)
    assert not migration.plan.changed


def test_the_configuration_of_docker_gives_each_runtime_its_handler(tmp_path: Path) -> None:
    migration = _plan(_INPUTS / "daemon.json", out=tmp_path)
    assert _handlers(migration) == {
        "nvidia": "*nvidia-container-runtime",
        "runsc": "runsc",
        "kata": "containerd-shim-kata-v2",
        "runsc-kvm": "containerd-shim-runsc-v1",
        "crun": "crun",
        "youki": "youki",
        "wasmtime": "containerd-shim-wasmtime-v1",
        "my-runtime": "x",
    }
    outputs = migration.plan.outputs
    runsc = tomllib.loads(outputs["handlers.d/runsc.toml"])
    assert runsc["options"]["global_arguments"] == [
        "--platform=systrap", "--network=host", "--debug-log=/tmp/runsc/",
    ]  # fmt: skip
    kata = tomllib.loads(outputs["handlers.d/kata.toml"])
    assert kata["options"]["config_path"].endswith("/configuration-clh.toml")
    # A class's name has no capitals and no underscores; later runs know the new name.
    assert tomllib.loads(outputs["renames.toml"]) == {"My_Runtime": "my-runtime"}
    assert "not read, since they are about all pods of the engine: exec-opts" in _sentences(
        migration
    )
    assert not migration.is_refused


def test_a_drop_in_replaces_a_handler_as_a_whole(tmp_path: Path) -> None:
    plan = _plan(_INPUTS / "dup", out=tmp_path).plan
    assert plan.outputs["handlers.d/runc.toml"] == (
        '# From crio.conf, 10.conf.\nadapter = "oci"\nbinary = "/new/runc"\n'
    )


@pytest.mark.parametrize(
    ("name", "services", "sentence"),
    [
        ("cdir", {"a": "runc", "b": "runsc", "c": "runsc", "d": "runsc"}, ""),
        ("cdir/compose.yaml", {"a": "runc", "b": "runsc", "c": "runsc", "d": "runsc"}, ""),
        (
            "cfiles/compose.yaml",
            {
                "agent": "runsc",
                "iso": "kata",
                "other": "runsc-kvm",
                "plain": "runc",
                "sys": "sysbox-runc",
            },
            "service gpu2: its devices of nvidia choose no class",
        ),
    ],
)
def test_a_compose_project_is_read_with_its_parts(
    tmp_path: Path, name: str, services: dict[str, str], sentence: str
) -> None:
    migration = _plan(_INPUTS / name, out=tmp_path)
    assert _services(migration) == services
    assert sentence in _sentences(migration)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("include: [gone.yaml]\nservices: {a: {runtime: runsc}}\n", "its include gone.yaml"),
        ("include: [compose.yaml]\nservices: {a: {runtime: runsc}}\n", "leads back to it"),
        (
            "services: {b: {extends: {service: c, file: gone.yaml}}, a: {runtime: runsc}}\n",
            "service b: the file gone.yaml that it extends is not read",
        ),
        ("services: {b: {extends: z}, a: {runtime: runsc}}\n", "extends z, which is absent"),
        ("services: {b: {extends: b}, a: {runtime: runsc}}\n", "service b: it extends itself"),
        (
            "include: [https://x.invalid/c.git]\nservices: {a: {runtime: runsc}}\n",
            "its include https://x.invalid/c.git is not read",
        ),
    ],
)
def test_what_a_compose_file_needs_and_is_not_there_is_named(
    tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "compose.yaml").write_text(text)
    migration = _plan(tmp_path / "compose.yaml", out=tmp_path)
    assert sentence in _sentences(migration)
    assert migration.is_refused
    assert _services(migration) == {"a": "runsc"}


def test_files_that_include_one_another_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("include: [y.yaml]\nservices: {a: {runtime: runsc}}\n")
    (tmp_path / "y.yaml").write_text("include: [x.yaml]\nservices: {b: {runtime: crun}}\n")
    migration = _plan(tmp_path, out=tmp_path)
    assert _services(migration) == {"a": "runsc", "b": "crun"}
    assert "leads back to it" in _sentences(migration)


def test_two_projects_with_one_service_and_two_runtimes_are_refused(tmp_path: Path) -> None:
    for name, runtime in (("x", "runsc"), ("y", "crun")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "compose.yaml").write_text(f"services: {{a: {{runtime: {runtime}}}}}\n")
    migration = _plan(tmp_path, out=tmp_path)
    assert migration.is_refused
    assert "service a: its runtime is 'crun', and 'runsc' in" in _sentences(migration)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "config.toml",
            'version = 3\n[plugins."io.containerd.cri.v1.runtime".containerd]\n'
            'default_runtime_name = "kata"\n',
        ),
        ("crio.conf", '[crio.runtime]\ndefault_runtime = "kata"\n'),
        ("daemon.json", '{"default-runtime": "kata"}'),
        ("containers.conf", '[engine]\nruntime = "mine"\n'),
    ],
)
def test_a_default_without_its_handler_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    migration = _plan(tmp_path / name, out=tmp_path)
    assert migration.is_refused
    assert "has no table in the files that were read" in _sentences(migration)
    assert not migration.plan.outputs


_CRI = 'plugins."io.containerd.grpc.v1.cri".containerd'


def _split_by_version_2(directory: Path) -> Path:
    main, part = directory / "config.toml", directory / "conf.d" / "a.toml"
    part.parent.mkdir()
    main.write_text(
        f'version = 2\nimports = ["{directory}/conf.d/*.toml"]\n'
        f'[{_CRI}]\ndefault_runtime_name = "kata"\n'
        f'[{_CRI}.runtimes.kata]\nruntime_type = "io.containerd.kata.v2"\n'
    )
    part.write_text(
        f'version = 2\n[{_CRI}.runtimes.nvidia]\nruntime_type = "io.containerd.runc.v2"\n'
    )
    return main


def test_a_default_that_depends_on_the_release_of_containerd_is_refused(tmp_path: Path) -> None:
    migration = _plan(_split_by_version_2(tmp_path), out=tmp_path)
    assert "'kata' for containerd 2, which merges imports, and 'runc'" in _sentences(migration)
    assert _handlers(migration) == {"kata": "containerd-shim-kata-v2", "nvidia": "runc"}


@pytest.mark.skipif(shutil.which("containerd") is None, reason="needs containerd")
def test_containerd_1_replaces_the_table_as_we_say(tmp_path: Path) -> None:
    version = subprocess.run(
        ["containerd", "--version"], capture_output=True, text=True, check=True
    )
    if " 1." not in version.stdout:
        pytest.skip("containerd 1 replaces, containerd 2 merges")
    main = _split_by_version_2(tmp_path)
    dump = subprocess.run(
        ["containerd", "-c", main, "config", "dump"], capture_output=True, text=True, check=True
    )
    settings = tomllib.loads(dump.stdout)["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]
    assert settings["default_runtime_name"] == "runc"
    assert list(settings["runtimes"]) == ["nvidia"]


def test_imports_are_followed_in_turn_and_a_later_one_wins(tmp_path: Path) -> None:
    table = 'plugins."io.containerd.cri.v1.runtime".containerd'

    def write(name: str, binary: str, *imports: str) -> None:
        (tmp_path / name).write_text(
            f"version = 3\nimports = {list(imports)}\n"
            f'[{table}.runtimes.h]\nruntime_type = "io.containerd.runc.v2"\n'
            f'[{table}.runtimes.h.options]\nBinaryName = "{binary}"\n'
        )

    write("config.toml", "/main", "b.toml", "a.toml")
    # Breadth first: c.toml, which b.toml imports, comes after a.toml.
    write("b.toml", "/b", "c.toml")
    write("a.toml", "/a")
    write("c.toml", "/c", "b.toml")
    assert _handlers(_plan(tmp_path / "config.toml", out=tmp_path)) == {"h": "c"}
    assert _handlers(_plan(tmp_path, out=tmp_path)) == {"h": "c"}


def test_a_handler_is_renamed_in_every_layer(tmp_path: Path) -> None:
    (tmp_path / "crio.conf.d").mkdir()
    (tmp_path / "crio.conf").write_text('[crio.runtime]\ndefault_runtime = "kata.vm"\n')
    part = tmp_path / "crio.conf.d" / "10.conf"
    part.write_text('[crio.runtime.runtimes."kata.vm"]\nruntime_path = "/usr/bin/crun"\n')
    migration = _plan(tmp_path / "crio.conf", out=tmp_path)
    assert migration.plan.changed == {
        str(tmp_path / "crio.conf"): '[crio.runtime]\ndefault_runtime = "kata-vm"\n',
        str(part): '[crio.runtime.runtimes.kata-vm]\nruntime_path = "/usr/bin/crun"\n',
    }


def test_what_lies_outside_of_the_named_files_is_not_read(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "out.toml").write_text(
        'version = 3\n[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.h]\n'
        'runtime_type = "io.containerd.runc.v2"\n'
    )
    (inside / "link.toml").symlink_to(tmp_path / "out.toml")
    main = inside / "config.toml"
    main.write_text('version = 3\nimports = ["../out.toml", "link.toml"]\n')
    migration = _plan(main, out=tmp_path)
    assert _handlers(migration) == {}
    assert "its import ../out.toml is not read" in _sentences(migration)
    assert "it is a link to" in _sentences(migration)
    assert _handlers(_plan(main, tmp_path / "out.toml", out=tmp_path)) == {"h": "runc"}


def test_relative_names_meet_absolute_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _split_by_version_2(tmp_path)
    monkeypatch.chdir(tmp_path)
    migration = _plan(Path("config.toml"), out=tmp_path)
    assert sorted(_handlers(migration)) == ["kata", "nvidia"]
    assert "is not read" not in _sentences(migration)


def test_the_static_part_of_a_template_is_read(tmp_path: Path) -> None:
    table = 'plugins."io.containerd.cri.v1.runtime".containerd'
    file = tmp_path / "config-v3.toml.tmpl"
    file.write_text(
        "version = 3\n"
        f'[{table}]\ndefault_runtime_name = "{{{{ .Default }}}}"\n'
        f'[{table}.runtimes.a]\nruntime_type = "io.containerd.runc.v2"\n'
        "{{- if .NodeConfig.X }}\n"
        f'[{table}.runtimes.b]\nruntime_type = "io.containerd.runc.v2"\n'
        "{{- range .Y }}{{ end }}\n{{- end }}\n"
        f'[{table}.runtimes."{{{{ .C }}}}"]\nruntime_type = "io.containerd.runc.v2"\n'
        f'[{table}.runtimes.d]\nruntime_type = "io.containerd.runc.v2"\n'
    )
    migration = _plan(file, out=tmp_path)
    assert _handlers(migration) == {"a": "runc", "d": "runc"}
    for part in (
        "line 3: {{ .Default }}",
        "lines 6 to 10: {{- if .NodeConfig.X }}",
        "lines 11 to 12: {{ .C }}",
    ):
        assert f"{part} is not read" in _sentences(migration)


def test_policies_that_are_not_read_are_named(tmp_path: Path) -> None:
    migration = _plan(_INPUTS / "kyv.yaml", out=tmp_path)
    policies = {
        item["metadata"]["name"]: item["spec"]
        for item in parse_documents(migration.plan.outputs["policies.yaml"])
    }
    assert sorted(policies) == ["in-ns", "json-patch-plain"]
    assert policies["in-ns"] == {
        "defaultClassName": "kata-qemu",
        "allowedClasses": ["kata-qemu", "gvisor"],
    }
    for sentence in (
        "(ClusterPolicy/json-patch): refused: rule 'add': its namespaces have wildcards",
        "(MutatingPolicy/cel-mutate): refused: a MutatingPolicy is written in CEL",
        "(MutatingAdmissionPolicy/map): skipped: its CEL is not read",
        "(ClusterPolicy/validate-any): refused: rule 'only': it is not about pods",
    ):
        assert sentence in _sentences(migration)
