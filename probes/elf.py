"""Just enough ELF to answer two questions about an object without running or stopping anything.

Which build is it (its build-id note), and where in a process's memory is a symbol of it? Both can read the *mapped*
image, so they are right for a file that was replaced on disk after the process mapped it. The formats are those of the
System V ABI and of GNU's hash section; 64-bit little-endian only, which is every machine with a serving GPU.
"""

from __future__ import annotations

import struct
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

ReadAt = Callable[[int, int], bytes]
"""Gives `size` bytes at an offset, or raises OSError."""

_PT_LOAD, _PT_DYNAMIC, _PT_NOTE = 1, 2, 4
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_GNU_HASH = 4, 5, 6, 0x6FFFFEF5
_NT_GNU_BUILD_ID = 3
_LARGEST_NOTES_BYTES = 1 << 20
_LONGEST_CHAIN = 100_000


class ElfError(ValueError):
    """The bytes are no ELF object that this module understands."""


class _Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    size: int


def _segments(head: bytes, read: ReadAt) -> List[_Segment]:
    if len(head) < 64 or head[:4] != b"\x7fELF":
        raise ElfError("not an ELF object")
    if head[4:6] != b"\x02\x01":
        raise ElfError("not a 64-bit little-endian ELF object")
    (table,) = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    if size < 56 or count > 512:
        raise ElfError("a damaged ELF header")
    raw = head[table : table + size * count]
    if len(raw) < size * count:
        raw = read(table, size * count)
    found = []
    for start in range(0, len(raw) - 55, size):
        kind, _flags, offset, address, _physical, filed, _memory, _align = struct.unpack_from("<IIQQQQQQ", raw, start)
        found.append(_Segment(kind, offset, address, filed))
    return found


def _notes(blob: bytes) -> Iterator[Tuple[bytes, int, bytes]]:
    at = 0
    while at + 12 <= len(blob):
        name_size, size, kind = struct.unpack_from("<III", blob, at)
        name_end = at + 12 + (name_size + 3 & ~3)
        end = name_end + (size + 3 & ~3)
        if end > len(blob):
            return
        yield blob[at + 12 : at + 12 + name_size].rstrip(b"\0"), kind, blob[name_end : name_end + size]
        at = end


def _build_id(blobs: Iterator[bytes]) -> Optional[str]:
    for blob in blobs:
        for name, kind, value in _notes(blob):
            if name == b"GNU" and kind == _NT_GNU_BUILD_ID:
                return value.hex()
    return None


def file_build_id(read: ReadAt) -> Optional[str]:
    """The build-id of an ELF file, in hexadecimal; None when it was linked without one.

    Raises:
        ElfError: it is no ELF object.
        OSError: it cannot be read.
    """
    head = read(0, 4096)
    notes = (part for part in _segments(head, read) if part.kind == _PT_NOTE and part.size <= _LARGEST_NOTES_BYTES)
    return _build_id(
        head[part.offset : part.offset + part.size]
        if part.offset + part.size <= len(head)
        else read(part.offset, part.size)
        for part in notes
    )


class Image:
    """An ELF object as it is mapped in a process."""

    def __init__(self, read: ReadAt, base: int) -> None:
        """`read` reads the process's memory; `base` is where the object's first page is mapped."""
        self._read = read
        head = read(base, 4096)
        self._segments = _segments(head, lambda offset, size: read(base + offset, size))
        loaded = [part.address for part in self._segments if part.kind == _PT_LOAD]
        if not loaded:
            raise ElfError("an ELF object that loads nothing")
        self._bias = base - (min(loaded) & ~0xFFF)
        self._base = base

    def build_id(self) -> Optional[str]:
        """The build-id, in hexadecimal."""
        notes = (part for part in self._segments if part.kind == _PT_NOTE and part.size <= _LARGEST_NOTES_BYTES)
        return _build_id(self._read(self._bias + part.address, part.size) for part in notes)

    def symbol(self, name: bytes) -> Optional[int]:
        """The address of a dynamic symbol that this object defines."""
        table = self._dynamic()
        strings, symbols = table.get(_DT_STRTAB), table.get(_DT_SYMTAB)
        if strings is None or symbols is None:
            return None
        if _DT_GNU_HASH in table:
            candidates = self._gnu_chain(table[_DT_GNU_HASH], name)
        elif _DT_HASH in table:
            candidates = self._sysv_chain(table[_DT_HASH], name)
        else:
            return None
        for index in candidates:
            at, _info, _other, section, value, _size = struct.unpack("<IBBHQQ", self._read(symbols + 24 * index, 24))
            if section != 0 and self._read(strings + at, len(name) + 1) == name + b"\0":
                return self._bias + int(value)
        return None

    def _dynamic(self) -> Dict[int, int]:
        table: Dict[int, int] = {}
        for part in self._segments:
            if part.kind == _PT_DYNAMIC:
                raw = self._read(self._bias + part.address, min(part.size, 1 << 16))
                for tag, value in struct.iter_unpack("<QQ", raw[: len(raw) // 16 * 16]):
                    if tag == 0:
                        break
                    # glibc has relocated these pointers in place, musl has not.
                    table[tag] = value if value >= self._base else value + self._bias
        return table

    def _words(self, address: int, count: int) -> Tuple[int, ...]:
        return struct.unpack(f"<{count}I", self._read(address, 4 * count))

    def _gnu_chain(self, table: int, name: bytes) -> Iterator[int]:
        value = 5381
        for byte in name:
            value = (value * 33 + byte) & 0xFFFFFFFF
        buckets, first, bloom, _shift = self._words(table, 4)
        at = table + 16 + 8 * bloom
        (index,) = self._words(at + 4 * (value % buckets), 1)
        chain = at + 4 * buckets
        for _ in range(_LONGEST_CHAIN):
            if index < first:
                return
            (entry,) = self._words(chain + 4 * (index - first), 1)
            if entry | 1 == value | 1:
                yield index
            if entry & 1:
                return
            index += 1

    def _sysv_chain(self, table: int, name: bytes) -> Iterator[int]:
        value = 0
        for byte in name:
            value = (value << 4) + byte
            high = value & 0xF0000000
            value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
        buckets, _count = self._words(table, 2)
        (index,) = self._words(table + 8 + 4 * (value % buckets), 1)
        for _ in range(_LONGEST_CHAIN):
            if index == 0:
                return
            yield index
            (index,) = self._words(table + 8 + 4 * (buckets + index), 1)
