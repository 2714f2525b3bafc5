"""Compiles `proto/runtime.proto` to Python: run by the build hook, never by a running Moorage."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

_PROTO = Path(__file__).parent / "proto" / "runtime.proto"
_PACKAGE = Path("moorage/cri/generated")
_OUTPUTS = ("python_out", "grpc_python_out", "mypy_out", "mypy_grpc_out")
_PLUGINS = ("protoc-gen-mypy", "protoc-gen-mypy_grpc")


def generate_stubs(target: Path) -> None:
    """Write `runtime_pb2.py`, `runtime_pb2_grpc.py` and their type stubs into `target`.

    Raises RuntimeError with the compiler's exit status when the proto file does not compile.
    """
    from grpc_tools import protoc

    target.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        # The path below the root becomes the Python package the stubs import each other by.
        root = Path(scratch)
        source = root / _PACKAGE / _PROTO.name
        source.parent.mkdir(parents=True)
        shutil.copy(_PROTO, source)
        # The plugins are beside the interpreter, which need not be on PATH.
        scripts = Path(sys.executable).parent
        status = protoc.main(
            [
                "protoc",
                f"-I{root}",
                *(f"--plugin={plugin}={scripts / plugin}" for plugin in _PLUGINS),
                *(f"--{output}={root}" for output in _OUTPUTS),
                str(source),
            ]
        )
        if status != 0:
            raise RuntimeError(f"protoc failed on {_PROTO} with status {status}")
        for module in source.parent.glob("*.py*"):
            shutil.copy(module, target / module.name)
    (target / "__init__.py").touch()
