"""File migration: plan the changes to files, show them as diffs, write them atomically.

Files of the output directory are written before the given files are changed, and each file is
replaced as a whole. So after an interruption anywhere, the same command does the rest.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from moorage.api.errors import OperationError
from moorage.linux.atomic_file import replace_file
from moorage.linux.descriptors import NotRegularError, read_regular_file
from moorage.migrate.reading import STANDARD_INPUT, FileSet, read_files
from moorage.migrate.rules import Finding, Options, Plan, Severity, make_plan
from moorage.migrate.rules.formats import MAX_BYTES
from moorage.migrate.rules.outputs import HANDLERS
from moorage.migrate.text_diff import NO_FILE, unified

_NEW_MODE = 0o644
_OUTPUTS = ("*.yaml", "*.toml", "handlers.d/*.toml")


class OutputUnreadableError(OperationError):
    """A file of the output directory cannot be read, or leads elsewhere."""


class ChangedMeanwhileError(OperationError):
    """A file is another one than it was when it was read."""


@dataclass(frozen=True, slots=True)
class FileMigration:
    """A plan for files, and what they were when they were read."""

    plan: Plan
    findings: tuple[Finding, ...]
    _files: FileSet
    _directory: Path
    _existing: dict[str, str]

    @property
    def has_changes(self) -> bool:
        """Return whether a file would be written."""
        return bool(self.plan.changed or self.plan.outputs)

    @property
    def is_refused(self) -> bool:
        """Return whether something stays as it is until a person decides."""
        return any(finding.severity is Severity.REFUSED for finding in self.findings)

    def diffs(self) -> Iterator[str]:
        """Yield the unified diff of each file that would be written."""
        for name, text in self.plan.outputs.items():
            old = self._existing.get(name)
            path = str(self._directory / name)
            yield unified(NO_FILE if old is None else path, path, old or "", text)
        texts = {source.name: source.text for source in self._files.sources}
        for name, text in self.plan.changed.items():
            yield unified(name, name, texts[name], text)

    def standard_output(self) -> str | None:
        """Return the changed standard input with the new objects; None if it was not read."""
        texts = {source.name: source.text for source in self._files.sources}
        if STANDARD_INPUT not in texts:
            return None
        return self.plan.changed.get(STANDARD_INPUT, texts[STANDARD_INPUT])

    def write(self) -> list[Path]:
        """Write all files, those of the output directory first; return their paths.

        Raises ChangedMeanwhileError, OSError: what is written until then stays.
        """
        written = []
        for name, text in self.plan.outputs.items():
            path = self._directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            old = self._existing.get(name)
            _replace(path, text.encode(), None if old is None else old.encode())
            written.append(path)
        for name, text in self.plan.changed.items():
            if name == STANDARD_INPUT:
                continue
            _replace(self._files.paths[name], text.encode(), self._files.contents[name])
            written.append(Path(name))
        return written


def plan_files(
    paths: Sequence[Path],
    directory: Path,
    options: Options,
    standard_input: bytes | None = None,
) -> FileMigration:
    """Return the migration of files; nothing is written. `directory` is for new files.

    Raises RenameError, OutputError, OutputUnreadableError, TooMuchError, OSError.
    """
    files = read_files(paths, standard_input)
    existing = dict(_existing(directory))
    plan = make_plan(files.sources, existing, options)
    findings = tuple(dict.fromkeys((*files.findings, *plan.findings)))
    return FileMigration(plan, findings, files, directory, existing)


def _existing(directory: Path) -> Iterator[tuple[str, str]]:
    # The files to migrate may come from others, with links that lead handlers elsewhere.
    for place in (directory, directory / HANDLERS):
        if place.is_symlink():
            raise OutputUnreadableError(
                f"{place} is a symbolic link to {os.readlink(place)}; name that directory by "
                "--out, or remove the link"
            )
    for pattern in _OUTPUTS:
        for path in sorted(directory.glob(pattern)):
            if path.is_symlink():
                raise OutputUnreadableError(f"{path} is a symbolic link; remove it")
            try:
                content = read_regular_file(path, MAX_BYTES + 1)
                if len(content) > MAX_BYTES:
                    limit = MAX_BYTES >> 20
                    raise OutputUnreadableError(f"{path} has more than {limit} MiB; split it")
                yield str(path.relative_to(directory)), content.decode()
            except NotRegularError as error:
                raise OutputUnreadableError(f"{path} is not a regular file; remove it") from error
            except UnicodeDecodeError as error:
                raise OutputUnreadableError(
                    f"{path} is not UTF-8 text; correct or remove it"
                ) from error


def _replace(path: Path, content: bytes, before: bytes | None) -> None:
    """Replace a file that has still the content `before`; None for one that does not exist."""
    try:
        present = path.read_bytes()
    except FileNotFoundError:
        present = None
    if present != before:
        raise ChangedMeanwhileError(f"{path} changed meanwhile: migrate again")
    if present is None:
        replace_file(path, content, mode=_NEW_MODE, is_synced=True)
        return
    status = path.stat()
    replace_file(
        path,
        content,
        mode=stat.S_IMODE(status.st_mode),
        is_synced=True,
        owner=(status.st_uid, status.st_gid),
    )
