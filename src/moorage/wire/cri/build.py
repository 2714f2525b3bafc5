"""Proto compiler: generates Python modules; run by the build hook, never at run time."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

_MESSAGES = ("python_out", "mypy_out")
_SERVICES = ("grpc_python_out", "mypy_grpc_out")
# protoc's plugin → its entry point in `mypy_protobuf.main`.
_PLUGINS = {"protoc-gen-mypy": "main", "protoc-gen-mypy_grpc": "grpc"}


def generate_stubs(proto: Path, target: Path, source: Path, *, has_services: bool) -> None:
    """Write the Python modules and type stubs of a proto file into the directory `target`.

    `source` is the directory that packages are imported from. gRPC stubs are written too with
    `has_services`. Raises RuntimeError with the compiler's exit status when the file does not
    compile.
    """
    from grpc_tools import protoc

    target.mkdir(exist_ok=True)
    # protobuf's well-known types come with the compiler.
    well_known = Path(protoc.__file__).parent / "_proto"
    outputs = (*_MESSAGES, *_SERVICES) if has_services else _MESSAGES
    with tempfile.TemporaryDirectory() as scratch:
        # The path below the root becomes the Python package by which the stubs import each other.
        root = Path(scratch)
        copy = root / target.relative_to(source) / proto.name
        copy.parent.mkdir(parents=True)
        shutil.copy(proto, copy)
        status = protoc.main(
            [
                "protoc",
                f"-I{root}",
                f"-I{well_known}",
                *(f"--plugin={plugin.name}={plugin}" for plugin in _write_plugins(root)),
                *(f"--{output}={root}" for output in outputs),
                str(copy),
            ]
        )
        if status != 0:
            raise RuntimeError(f"protoc failed on {proto} with status {status}")
        for module in copy.parent.glob("*.py*"):
            shutil.copy(module, target / module.name)
    (target / "__init__.py").touch()


def _write_plugins(directory: Path) -> Iterator[Path]:
    """Write the plugins' programs, which run in this interpreter with this search path.

    In pip's isolated build the installed ones are neither on PATH nor beside the interpreter.
    """
    for name, function in _PLUGINS.items():
        code = f"import sys; sys.path[:] = {sys.path!r}\n"
        code += f"from mypy_protobuf.main import {function}; {function}()"
        program = directory / name
        program.write_text(f"#!/bin/sh\nexec {shlex.join([sys.executable, '-c', code])}\n")
        program.chmod(0o755)
        yield program
