"""Log files of processes: bounded, without a line lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from moorage.linux.log_file import LogLimits, old_file, rotate, rotate_if_full

_WRITE = """
import sys
from pathlib import Path
from moorage.api.logs import Log, configure
from moorage.linux.log_file import LogFile, LogLimits
configure("info", LogFile(Path(sys.argv[1]), LogLimits(file_bytes=4_000, old_files=2)))
for number in range(int(sys.argv[2])):
    Log("moorage.part").info("line", number=number)
    if number == 100:
        print("printed", flush=True)
"""


def _write(path: Path, count: int, output: Path) -> None:
    with output.open("ab") as file:
        subprocess.run(
            [sys.executable, "-c", _WRITE, str(path), str(count)],
            stdout=file, stderr=file, check=True,
        )  # fmt: skip


def _numbers(path: Path) -> list[int]:
    lines = path.read_text().splitlines()
    return [int(line.rpartition("=")[2]) for line in lines if "number=" in line]


def test_a_process_replaces_its_log_when_it_is_full_and_loses_no_line(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    _write(log, 190, log)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "part.log", "part.log.1", "part.log.2",
    ]  # fmt: skip
    found = [number for name in (2, 1, 0) for number in _numbers(old_file(log, name))]
    assert found == list(range(190))
    assert max(path.stat().st_size for path in tmp_path.iterdir()) < 4_200
    assert sum("printed" in path.read_text() for path in tmp_path.iterdir()) == 1
    # Older ones are removed.
    _write(log, 500, log)
    assert len(list(tmp_path.iterdir())) == 3


def test_standard_error_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    log, other = tmp_path / "part.log", tmp_path / "other"
    log.write_text("not ours")
    _write(log, 150, other)
    assert log.read_text() == "not ours"
    assert _numbers(other) == list(range(150))
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("old_files", [0, 1, 3])
def test_old_logs_move_up_and_the_last_goes(tmp_path: Path, old_files: int) -> None:
    log = tmp_path / "a.log"
    for number in range(5):
        log.write_text(str(number))
        rotate(log, old_files)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        f"a.log.{age}": str(5 - age) for age in range(1, old_files + 1)
    }


def test_only_a_full_log_is_replaced_before_a_process_gets_it(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    rotate_if_full(log)
    log.write_text("12345")
    rotate_if_full(log, LogLimits(file_bytes=6))
    assert log.exists()
    rotate_if_full(log, LogLimits(file_bytes=5))
    assert (log.exists(), old_file(log, 1).read_text()) == (False, "12345")


@pytest.mark.parametrize("stands", ["a.log.1", "a.log.2"])
def test_a_log_that_cannot_be_renamed_stays(tmp_path: Path, stands: str) -> None:
    log = tmp_path / "a.log"
    (tmp_path / stands / "full").mkdir(parents=True)
    log.write_text("12345")
    old_file(log, 3 - int(stands[-1])).write_text("old")
    rotate_if_full(log, LogLimits(file_bytes=5))
    assert log.read_text() == "12345"


def test_a_process_whose_log_cannot_be_renamed_writes_on(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    (tmp_path / "part.log.1" / "full").mkdir(parents=True)
    (tmp_path / "part.log.2").write_text("old")
    _write(log, 150, log)
    assert _numbers(log) == list(range(150))
