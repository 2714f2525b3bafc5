"""On a full disk deletions are taken, and only they, until there is room again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from moorage.linux.capabilities import effective_capabilities

_MIB = 1024 * 1024
_SIZE = 32 * _MIB

# Runs in a mount namespace of its own, on a small file system.
_SCRIPT = """
import asyncio, ctypes, os, sys
from pathlib import Path

from moorage.apiserver.storage import SqliteStore, StoreBrokenError

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18


def mount_small(path: Path, size: int) -> None:
    assert libc.unshare(CLONE_NEWNS) == 0, os.strerror(ctypes.get_errno())
    assert libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0
    options = f"size={size}".encode()
    assert libc.mount(b"tmpfs", bytes(path), b"tmpfs", 0, options) == 0


def fill(path: Path) -> None:
    with open(path, "ab", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass


async def refused(writing) -> None:
    try:
        await writing
    except StoreBrokenError as error:
        print("refused:", error)
    else:
        raise AssertionError("written on a full disk")


async def run(directory: Path, does_restart: bool) -> None:
    path, mark = directory / "db" / "s.db", directory / "s.mark"
    async with SqliteStore(path, mark=mark, reserve_bytes=6 << 20) as store:
        revisions = {}
        for number in range(500):
            revisions[number] = await store.put(f"a/{number}", b"v" * 2000, 0)
        fill(directory / "other")
        # What the log has room for may still be written; then no more.
        for number in range(20000):
            try:
                await store.put(f"b/{number}", b"v" * 2000, 0)
            except StoreBrokenError:
                break
        else:
            raise AssertionError("the disk is never full")
        fill(directory / "other")
        written = number
        if not does_restart:
            await work(store, revisions, directory)
    if does_restart:
        fill(directory / "other")
        async with SqliteStore(path, mark=mark, reserve_bytes=6 << 20) as store:
            assert len((await store.range("b/")).entries) == written
            await work(store, revisions, directory)
    async with SqliteStore(path, mark=mark, reserve_bytes=6 << 20) as store:
        keys = [entry.key for entry in (await store.range("")).entries]
        assert "c/after" in keys
        assert not [key for key in keys if key.startswith("a/")]


async def work(store: SqliteStore, revisions: dict, directory: Path) -> None:
    await refused(store.put("c/1", b"v" * 2000, 0))
    # A graceful deletion marks the object first.
    marked = await store.put("a/0", b"m" * 2000, revisions.pop(0), may_use_reserve=True)
    await store.delete("a/0", b"m" * 2000, marked)
    for number, revision in revisions.items():
        await store.delete(f"a/{number}", b"v" * 2000, revision)
    await refused(store.put("c/1", b"v" * 2000, 0))
    await store.compact(store.revision)
    os.unlink(directory / "other")
    await store.put("c/after", b"v" * 2000, 0)
    print("done")


directory = Path(sys.argv[1])
mount_small(directory, int(sys.argv[2]))
asyncio.run(run(directory, sys.argv[3] == "restart"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["go on", "restart"])
def test_deletions_are_taken_on_a_full_disk(tmp_path: Path, how: str) -> None:
    if "CAP_SYS_ADMIN" not in effective_capabilities(Path("/proc/self/status").read_text()):
        pytest.skip("a small file system needs CAP_SYS_ADMIN to be mounted")
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(tmp_path), str(_SIZE), how],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "refused:" in done.stdout
    assert done.stdout.endswith("done\n")
    warned = done.stderr.count("disk is full: only deletions are accepted until space is freed")
    assert warned == 1, done.stderr
