"""Interpreter of a table of system calls, in machine code, and the executable around it.

An entry of the table has ten 64-bit words: the system call, six arguments, a mask of arguments that
are addresses of values, flags, and the address of the result. Flags make an entry a fork, a jump,
a loop, or the conversion of a value to digits. Sources: the architectures' manuals for the
encodings; syscall(2); elf(5).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

CODE_ADDRESS = 0x400000
_DATA_OFFSET = 0x100
DATA_ADDRESS = 0x800000 + _DATA_OFFSET
CELLS_ADDRESS = 0xC00000
BUFFERS_ADDRESS = 0x1000000
BUFFERS_BYTES = 0x100000
"""Fixed addresses: code and table, data with text, results shared by forks, and empty buffers."""

WORDS = 10
ENTRY_BYTES = 8 * WORDS
FORK, REPEAT, HEX, NO_WAIT, JUMP = 1, 2, 4, 8, 16
"""FORK: the child goes on with the next entry; the parent waits, unless NO_WAIT, and skips as many
entries as the first argument says. The second and third are addresses of status and usage. JUMP: go
on as many entries further, less than 0 for back, after the next. HEX: write the value at the first
address as 16 digits to the second. REPEAT: the same call for ever.
"""


class _Assembler:
    """Machine code with labels: `jump` writes an opcode whose target is patched in the end."""

    def __init__(self) -> None:
        self._code = bytearray()
        self._labels: dict[str, int] = {}
        self._jumps: list[tuple[int, str]] = []

    def put(self, text: str) -> None:
        """Append bytes in hexadecimal."""
        self._code += bytes.fromhex(text)

    def label(self, name: str) -> None:
        self._labels[name] = len(self._code)

    def jump(self, opcode: str, name: str) -> None:
        """Append an x86-64 jump with a 32-bit distance."""
        self.put(opcode)
        self._jumps.append((len(self._code), name))
        self._code += bytes(4)

    def assembled(self) -> bytes:
        for place, name in self._jumps:
            struct.pack_into("<i", self._code, place, self._labels[name] - place - 4)
        return bytes(self._code)


# rdi rsi rdx r10 r8 r9: the load of the argument, and the load through its address.
_X86_ARGUMENTS = (
    ("498b7c2408", "488b3f"),
    ("498b742410", "488b36"),
    ("498b542418", "488b12"),
    ("4d8b542420", "4d8b12"),
    ("4d8b442428", "4d8b00"),
    ("4d8b4c2430", "4d8b09"),
)


def _x86_64(table: int) -> bytes:
    code = _Assembler()
    code.put(f"49bc{struct.pack('<Q', table).hex()}")  # mov r12, table
    code.label("next")
    code.put("498b0424")  # mov rax, [r12]
    code.put("498b5c2440")  # mov rbx, [r12+64]
    for flag, target in ((FORK, "fork"), (HEX, "hex"), (JUMP, "skip")):
        code.put(f"f6c3{flag:02x}")  # test bl, flag
        code.jump("0f85", target)  # jnz
    code.put("4d8b6c2438")  # mov r13, [r12+56]
    for number, (load, load_through) in enumerate(_X86_ARGUMENTS):
        code.put(load)
        code.put(f"41f6c5{1 << number:02x}7403")  # test r13b, bit; jz over the next
        code.put(load_through)
    code.put("0f05")  # syscall
    code.put("498b4c2448488901")  # mov rcx, [r12+72]; mov [rcx], rax
    code.put(f"f6c3{REPEAT:02x}")
    code.jump("0f85", "next")
    code.label("advance")
    code.put(f"4983c4{ENTRY_BYTES:02x}")  # add r12, 80
    code.jump("e9", "next")
    code.label("fork")
    code.put("b8390000000f05")  # mov eax, 57 (fork); syscall
    code.put("4885c0")  # test rax, rax
    code.jump("0f84", "advance")  # jz: the child
    code.put("498b4c2448488901")
    code.jump("0f88", "skip")  # js: no child
    code.put(f"f6c3{NO_WAIT:02x}")
    code.jump("0f85", "skip")
    code.put("4889c7498b74241031d24d8b542418")  # rdi = rax, rsi = [r12+16], edx = 0, r10 = [r12+24]
    code.put("b83d0000000f05")  # mov eax, 61 (wait4); syscall
    code.label("skip")
    code.put(f"498b44240848ffc0486bc0{ENTRY_BYTES:02x}4901c4")  # r12 += 80 * ([r12+8] + 1)
    code.jump("e9", "next")
    code.label("hex")
    code.put("498b442408488b00498b7c2410b910000000")  # rax = [[r12+8]], rdi = [r12+16], ecx = 16
    code.label("digit")
    code.put("48c1c00488c280e20f80fa0a720380c22780c230")  # rol rax, 4; dl = digit of al
    code.put("881748ffc7ffc9")  # mov [rdi], dl; inc rdi; dec ecx
    code.jump("0f85", "digit")
    code.jump("e9", "advance")
    return code.assembled()


class _Arm64Assembler:
    """A64 instructions with labels; every instruction has 4 bytes."""

    def __init__(self) -> None:
        self._words: list[int] = []
        self._labels: dict[str, int] = {}
        self._jumps: list[tuple[int, str, int, int]] = []

    def put(self, *words: int) -> None:
        self._words += words

    def label(self, name: str) -> None:
        self._labels[name] = len(self._words)

    def jump(self, word: int, name: str, *, bits: int, shift: int) -> None:
        """Append a branch whose distance in instructions has this many bits at that place."""
        self._jumps.append((len(self._words), name, bits, shift))
        self._words.append(word)

    def assembled(self) -> bytes:
        for place, name, bits, shift in self._jumps:
            distance = (self._labels[name] - place) & ((1 << bits) - 1)
            self._words[place] |= distance << shift
        return struct.pack(f"<{len(self._words)}I", *self._words)

    def load(self, register: int, base: int, offset: int = 0) -> None:
        """Append `ldr Xregister, [Xbase, #offset]`."""
        self.put(0xF9400000 | (offset // 8) << 10 | base << 5 | register)

    def store(self, register: int, base: int) -> None:
        """Append `str Xregister, [Xbase]`."""
        self.put(0xF9000000 | base << 5 | register)

    def move(self, register: int, value: int) -> None:
        """Append `movz Xregister, #value`."""
        self.put(0xD2800000 | value << 5 | register)

    def branch(self, name: str) -> None:
        self.jump(0x14000000, name, bits=26, shift=0)

    def branch_if_bit(self, register: int, bit: int, name: str) -> None:
        """Append `tbnz`."""
        word = 0x37000000 | (bit >> 5) << 31 | (bit & 31) << 19 | register
        self.jump(word, name, bits=14, shift=5)

    def skip_unless_bit(self, register: int, bit: int) -> None:
        """Append `tbz` over the next instruction."""
        self.put(0x36000000 | (bit & 31) << 19 | 2 << 5 | register)


_ARM_FORK, _ARM_WAIT4, _SIGCHLD = 220, 260, 17
_SVC = 0xD4000001


def _arm64(table: int) -> bytes:
    code = _Arm64Assembler()
    # x19 = table, in two halves: movz, movk with a shift of 16.
    code.move(19, table & 0xFFFF)
    code.put(0xF2A00000 | (table >> 16 & 0xFFFF) << 5 | 19)
    code.label("next")
    code.load(8, 19)
    code.load(20, 19, 64)
    for flag, target in ((FORK, "fork"), (HEX, "hex"), (JUMP, "skip")):
        code.branch_if_bit(20, flag.bit_length() - 1, target)
    code.load(21, 19, 56)
    for number in range(6):
        code.load(number, 19, 8 + 8 * number)
        code.skip_unless_bit(21, number)
        code.load(number, number)
    code.put(_SVC)
    code.load(22, 19, 72)
    code.store(0, 22)
    code.branch_if_bit(20, REPEAT.bit_length() - 1, "next")
    code.label("advance")
    code.put(0x91000000 | ENTRY_BYTES << 10 | 19 << 5 | 19)  # add x19, x19, #80
    code.branch("next")
    code.label("fork")
    code.move(8, _ARM_FORK)
    code.move(0, _SIGCHLD)
    for register in range(1, 5):
        code.move(register, 0)
    code.put(_SVC)
    code.jump(0xB4000000, "advance", bits=19, shift=5)  # cbz x0: the child
    code.load(22, 19, 72)
    code.store(0, 22)
    code.branch_if_bit(0, 63, "skip")
    code.branch_if_bit(20, NO_WAIT.bit_length() - 1, "skip")
    code.load(1, 19, 16)
    code.move(2, 0)
    code.load(3, 19, 24)
    code.move(8, _ARM_WAIT4)
    code.put(_SVC)
    code.label("skip")
    code.load(9, 19, 8)
    code.put(0x91000400 | 9 << 5 | 9)  # add x9, x9, #1
    code.move(10, ENTRY_BYTES)
    code.put(0x9B000000 | 10 << 16 | 19 << 10 | 9 << 5 | 19)  # madd x19, x9, x10, x19
    code.branch("next")
    code.label("hex")
    code.load(0, 19, 8)
    code.load(0, 0)
    code.load(1, 19, 16)
    code.move(2, 16)
    code.label("digit")
    code.put(0x93C0F000 | 0 << 5 | 0)  # ror x0, x0, #60
    code.put(0x92400C03)  # and x3, x0, #15
    code.put(0xF100287F)  # cmp x3, #10
    code.put(0x54000043)  # b.lo over the next
    code.put(0x91009C63)  # add x3, x3, #39
    code.put(0x9100C063)  # add x3, x3, #48
    code.put(0x38001423)  # strb w3, [x1], #1
    code.put(0xF1000442)  # subs x2, x2, #1
    code.jump(0x54000001, "digit", bits=19, shift=5)  # b.ne
    code.branch("advance")
    return code.assembled()


_WRITERS = {"amd64": (62, _x86_64), "arm64": (183, _arm64)}
ARCHITECTURES = tuple(_WRITERS)
"""Names, as OCI platforms spell them, of the architectures that there is an interpreter for."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_IDENTITY = b"\x7fELF\x02\x01\x01" + bytes(9)
_EXECUTABLE, _LOAD = 2, 1
_X, _W, _R = 1, 2, 4
# arm64 kernels may have pages of 64 KiB.
_ALIGNMENT = 0x10000


