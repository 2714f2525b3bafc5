"""What a proto file is compiled to, and what is said of one that does not compile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from moorage.wire.cri.build import generate_stubs


class Compiler:
    """Takes protoc's place: writes what protoc would, and keeps how it was called."""

    def __init__(self) -> None:
        self.argv: list[str] = []
        self.status = 0
        self.plugins: dict[str, str] = {}

    def main(self, argv: list[str]) -> int:
        self.argv = argv
        for plugin in (argument for argument in argv if argument.startswith("--plugin=")):
            name, _, path = plugin.removeprefix("--plugin=").partition("=")
            done = subprocess.run([path], capture_output=True, input=b"", check=False)
            assert b"not found" not in done.stderr
            self.plugins[name] = Path(path).read_text()
            assert Path(path).stat().st_mode & 0o777 == 0o755
        proto = Path(argv[-1])
        assert proto.read_text() == "syntax"
        for name in ("a_pb2.py", "a_pb2.pyi", "other.txt"):
            (proto.parent / name).write_text(name)
        return self.status


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    from grpc_tools import protoc

    compiler = Compiler()
    monkeypatch.setattr(protoc, "main", compiler.main)
    # No interpreter is started for a plugin.
    monkeypatch.setattr(sys, "executable", "/bin/true")
    return compiler


@pytest.fixture
def proto(tmp_path: Path) -> Path:
    proto = tmp_path / "a.proto"
    proto.write_text("syntax")
    (tmp_path / "src/p").mkdir(parents=True)
    return proto


@pytest.mark.parametrize("has_services", [True, False])
def test_the_modules_are_put_into_the_package(
    compiler: Compiler, proto: Path, has_services: bool
) -> None:
    target = proto.parent / "src/p/generated"
    for _ in range(2):
        generate_stubs(proto, target, proto.parent / "src", has_services=has_services)
    assert {path.name: path.read_text() for path in target.iterdir()} == {
        "__init__.py": "", "a_pb2.py": "a_pb2.py", "a_pb2.pyi": "a_pb2.pyi",
    }  # fmt: skip
    program, root, well_known, *rest = compiler.argv
    root = root.removeprefix("-I")
    assert program == "protoc"
    assert (Path(well_known.removeprefix("-I")) / "google/protobuf/any.proto").exists()
    services = [f"--grpc_python_out={root}", f"--mypy_grpc_out={root}"] if has_services else []
    assert rest == [
        f"--plugin=protoc-gen-mypy={root}/protoc-gen-mypy",
        f"--plugin=protoc-gen-mypy_grpc={root}/protoc-gen-mypy_grpc",
        f"--python_out={root}", f"--mypy_out={root}", *services,
        f"{root}/p/generated/a.proto",
    ]  # fmt: skip
    assert not Path(root).exists()
    for name, function in (("protoc-gen-mypy", "main"), ("protoc-gen-mypy_grpc", "grpc")):
        text = compiler.plugins[name]
        assert text.startswith("#!/bin/sh\nexec /bin/true -c ")
        assert "import sys; sys.path[:] = [" in text
        assert f"from mypy_protobuf.main import {function}; {function}()" in text


def test_a_file_that_does_not_compile_is_named(compiler: Compiler, proto: Path) -> None:
    compiler.status = 3
    target = proto.parent / "src/p/generated"
    with pytest.raises(RuntimeError, match=r"protoc failed on .*a\.proto with status 3"):
        generate_stubs(proto, target, proto.parent / "src", has_services=True)
    assert not list(target.iterdir())
