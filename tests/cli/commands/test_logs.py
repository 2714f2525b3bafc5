"""Which lines `moor logs` prints, in which order, and whose they are."""

from __future__ import annotations

import io
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.moor import FakeFactory, cluster, moor

DAY = "2026-01-02T03:04:"


def lines_of(root: Path, **logs: str) -> Path:
    layout = cluster(root)
    layout.logs.mkdir()
    for part, text in logs.items():
        layout.log(part).write_text(text)
    return layout.root


def test_all_parts_are_merged_by_time_and_lines_without_one_stay_behind_theirs(
    tmp_path: Path,
) -> None:
    root = lines_of(
        tmp_path,
        apiserver=f"early\n{DAY}05.000Z I a\n{DAY}09.000Z I c\nTraceback\n  more\n",
        node=f"{DAY}07.000Z I b\n{DAY}10.000Z I d\n",
    )
    assert moor("logs", "--data-dir", root).out.splitlines() == [
        "apiserver    early",
        f"apiserver    {DAY}05.000Z I a",
        f"node         {DAY}07.000Z I b",
        f"apiserver    {DAY}09.000Z I c",
        "apiserver    Traceback",
        "apiserver      more",
        f"node         {DAY}10.000Z I d",
    ]


@pytest.mark.parametrize(
    "word",
    ["2026-01-02T03:04:05.000", "2026-01-02 03:04:05.000Z", "2026-01-02T03:04:05Z",
     "000000000T000000000000Z"],
)  # fmt: skip
def test_only_a_whole_time_is_one(tmp_path: Path, word: str) -> None:
    root = lines_of(tmp_path, node=f"9999-01-02T03:04:05.000Z first\n{word} x\n", engine="0 y\n")
    output = moor("logs", "--data-dir", root).out.splitlines()
    assert output == [
        "engine       0 y", "node         9999-01-02T03:04:05.000Z first", f"node         {word} x",
    ]  # fmt: skip


def test_lines_of_a_log_that_was_just_replaced_are_shown(tmp_path: Path) -> None:
    root = lines_of(tmp_path, node="3\n4\n")
    (root / "logs/node.log.1").write_text("1\n2\n")
    shown = moor("logs", "node", "--lines", "3", "--data-dir", root).out
    assert shown.splitlines() == ["2", "3", "4"]
    # As a disk without room for another one leaves it, or a kill.
    (root / "logs/node.log").unlink()
    assert moor("logs", "node", "--data-dir", root).out.splitlines() == ["1", "2"]
    assert moor("logs", "--data-dir", root).out.splitlines() == ["node         1", "node         2"]


def test_one_part_is_printed_as_it_is_and_no_more_lines_than_asked_for(tmp_path: Path) -> None:
    root = lines_of(tmp_path, node="".join(f"{number}\n" for number in range(120)), engine="x\n")
    assert moor("logs", "node", "--data-dir", root).out.splitlines() == [
        str(number) for number in range(20, 120)
    ]
    assert moor("logs", "node", "-n", 2, "--data-dir", root).out == "118\n119\n"
    assert moor("logs", "node", "-n", 0, "--data-dir", root).out == ""
    assert moor("logs", "-n", 1, "--data-dir", root).out == "node         119\nengine       x\n"
    assert moor("logs", "node", "-n", -1, "--data-dir", root).status == 2


def test_invalid_utf8_is_replaced(tmp_path: Path) -> None:
    layout = cluster(tmp_path)
    layout.logs.mkdir()
    layout.log("node").write_bytes(b"\xff!\n")
    assert moor("logs", "node", "--data-dir", layout.root).out == "\ufffd!\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("node",), "node has written nothing: {}/logs/node.log does not exist"),
        ((), "the cluster has written nothing: {}/logs does not exist"),
    ],
)
def test_missing_log_is_an_error(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    root = cluster(tmp_path).root
    answer = moor("logs", *arguments, "--data-dir", root)
    assert answer.status == 1
    assert answer.err == f"moor: {message.format(root)}\n"


class Programs(FakeFactory):
    """A machine with a program `tail`, or without one; what was started, and what it became."""

    def __init__(self, tail: str | None) -> None:
        super().__init__()
        self.tail = tail
        self.started: list[subprocess.Popen[bytes]] = []
        self.became: list[str] = []

    def find_program(self, name: str, path: str | None = None) -> str | None:
        assert (name, path) == ("tail", None)
        return self.tail

    def start_program(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        self.started.append(super().start_program(argv))
        return self.started[-1]

    def become_program(self, argv: list[str]) -> None:
        self.became = argv
        raise SystemExit(0)


def test_without_the_program_tail_nothing_is_followed(tmp_path: Path) -> None:
    root = lines_of(tmp_path, node="x\n", engine="y\n")
    answer = Programs(None).moor("logs", "-f", "--data-dir", root)
    assert answer.status == 1
    assert answer.err.endswith(f"{root}/logs/node.log {root}/logs/engine.log\n")


def test_one_part_is_followed_by_tail_itself(tmp_path: Path) -> None:
    root = lines_of(tmp_path, node="x\n")
    programs = Programs("/bin/tail")
    assert programs.moor("logs", "node", "-f", "-n", 7, "--data-dir", root).status == 0
    log = f"{root}/logs/node.log"
    assert programs.became == ["/bin/tail", "-n", "7", "-F", log]


def test_all_parts_are_followed_each_line_whole(tmp_path: Path) -> None:
    root = lines_of(tmp_path, node="n1\nn2\nrest", engine="e\n")
    program = tmp_path / "tail"
    # Ends at the end of its file, in pieces that are not lines.
    program.write_text(
        f"#!{sys.executable} -IS\nimport os, sys\n"
        "for byte in open(sys.argv[-1], 'rb').read(): os.write(1, bytes([byte]))\n"
        "print(sys.argv[1:4], file=sys.stderr)\n"
    )
    program.chmod(0o755)
    answer = Programs(str(program)).moor("logs", "-f", "-n", 5, "--data-dir", root)
    assert sorted(answer.out.splitlines()) == [
        "engine       e",
        "node         n1",
        "node         n2",
    ]
    assert (answer.status, answer.err) == (0, "")


def test_ctrl_c_ends_following_and_its_programs(tmp_path: Path) -> None:
    root = lines_of(tmp_path, node="n\n", engine="e\n")

    class Interrupted(io.StringIO):
        def write(self, text: str) -> int:
            del text
            raise KeyboardInterrupt

    tail = shutil.which("tail")
    assert tail is not None
    programs = Programs(tail)
    answer = programs.moor("logs", "-f", "--data-dir", root, out=Interrupted())
    assert (answer.status, answer.out) == (0, "")
    assert [process.poll() for process in programs.started] == [-signal.SIGTERM] * 2