def executable(architecture: str, table: Sequence[Sequence[int]], data: bytes) -> bytes:
    """Return a static executable that interprets a table, with data at DATA_ADDRESS.

    Raises KeyError for an architecture that is not in ARCHITECTURES.
    """
    machine, write = _WRITERS[architecture]
    # Addresses and offsets agree in their last bits, so that the file needs no padding.
    code_offset = (_DATA_OFFSET + len(data) + 15) & ~15
    code_address = CODE_ADDRESS + code_offset
    # The code's length does not depend on the table's address.
    table_address = (code_address + len(write(code_address)) + 15) & ~15
    code = write(table_address).ljust(table_address - code_address, b"\0")
    text = code + b"".join(map(_entry, table))
    segments = (
        (_R | _X, code_offset, code_address, len(text), len(text)),
        (_R | _W, _DATA_OFFSET, DATA_ADDRESS, len(data), len(data)),
        (_R | _W, 0, BUFFERS_ADDRESS, 0, BUFFERS_BYTES),
    )
    header = _HEADER.pack(
        _IDENTITY, _EXECUTABLE, machine, 1, code_address, _HEADER.size, 0, 0,
        _HEADER.size, _SEGMENT.size, len(segments), 0, 0, 0,
    )  # fmt: skip
    packed = b"".join(
        _SEGMENT.pack(_LOAD, flags, offset, address, address, in_file, in_memory, _ALIGNMENT)
        for flags, offset, address, in_file, in_memory in segments
    )
    return ((header + packed).ljust(_DATA_OFFSET, b"\0") + data).ljust(code_offset, b"\0") + text


def _entry(words: Sequence[int]) -> bytes:
    return struct.pack(f"<{WORDS}Q", *(word & 0xFFFFFFFFFFFFFFFF for word in words))
