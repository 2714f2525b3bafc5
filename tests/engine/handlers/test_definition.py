"""Handler files: what they may say, and what is said of the others."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.engine.handlers import (
    AdapterKind,
    DefinitionError,
    HandlerDefinition,
    OciOptions,
    RunscOptions,
    ShimOptions,
    parse_definition,
)

PATH = Path("/etc/moorage/handlers.d/crun.toml")
LEAST = 'adapter = "oci"\nbinary = "crun"\n'


def test_the_least_file_has_sensible_values() -> None:
    definition = parse_definition(PATH, LEAST.encode())
    assert (definition.name, definition.adapter, definition.binary) == (
        "crun",
        AdapterKind.OCI,
        "crun",
    )
    assert definition.options == OciOptions()
    assert definition.default_seccomp == "builtin"
    assert definition.cgroup_driver is None
    assert definition.is_enabled
    assert not definition.is_default


def test_a_file_may_say_everything() -> None:
    text = """
    adapter = "shim"
    binary = "/opt/kata/bin/containerd-shim-kata-v2"
    cgroup_driver = "systemd"
    platform = "linux/arm64"
    annotations = ["io.katacontainers.*"]
    container_annotations = ["a/*"]
    default_seccomp = "/etc/seccomp.json"
    snapshotter = "overlayfs"
    privileged_without_host_devices = true
    enabled = false
    default = true
    overhead = { cpu = "250m", memory = "130Mi" }

    [options]
    runtime_type = "io.containerd.kata.v2"
    config_path = "/etc/kata-containers/configuration.toml"
    """
    definition = parse_definition(PATH.with_name("kata.toml"), text.encode())
    assert definition.options == ShimOptions(
        runtime_type="io.containerd.kata.v2", config_path="/etc/kata-containers/configuration.toml"
    )
    assert definition.overhead.memory == "130Mi"
    assert definition.is_default
    assert not definition.is_enabled


def test_the_adapter_decides_which_options_there_are() -> None:
    text = 'adapter = "runsc"\nbinary = "runsc"\n[options]\nplatform = "ptrace"\n'
    assert parse_definition(PATH, text.encode()).options == RunscOptions(platform="ptrace")


WRONG = {
    "no key at all": ("", 0, "the key `adapter` is missing", "add `adapter = …`"),
    "no binary": ('adapter = "oci"\n', 0, "the key `binary` is missing", "add `binary = …`"),
    "a key with a slip in it": (
        LEAST + 'cgroup-driver = "systemd"\n',
        3,
        "unknown key `cgroup-driver`",
        "use one of adapter, binary, options, cgroup_driver, platform, annotations, "
        "container_annotations, default_seccomp, snapshotter, privileged_without_host_devices, "
        "enabled, default, overhead",
    ),
    "an option of another adapter": (
        LEAST + '\n[options]\nroot = "/run/x"\nplatform = "kvm"\n',
        6,
        "unknown key `platform`",
        "use one of root, global_arguments, no_pivot_root, no_new_keyring",
    ),
    "a key of overhead": (
        LEAST + '[overhead]\ndisk = "1"\n',
        4,
        "unknown key `disk`",
        "use one of cpu, memory",
    ),
    "a wrong type": (
        LEAST + "enabled = 1\n",
        3,
        "`enabled`: Expected `bool`, got `int`",
        "correct its value",
    ),
    "a wrong element": (
        LEAST + "annotations = [1]\n",
        3,
        "`annotations`: Expected `str`, got `int`",
        "correct its value",
    ),
    "an unknown adapter": (
        'adapter = "docker"\nbinary = "x"\n',
        1,
        "`adapter`: Invalid enum value 'docker'",
        "correct its value",
    ),
    "a shim without its type": (
        'adapter = "shim"\nbinary = "x"\n',
        0,
        "the key `runtime_type` is missing in [options]",
        "add `runtime_type = …`",
    ),
    "an overhead that is no quantity": (
        LEAST + '[overhead]\nmemory = "much"\n',
        4,
        "`memory`: 'much' is not a quantity",
        "write one such as `250m` or `130Mi`",
    ),
    "no TOML": (
        LEAST + "binary\n",
        3,
        "it is not TOML: Expected '=' after a key in a key/value pair",
        "write `key = value` lines",
    ),
    "TOML that ends too soon": (
        LEAST + "annotations = [\n\n",
        5,
        "it is not TOML: Invalid value (at end of document)",
        "write `key = value` lines",
    ),
    "no text": (b"\n\xff", 2, "it is not UTF-8 text", "write it again"),
    "a relative profile": (
        LEAST + 'default_seccomp = "profile.json"\n',
        3,
        "`default_seccomp`: Expected `str` matching regex '^(/.*|builtin|unconfined)$'",
        "correct its value",
    ),
}


@pytest.mark.parametrize(("text", "line", "problem", "remedy"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_names_the_line_and_the_remedy(
    text: str | bytes, line: int, problem: str, remedy: str
) -> None:
    with pytest.raises(DefinitionError) as raised:
        parse_definition(PATH, text if isinstance(text, bytes) else text.encode())
    error = raised.value
    assert (error.line, error.problem, error.remedy) == (line, problem, remedy)
    assert str(error).startswith(f"{PATH}:{line}: " if line else f"{PATH}: ")


@pytest.mark.parametrize("name", ["Crun", "a.b", "-a", "a" * 64, "ü"])
def test_a_handlers_name_is_a_dns_label(name: str) -> None:
    with pytest.raises(DefinitionError, match="cannot be a handler's name"):
        parse_definition(Path(f"/x/{name}.toml"), LEAST.encode())


def test_values_nested_too_deeply() -> None:
    with pytest.raises(DefinitionError, match="nested too deeply"):
        parse_definition(PATH, b"a = " + b"[" * 5000)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_content_does_worse_than_an_error_of_ours(content: bytes) -> None:
    with contextlib.suppress(DefinitionError):
        parse_definition(PATH, content)


def test_the_file_in_the_documentation_is_one() -> None:
    page = (Path(__file__).parents[3] / "docs" / "handlers.md").read_text()
    text = page.split("```toml\n")[1].split("```")[0]
    definition = parse_definition(PATH, text.encode())
    assert definition.options == OciOptions(root="/run/crun")
    keys = set(re.findall(r"^#? ?(\w+) =", text, re.MULTILINE)) - {"root"}
    assert keys == {"default", "enabled"} | (
        set(HandlerDefinition.__struct_fields__)
        - {"name", "path", "options", "is_default", "is_enabled"}
    )


def test_every_value_reaches_the_definition_and_none_is_another_keys() -> None:
    plain = parse_definition(PATH, LEAST.encode())
    assert plain == HandlerDefinition(
        name="crun", path=PATH, adapter=AdapterKind.OCI, binary="crun", options=OciOptions()
    )
    fields = {name: getattr(plain, name) for name in HandlerDefinition.__struct_fields__}
    assert fields == {
        "name": "crun", "path": PATH, "adapter": AdapterKind.OCI, "binary": "crun",
        "options": OciOptions(), "cgroup_driver": None, "platform": None,
        "annotations": (), "container_annotations": (), "default_seccomp": "builtin",
        "snapshotter": None, "privileged_without_host_devices": False, "is_enabled": True,
        "is_default": False, "overhead": fields["overhead"],
    }  # fmt: skip
    values = {
        "cgroup_driver": '"systemd"', "platform": '"linux/arm64"', "annotations": '["a.*"]',
        "container_annotations": '["b.*"]', "default_seccomp": '"unconfined"',
        "snapshotter": '"x"', "privileged_without_host_devices": "true", "enabled": "false",
        "default": "true", "overhead": '{ cpu = "1", memory = "2Mi" }',
    }  # fmt: skip
    for key, value in values.items():
        definition = parse_definition(PATH, f"{LEAST}{key} = {value}\n".encode())
        changed = {
            name
            for name in HandlerDefinition.__struct_fields__
            if getattr(definition, name) != getattr(plain, name)
        }
        assert changed == {{"enabled": "is_enabled", "default": "is_default"}.get(key, key)}


@pytest.mark.parametrize(
    ("adapter", "options"),
    [
        ("oci", {"root": None, "global_arguments": (), "no_pivot_root": False,
                 "no_new_keyring": False}),
        ("shim", {"config_path": None, "options_type_url": None, "runtime_binary": None,
                  "root": None, "no_pivot_root": False, "no_new_keyring": False,
                  "needs_sandbox": True, "start_timeout_s": None,
                  "runtime_type": "io.containerd.x.v1"}),
    ],
)  # fmt: skip
def test_options_that_are_left_out(adapter: str, options: dict[str, object]) -> None:
    more = '[options]\nruntime_type = "io.containerd.x.v1"\n' if adapter == "shim" else ""
    text = f'adapter = "{adapter}"\nbinary = "x"\n{more}'
    parsed = parse_definition(PATH, text.encode()).options
    shown = {name: getattr(parsed, name) for name in parsed.__struct_fields__}
    assert shown == options


@pytest.mark.parametrize(
    ("type_", "binary", "runtime"),
    [
        ("io.containerd.runc.v2", None, "runc"),
        ("io.containerd.runc.v2", "crun", "crun"),
        ("io.containerd.kata.v2", None, None),
        ("io.containerd.kata.v2", "crun", None),
    ],
)
def test_only_runcs_shim_has_a_runtime_behind_it(
    type_: str, binary: str | None, runtime: str | None
) -> None:
    assert ShimOptions(runtime_type=type_, runtime_binary=binary).runtime == runtime


@pytest.mark.parametrize(
    ("fields", "start_s", "stop_s"),
    [
        ({"runtime_type": "io.containerd.runc.v2"}, 30, 5),
        ({"runtime_type": "io.containerd.kata.v2"}, 150, 30),
        ({"runtime_type": "io.containerd.kata.v2", "start_timeout_s": 400}, 400, 30),
        ({"runtime_type": "io.containerd.wasmtime.v1", "needs_sandbox": False}, 30, 5),
    ],
)
def test_deadlines_are_those_of_the_kind_of_runtime(
    fields: dict[str, Any], start_s: float, stop_s: float
) -> None:
    options = ShimOptions(**fields)
    assert (options.start_deadline_s, options.stop_deadline_s) == (start_s, stop_s)
