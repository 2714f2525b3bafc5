"""`python -m tests.mutants`: samples faults per package and reports those that no test notices."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tests.mutants.choice import choose_tests
from tests.mutants.faults import Fault, apply_fault, find_faults
from tests.mutants.sandbox import enter_sandbox, mount_proc
from tests.mutants.session import Session, copy_tree, import_libraries

_TREE = Path(__file__).parents[2]
_SOURCE = _TREE / "src" / "moorage"


def packages() -> tuple[str, ...]:
    """Return every package; one without tests of its own has no fault noticed."""
    return tuple(sorted(path.parent.name for path in _SOURCE.glob("*/__init__.py")))


@dataclass(frozen=True, slots=True)
class Request:
    """What to sample. `places` are `path:line`, under `src/moorage`; they replace the sampling."""

    packages: tuple[str, ...]
    count: int
    seed: int
    places: tuple[str, ...]
    goal: float


@dataclass(frozen=True, slots=True)
class Rate:
    package: str
    caught: int
    total: int

    @property
    def percent(self) -> float:
        return 100.0 * self.caught / self.total if self.total else 100.0


def main() -> int:
    request = _parse()
    with tempfile.TemporaryDirectory(prefix="moorage-mutants-") as directory:
        copy = Path(directory)
        copy_tree(_TREE, copy)
        import_libraries()
        child = os.fork()
        if child == 0:
            _child(request, copy)
        try:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        except KeyboardInterrupt:
            os.waitpid(child, 0)
            return 130


def _child(request: Request, copy: Path) -> NoReturn:
    """Sample in the sandbox and exit. A process of its own, so that its parent can clean up."""
    status = 70
    try:
        if os.geteuid() == 0:
            enter_sandbox(copy)
            status = _as_init(request, copy)
        else:
            status = _sample_all(request, copy)
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = 130
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _as_init(request: Request, copy: Path) -> int:
    init = os.fork()
    if init == 0:
        status = 70
        try:
            mount_proc()
            status = _sample_all(request, copy)
            sys.stdout.flush()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    try:
        return os.waitstatus_to_exitcode(os.waitpid(init, 0)[1])
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(init, signal.SIGKILL)


def _parse() -> Request:
    parser = argparse.ArgumentParser(prog="tests.mutants", description=__doc__)
    parser.add_argument(
        "packages", nargs="*", default=packages(), help="or a part, cluster/attach; default: all"
    )
    parser.add_argument("--count", type=int, default=40, help="faults per package (%(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    parser.add_argument("--goal", type=float, default=92.0, help="percent; less is status 1")
    parser.add_argument(
        "--at", action="append", default=[], metavar="PATH:LINE",
        help="run every fault of this line instead of a sample; can be repeated",
    )  # fmt: skip
    arguments = parser.parse_args()
    unknown = {name for name in arguments.packages if not (_SOURCE / name).is_dir()}
    if unknown:
        parser.error(f"no such package: {', '.join(sorted(unknown))}")
    chosen = arguments.packages
    if arguments.at:
        chosen = dict.fromkeys(place.split("/")[2] for place in arguments.at)
    seed = random.SystemRandom().randrange(100_000) if arguments.seed is None else arguments.seed
    return Request(tuple(chosen), arguments.count, seed, tuple(arguments.at), arguments.goal)


def _sample_all(request: Request, copy: Path) -> int:
    rates = [_sample(package, request, copy) for package in request.packages]
    print(f"\nseed {request.seed}")
    for rate in rates:
        print(f"{rate.package:20} {rate.caught:4} of {rate.total:4} caught {rate.percent:6.1f} %")
    return 0 if all(rate.percent >= request.goal for rate in rates) else 1


def _sample(package: str, request: Request, copy: Path) -> Rate:
    session = Session(_TREE, copy)
    output = copy / "output.txt"
    started = time.monotonic()
    calls = session.record(package, output=output)
    failing = [name for name, test in calls.items() if not test.passed]
    print(
        f"{package}: {len(calls)} tests in {time.monotonic() - started:.0f} s, "
        f"{len(failing)} of them skipped or failing here: {failing[:8]}", flush=True,
    )  # fmt: skip
    faults = _faults(package, request, copy)
    caught = 0
    kinds: Counter[str] = Counter()
    for number, fault in enumerate(faults, 1):
        names = choose_tests(fault, calls)
        expected_s = sum(calls[name].seconds for name in names)
        if names and session.notices(fault, names, expected_s, output):
            caught += 1
            continue
        kinds[fault.kind] += 1
        print(f"\n{number}/{len(faults)} SURVIVED {fault.name}; {len(names)} tests call it")
        print(_diff(copy / "src" / fault.path, fault), flush=True)
    print(
        f"{package}: {caught} of {len(faults)} caught, "
        f"{time.monotonic() - started:.0f} s, survivors {dict(kinds)}"
    )
    return Rate(package, caught, len(faults))


def _faults(package: str, request: Request, copy: Path) -> Sequence[Fault]:
    source = copy / "src"
    everything = [
        fault
        for path in sorted((source / "moorage" / package).rglob("*.py"))
        if "generated" not in path.parts
        for fault in find_faults(str(path.relative_to(source)), path.read_text())
    ]
    if request.places:
        return [fault for fault in everything if f"src/{fault.path}:{fault.line}" in request.places]
    # Lines are drawn first and then one fault of each: else long expressions would have most.
    by_line: dict[tuple[str, int], list[Fault]] = {}
    for fault in everything:
        by_line.setdefault((fault.path, fault.line), []).append(fault)
    chance = random.Random(f"{request.seed}:{package}")
    lines = chance.sample(sorted(by_line), min(request.count, len(by_line)))
    return [chance.choice(by_line[line]) for line in lines]


def _diff(path: Path, fault: Fault) -> str:
    source = path.read_text()
    changed = apply_fault(source, fault)
    lines = difflib.unified_diff(source.splitlines(), changed.splitlines(), lineterm="", n=2)
    return "\n".join(list(lines)[2:])


if __name__ == "__main__":
    sys.exit(main())
