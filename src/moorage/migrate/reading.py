"""Files to migrate: found, read and bounded.

What a file reads besides itself (imports, drop-ins, `include`, `extends`) is read with it, if it
lies below a directory that was named or that of a named file.

A named file is always read. In a directory, files are read whose names end as configurations and
manifests do and whose text has a word that a migration could act on; hidden directories, links to
directories, links that leave the directory and templates of Helm charts are left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from moorage.api.errors import OperationError
from moorage.linux.descriptors import NotRegularError, read_regular_file
from moorage.migrate.rules import Finding, Severity, Source
from moorage.migrate.rules.formats import MAX_BYTES, SUFFIXES, SkippedError, UnreadableError, parse
from moorage.migrate.rules.layers import references

STANDARD_INPUT = "-"
_MAX_TOTAL_BYTES = 256 * 1024 * 1024
_RELEVANT = re.compile(
    rb"RuntimeClass|runtimeClassName|runtimeHandler|runtimeclasses|PodSecurityPolic"
    rb"|podsecuritypolicies|RoleBinding|kyverno\.io|gatekeeper\.sh|untrusted|TrustedSandbox"
    rb"|frakti|isolation|kompose|runtimes?\b|default-runtime|default_runtime"
    rb"|(?m:^\s*(?:imports\s*=|include\s*:|extends\s*:))|\bservices\s*:"
)
_REFERRING = re.compile(
    rb"(?m:^\s*imports\s*=)|\b(?:include|extends|services)\b|\bcrio\b|^\s*\[engine", re.MULTILINE
)
_MAX_REFERRED = 1000


class TooMuchError(OperationError):
    """The files together are larger than what is migrated at once."""


@dataclass(slots=True)
class FileSet:
    """Files that were read: sources, the path and bytes of each by its name, and findings."""

    sources: list[Source] = field(default_factory=list)
    paths: dict[str, Path] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def read_files(paths: Iterable[Path], standard_input: bytes | None = None) -> FileSet:
    """Read files, and directories with all below them, each file once.

    `standard_input` is what the path `-` stands for. A file that cannot be read is a finding.
    Raises TooMuchError.
    """
    files = FileSet()
    reading = _Reading(files)
    if standard_input is not None:
        _add(files, STANDARD_INPUT, Path(STANDARD_INPUT), standard_input, is_named=True)
    named = list(paths)
    for path, root in _all_files(named, files):
        reading.read(path, root)
    roots = [path if path.is_dir() else path.parent for path in named]
    reading.follow([_resolved(root) for root in roots])
    return files


class _Reading:
    def __init__(self, files: FileSet) -> None:
        self._files = files
        self._seen: set[Path] = set()
        self._total = 0

    def read(self, path: Path, root: Path | None, *, is_referred: bool = False) -> None:
        """Read a file: a named one if `root` is None, else one below that directory."""
        files, is_named = self._files, root is None
        resolved = _resolved(path)
        if resolved in self._seen:
            return
        try:
            content = read_regular_file(path, MAX_BYTES + 1)
        except NotRegularError as error:
            if is_named:
                _find(files, Severity.REFUSED, path, error.problem)
            return
        except OSError as error:
            _find(files, Severity.REFUSED, path, error.strerror or str(error))
            return
        if not is_named and not is_referred and not _RELEVANT.search(content):
            return
        if root is not None and not resolved.is_relative_to(_resolved(root)):
            reason = f"it is a link to {resolved}, outside of {root}; name that file itself"
            _find(files, Severity.SKIPPED, path, reason)
            return
        self._seen.add(resolved)
        self._total += len(content)
        if self._total > _MAX_TOTAL_BYTES:
            raise TooMuchError(
                f"the files have more than {_MAX_TOTAL_BYTES // 1024 // 1024} MiB: migrate one "
                "directory after the other"
            )
        _add(files, str(path), resolved, content, is_named=is_named)

    def follow(self, roots: Sequence[Path]) -> None:
        """Read what the files that were read refer to, below `roots`."""
        files = self._files
        followed = referred = 0
        while followed < len(files.sources):
            source = files.sources[followed]
            followed += 1
            if not source.path or not _REFERRING.search(files.contents[source.name]):
                continue
            try:
                found = references(source.path, parse(source.name, source.text))
            except (SkippedError, UnreadableError):
                # The plan says so.
                continue
            for path in (path for reference in found for path in _existing(reference)):
                root = next((root for root in roots if _is_below(path, root)), None)
                if root is None or _resolved(path) in self._seen:
                    continue
                referred += 1
                if referred > _MAX_REFERRED:
                    reason = f"it leads to more than {_MAX_REFERRED} files; name them"
                    _find(files, Severity.REFUSED, source.name, reason)
                    return
                self.read(_shown(path, source), root, is_referred=True)


def _existing(reference: str) -> list[Path]:
    if "*" not in reference:
        return [Path(reference)] if Path(reference).is_file() else []
    path = Path(reference)
    if "*" in str(path.parent):
        return sorted(Path("/").glob(reference.lstrip("/")))[:_MAX_REFERRED]
    return sorted(found for found in path.parent.glob(path.name) if found.is_file())


def _is_below(path: Path, root: Path) -> bool:
    return Path(os.path.abspath(path)).is_relative_to(root)


def _shown(path: Path, source: Source) -> Path:
    """Return a path as the user would write it, who named the file that leads to it."""
    if Path(source.name).is_absolute():
        return path
    return Path(os.path.relpath(path, os.getcwd()))


def _add(files: FileSet, name: str, path: Path, content: bytes, *, is_named: bool) -> None:
    if len(content) > MAX_BYTES:
        limit = MAX_BYTES // 1024 // 1024
        # What is not read of standard input cannot be written on either.
        severity = Severity.REFUSED if name == STANDARD_INPUT else Severity.SKIPPED
        _find(files, severity, name, f"it has more than {limit} MiB; split it")
        return
    if not is_named and _is_chart_template(path):
        reason = "it is a template of a Helm chart; render it: helm template CHART | moor migrate -"
        _find(files, Severity.SKIPPED, name, reason)
        return
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        _find(files, Severity.REFUSED, name, f"it is not UTF-8 text at byte {error.start}")
        return
    path_text = "" if name == STANDARD_INPUT else os.path.abspath(name)
    files.sources.append(Source(name, text, is_named, path_text))
    files.paths[name] = path
    files.contents[name] = content


def _find(files: FileSet, severity: Severity, place: Path | str, text: str) -> None:
    files.findings.append(Finding(severity, str(place), text))


def _resolved(path: Path) -> Path:
    # Path.resolve raises RuntimeError for a link to itself.
    return Path(os.path.realpath(path))


def _all_files(paths: Iterable[Path], files: FileSet) -> Iterator[tuple[Path, Path | None]]:
    """Yield the files at and below paths, with the directory for those that are not named."""
    for path in paths:
        if not path.is_dir():
            yield path, None
            continue

        def failed(error: OSError) -> None:
            _find(files, Severity.REFUSED, str(error.filename), error.strerror or str(error))

        for directory, directories, names in os.walk(path, onerror=failed):
            directories[:] = sorted(name for name in directories if not name.startswith("."))
            for name in sorted(names):
                if name.endswith(SUFFIXES):
                    yield Path(directory, name), path


def _is_chart_template(path: Path) -> bool:
    return any(
        parent.name == "templates" and (parent.parent / "Chart.yaml").exists()
        for parent in path.parents
    )
