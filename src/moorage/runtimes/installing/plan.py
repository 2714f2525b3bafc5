"""Plan of an installation: what is stored where, and the handler file. Pure.

Each version has a directory of its own, so several stand side by side, and pods that run keep the
one that they were started with.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

import msgspec

from moorage.api.names import dns_label_errors
from moorage.engine.handlers import AdapterKind, DefinitionError, parse_definition
from moorage.migrate.rules.handler_files import toml_value
from moorage.runtimes.installing.downloads import RuntimeInstallationError

_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,62}")
_DIGEST = re.compile("[0-9a-f]{64}")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SHORT = 12
_MARK = "# Written by `moor runtime`:"


class Source(StrEnum):
    """Where a runtime comes from."""

    BINARY = "binary"
    ARCHIVE = "archive"
    PACKAGE = "package"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted: a handler, its source, and how it is driven.

    origin: path of the binary or archive, or name of the Debian package.
    program: the runtime's path in the archive or of the package; empty for a binary.
    digest: SHA-256 of binary or archive, hexadecimal; required for an archive.
    version: name of the directory; the digest's beginning if empty.
    """

    handler: str
    source: Source
    origin: str
    program: str = ""
    digest: str = ""
    version: str = ""
    adapter: str = ""
    options: dict[str, str] = {}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Where the files go: `directory` is None for a package, whose files stay where they are."""

    handler: str
    version: str
    directory: Path | None
    program: Path
    file: Path
    definition: bytes


def check_request(request: Request) -> None:
    """Check a request before anything is read. Raises RuntimeInstallationError."""
    problem = ""
    if errors := dns_label_errors(request.handler):
        problem = f"{request.handler!r} cannot be a handler's name: {errors[0]}"
    elif request.version and not _VERSION.fullmatch(request.version):
        problem = f"{request.version!r} cannot be a version: letters, digits and ._+- may be in it"
    elif request.digest and not _DIGEST.fullmatch(request.digest):
        problem = "a SHA-256 digest has 64 hexadecimal digits"
    elif request.source is Source.ARCHIVE and not request.digest:
        problem = (
            f"the archive's SHA-256 digest is required; `sha256sum {request.origin}` prints it"
        )
    elif request.source is not Source.BINARY and not request.program:
        problem = f"which program of the {request.source} is the runtime must be said"
    elif request.source is Source.PACKAGE and not request.program.startswith("/"):
        problem = f"the program of a package is an absolute path, not {request.program!r}"
    elif request.source is Source.ARCHIVE and not _is_inside(request.program):
        problem = f"the program of an archive is a path inside it, not {request.program!r}"
    if problem:
        raise RuntimeInstallationError(problem)


def _is_inside(program: str) -> bool:
    path = Path(program)
    return not path.is_absolute() and ".." not in path.parts


def plan_installation(request: Request, digest: str, store: Path, handlers: Path) -> Plan:
    """Return where a request's files go. `digest` is the one that was measured.

    Raises RuntimeInstallationError for options that the adapter does not have.
    """
    version = request.version or digest[:_SHORT] or request.origin
    directory: Path | None = store / request.handler / version
    if request.source is Source.PACKAGE:
        directory, program = None, Path(request.program)
    else:
        assert directory is not None
        name = request.program if request.source is Source.ARCHIVE else Path(request.origin).name
        program = directory / name
    file = handlers / f"{request.handler}.toml"
    definition = _definition(request, program, version)
    try:
        parse_definition(file, definition)
    except DefinitionError as error:
        raise RuntimeInstallationError(f"{error.problem}; {error.remedy}") from error
    return Plan(
        handler=request.handler,
        version=version,
        directory=directory,
        program=program,
        file=file,
        definition=definition,
    )


def is_installed(definition: bytes) -> bool:
    """Return whether a handler file is one that an installation wrote."""
    return definition.startswith(_MARK.encode())


def adapter_of(program: str) -> AdapterKind:
    """Return the adapter that a program of this name needs."""
    name = Path(program).name
    if name.startswith("containerd-shim-"):
        return AdapterKind.SHIM
    return AdapterKind.RUNSC if name.startswith("runsc") else AdapterKind.OCI


def _definition(request: Request, program: Path, version: str) -> bytes:
    adapter = request.adapter or adapter_of(str(program))
    lines = [
        f"{_MARK} version {version}, from {request.source}.",
        f"adapter = {toml_value(adapter)}",
        f"binary = {toml_value(str(program))}",
    ]
    if request.options:
        lines += ["", "[options]"]
        lines += [f"{_key(key)} = {_value(text)}" for key, text in sorted(request.options.items())]
    return "".join(f"{line}\n" for line in lines).encode()


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else toml_value(name)


def _value(text: str) -> str:
    return text if text in ("true", "false") else toml_value(text)
