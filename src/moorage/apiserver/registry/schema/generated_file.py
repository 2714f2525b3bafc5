"""Files that the build of the package generates."""

from __future__ import annotations

from importlib import resources


def read_generated(package: str, path: str) -> bytes:
    """Return a generated file of a package.

    Raises FileNotFoundError, with the command to run, when the package was not built.
    """
    file = resources.files(package).joinpath(path)
    try:
        return file.read_bytes()
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{file} is missing: build the package first (`make venv` does)"
        ) from error
