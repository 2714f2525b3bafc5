"""Handlers are written into containerd's files in place, and taken out without a trace."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.engine.handlers import HandlerDefinition, parse_definition
from moorage.migrate.rules.containerd import containerd_handlers, containerd_settings
from moorage.runtimes.installing import RuntimeInstallationError
from moorage.runtimes.installing.engines import ContainerdConfiguration, EngineFile, applied
from tests.peers import peer

MAIN = Path("/etc/containerd/config.toml")
DROP_INS = Path("/etc/containerd/moorage.d")
CRI_2 = "io.containerd.grpc.v1.cri"
CRI_3 = "io.containerd.cri.v1.runtime"

DEBIAN = b"""version = 2

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"
      conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.internal.v1.opt"]
    path = "/var/lib/containerd/opt"
"""
CONFIGURED = b"""# Ours, by hand.
version = 2
imports = []   # none
[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "a"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.a]
runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.a.options]
  SystemdCgroup = true
  BinaryName = "runc" """
LATEST = b"""version = 3
# What follows is the site's.
[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = "runc"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""


def _configuration(version: str, **files: bytes) -> ContainerdConfiguration:
    paths = {"main": MAIN, "other": MAIN.parent / "conf.d" / "50-other.toml"}
    return ContainerdConfiguration(
        main=MAIN,
        files=tuple(EngineFile(paths[name], content) for name, content in files.items()),
        version=version,
    )


def _definition(name: str = "crun", **options: Any) -> HandlerDefinition:
    text = 'adapter = "oci"\nbinary = "/opt/crun"\n[options]\n' + "".join(
        f"{key} = {json.dumps(value)}\n" for key, value in options.items()
    )
    return parse_definition(Path(f"{name}.toml"), text.encode())


def _shim(name: str = "kata") -> HandlerDefinition:
    return parse_definition(
        Path(f"{name}.toml"),
        b'adapter = "shim"\nbinary = "/opt/containerd-shim-kata-v2"\n[options]\n'
        b'runtime_type = "io.containerd.kata.v2"\nconfig_path = "/opt/kata.toml"\n',
    )


def _after(
    configuration: ContainerdConfiguration, *steps: HandlerDefinition | str
) -> ContainerdConfiguration:
    """The configuration after handlers were added, or removed by name."""
    for step in steps:
        changes = (
            configuration.without_handler(step)
            if isinstance(step, str)
            else configuration.with_handler(step, step.binary)
        )
        for change in changes:
            present = {file.path: file.content for file in configuration.files}
            assert present.get(change.path) == change.before
        files = applied(configuration.files, changes)
        configuration = ContainerdConfiguration(
            main=configuration.main, files=files, version=configuration.version
        )
    return configuration


def _contents(configuration: ContainerdConfiguration) -> dict[Path, bytes]:
    return {file.path: file.content for file in configuration.files}


@pytest.mark.parametrize(
    ("version", "files"),
    [
        ("1.6.20~ds1", {}),
        ("1.6.20~ds1", {"main": DEBIAN}),
        ("1.7.35", {"main": CONFIGURED}),
        ("v1.7.35", {"main": b"version = 2\n"}),
        ("1.6.20", {"main": DEBIAN, "other": CONFIGURED}),
        ("2.4.2", {}),
        ("v2.4.2", {"main": LATEST}),
        ("2.0.14", {"main": b"version = 3\n"}),
        ("2.4.2", {"main": CONFIGURED}),
        ("2.4.2", {"main": LATEST, "other": b"version = 4\n"}),
    ],
)
@pytest.mark.parametrize("steps", [("crun",), ("crun", "kata"), ("kata", "crun")])
def test_what_is_added_and_removed_leaves_the_files_byte_for_byte(
    version: str, files: dict[str, bytes], steps: tuple[str, ...]
) -> None:
    before = _configuration(version, **files)
    definitions = {"crun": _definition(no_pivot_root=True), "kata": _shim()}
    added = _after(before, definitions["crun"], definitions["kata"])
    assert added.written() == {"crun", "kata"}
    assert {**before.handlers(), **added.handlers()} == added.handlers()
    assert added.handlers()["crun"]["options"]["BinaryName"] == "/opt/crun"
    removed = _after(added, *reversed(steps))
    assert removed.written() == {"crun", "kata"} - set(steps)
    assert _contents(_after(removed, *removed.written())) == _contents(before)


def test_an_old_containerd_gets_a_block_in_the_file_that_is_in_force() -> None:
    added = _after(_configuration("1.6.20", main=DEBIAN), _definition())
    text = _contents(added)[MAIN].decode()
    assert text == DEBIAN.decode() + (
        "\n# moor runtime: begin built-in runc\n"
        '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]\n'
        'runtime_type = "io.containerd.runc.v2"\n'
        "# moor runtime: end built-in runc\n"
        "\n# moor runtime: begin crun\n"
        '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun]\n'
        'runtime_type = "io.containerd.runc.v2"\n'
        '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun.options]\n'
        'BinaryName = "/opt/crun"\n'
        "# moor runtime: end crun\n"
    )
    other = _after(_configuration("1.7.1", main=DEBIAN, other=CONFIGURED), _definition())
    assert _contents(other)[MAIN] == DEBIAN
    assert set(other.handlers()) == {"a", "crun"}


def test_a_new_containerd_gets_a_file_that_the_main_one_imports() -> None:
    added = _after(_configuration("2.4.2", main=LATEST), _definition())
    assert _contents(added)[MAIN] == (
        b'imports = ["/etc/containerd/moorage.d/*.toml"]'
        b"  # added by `moor runtime`, which removes it with its last handler\n" + LATEST
    )
    assert tomllib.loads(_contents(added)[DROP_INS / "moorage-crun.toml"].decode()) == {
        "version": 3,
        "plugins": {
            CRI_3: {
                "containerd": {
                    "runtimes": {
                        "crun": {
                            "runtime_type": "io.containerd.runc.v2",
                            "options": {"BinaryName": "/opt/crun"},
                        }
                    }
                }
            }
        },
    }


@pytest.mark.parametrize(
    ("imports", "after"),
    [
        ("[]", '["P"]'),
        ("[ ]", '["P" ]'),
        ('["/a"]', '["P", "/a"]'),
        ("[ # none\n]", '["P",  # none\n]'),
        ('[\n  "/a",\n]', '["P", \n  "/a",\n]'),
    ],
)
def test_a_list_of_imports_gets_one_element_more(imports: str, after: str) -> None:
    main = f"version = 3\nimports = {imports}\n[grpc]\n"
    added = _after(_configuration("2.1.0", main=main.encode()), _definition())
    pattern = str(DROP_INS / "*.toml")
    assert _contents(added)[MAIN].decode() == main.replace(imports, after).replace("P", pattern)
    assert _contents(_after(added, "crun")) == {MAIN: main.encode()}


def test_the_cgroup_driver_of_the_other_handlers_is_kept() -> None:
    added = _after(_configuration("1.6.20", main=CONFIGURED), _definition(), _shim())
    assert added.handlers()["crun"]["options"]["SystemdCgroup"] is True
    assert "SystemdCgroup" not in added.handlers()["kata"]["options"]


def test_an_upgrade_replaces_the_handler_alone() -> None:
    first = _after(_configuration("1.6.20", main=DEBIAN), _definition(), _shim())
    second = _after(first, _definition(no_new_keyring=True))
    assert second.handlers()["crun"]["options"]["NoNewKeyring"] is True
    assert second.handlers()["kata"] == first.handlers()["kata"]
    assert _contents(_after(second, "crun", "kata")) == {MAIN: DEBIAN}


@pytest.mark.parametrize(
    ("version", "files", "problem"),
    [
        ("3.0.0", {"main": LATEST}, "is not known here"),
        ("1.6.20", {"main": b"[plugins.cri]\n"}, "its format is version 1"),
        ("2.4.2", {"main": b"[plugins.cri]\n"}, "its format is version 1"),
        ("1.6.20", {"main": b"version = 3\n"}, "its format is version 3"),
        ("1.6.20", {"main": b"version = 2\n[plug"}, "it is not TOML"),
        ("1.6.20", {"main": b"version = 2 # \xff\n"}, "it is not UTF-8"),
        ("1.6.20", {"main": b""}, "write `version = 2` at its start"),
        ("2.4.2", {"main": b"version = 3\nimports = 3\n"}, "its `imports` are not a list"),
        ("1.6.20", {"main": b'version = 2\nplugins = {"%s" = {}}\n' % CRI_2.encode()}, "by hand"),
        (
            "1.6.20",
            {"main": DEBIAN + f"[plugins.'{CRI_2}'.containerd.runtimes.crun]\n".encode()},
            "`moor runtime` did not write it",
        ),
    ],
)
def test_what_is_not_understood_is_refused(
    version: str, files: dict[str, bytes], problem: str
) -> None:
    with pytest.raises(RuntimeInstallationError, match=problem):
        _after(_configuration(version, **files), _definition())


@pytest.mark.parametrize("version", ["1.6.20", "2.4.2"])
def test_handlers_of_others_are_never_changed_or_removed(version: str) -> None:
    configuration = _configuration(version, main=CONFIGURED)
    for name in ("a", "unknown"):
        with pytest.raises(RuntimeInstallationError, match="that `moor runtime` wrote"):
            configuration.without_handler(name)
    for name in ("a", "runc") if version == "2.4.2" else ("a",):
        with pytest.raises(RuntimeInstallationError, match="did not write it"):
            configuration.with_handler(_definition(name), "/opt/crun")
    with pytest.raises(RuntimeInstallationError, match="did not write it"):
        _configuration("1.6.20", main=DEBIAN).with_handler(_definition("runc"), "/opt/crun")


def test_options_that_containerd_lacks_are_refused() -> None:
    configuration = _configuration("2.4.2", main=LATEST)
    with pytest.raises(RuntimeInstallationError, match="containerd has no global_arguments"):
        configuration.with_handler(_definition(global_arguments=["--debug"]), "/opt/crun")
    runsc = parse_definition(Path("g.toml"), b'adapter = "runsc"\nbinary = "/opt/runsc"\n')
    with pytest.raises(RuntimeInstallationError, match="containerd-shim-runsc-v1"):
        configuration.with_handler(runsc, "/opt/runsc")


def test_the_reader_of_migration_reads_what_is_written() -> None:
    added = _after(_configuration("1.6.20", main=DEBIAN), _definition(no_pivot_root=True), _shim())
    found = {
        handler.name: handler
        for handler in containerd_handlers(
            containerd_settings(tomllib.loads(_contents(added)[MAIN].decode()))
        )
    }
    assert found["crun"].binary == "/opt/crun"
    assert found["crun"].options == {"no_pivot_root": True}
    assert found["kata"].options["config_path"] == "/opt/kata.toml"
    assert not found["crun"].left_out
    assert not found["kata"].left_out


_names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
_lines = st.lists(
    st.sampled_from(
        [
            "", "# a comment", "  # moor runtime: begin", "root = '/var/lib/c'", "imports = []",
            'imports = ["/etc/other/*.toml"]', "imports = [\n  '/x',\n]", "oom_score = 3",
            'state = """\n[x]\n"""',
        ]
    ),
    max_size=5, unique_by=lambda line: line.split("=")[0],
)  # fmt: skip
_tables = st.lists(
    st.sampled_from(
        ["[grpc]\naddress = '/a'", "[debug]", f'[plugins."{CRI_2}"]\nsandbox_image = "p"',
         f'[plugins."{CRI_2}".containerd.runtimes.z]\nruntime_type = "io.containerd.runc.v2"']
    ),
    max_size=4, unique=True,
)  # fmt: skip


@given(
    _lines, _tables, st.sampled_from(["\n", "\n\n", "", "\n# end"]), st.booleans(),
    st.lists(_names, min_size=1, max_size=3, unique=True), st.randoms(),
)  # fmt: skip
def test_any_file_comes_back_whatever_the_order(
    lines: list[str], tables: list[str], end: str, is_new: bool, names: list[str], random: Any
) -> None:
    main = "\n".join(["version = 2", *lines, *tables]) + end
    before = _configuration("2.4.2" if is_new else "1.6.20", main=main.encode())
    definitions = [_definition(f"m-{name}") for name in names]
    added = _after(before, *definitions)
    assert set(added.handlers()) == {*before.handlers(), *(one.name for one in definitions)}
    order = [one.name for one in definitions]
    random.shuffle(order)
    assert _contents(_after(added, *order)) == {MAIN: main.encode()}


def _dumped(program: str, configuration: ContainerdConfiguration, root: Path) -> dict[str, Any]:
    """What the real engine makes of files, which are put below a directory."""
    for file in configuration.files:
        path = root / file.path.relative_to("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            file.content.replace(b"/etc/containerd", f"{root}/etc/containerd".encode())
        )
    done = subprocess.run(
        [program, "--config", str(root / MAIN.relative_to("/")), "config", "dump"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return tomllib.loads(done.stdout)


@pytest.mark.parametrize(
    ("program", "files"),
    [
        ("containerd", {"main": DEBIAN}),
        ("containerd", {"main": CONFIGURED}),
        ("containerd", {"main": b"version = 2\n"}),
        (
            "containerd",
            {
                "main": b'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n',
                "other": CONFIGURED,
            },
        ),
        ("containerd-2", {"main": LATEST}),
        ("containerd-2", {"main": b"version = 3\n"}),
        ("containerd-2", {"main": CONFIGURED}),
        ("containerd-2", {"main": DEBIAN}),
    ],
)
def test_the_real_engine_reads_the_handlers_that_are_foreseen(
    program: str, files: dict[str, bytes], tmp_path: Path
) -> None:
    path = shutil.which(program) if program == "containerd" else peer(program)
    if path is None:
        pytest.skip(f"{program} is not here: `make packages peers` brings it")
    version = subprocess.run(
        [path, "--version"], capture_output=True, text=True, check=True
    ).stdout.split()[2]
    before = _configuration(version, **files)
    after = _after(before, _definition())
    was = _dumped(str(path), before, tmp_path / "before")
    dumped = _dumped(str(path), after, tmp_path / "after")
    plugin = CRI_3 if after.merges else CRI_2

    def runtimes(document: dict[str, Any]) -> dict[str, Any]:
        return document["plugins"][plugin]["containerd"].pop("runtimes")  # type: ignore[no-any-return]

    old, new = runtimes(was), runtimes(dumped)
    assert set(old) == set(before.handlers())
    assert set(new) == set(after.handlers())
    added = new.pop("crun")
    assert added["runtime_type"] == "io.containerd.runc.v2"
    assert added["options"]["BinaryName"] == "/opt/crun"
    assert {name: table["runtime_type"] for name, table in new.items()} == {
        name: table["runtime_type"] for name, table in old.items()
    }
    # Everything else is as before.
    for document in (was, dumped):
        document.pop("imports")
    assert dumped["plugins"][plugin] == was["plugins"][plugin]
