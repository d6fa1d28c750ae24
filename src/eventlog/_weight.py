"""What a msgpack payload would take in memory, told before any of it is taken.

A byte of msgpack can become an object of 300 bytes, so a payload that is within its own limit can
still be a bomb. What is added up here is at least what CPython takes for it, about; the runs of
equal things that honest payloads have (numbers) are passed at once.
"""

from __future__ import annotations

import re

from eventlog.exceptions import CodecError

__all__ = ["LIGHT", "MOST_WEIGHT", "check_weight"]

LIGHT = 512 * 1024
"""Bytes of a payload that is not looked at: the blocks of a log have 64 KiB, merged ones 256."""

MOST_WEIGHT = 1024 * 1024 * 1024
"""Bytes in memory that a payload may come to."""

MOST_ITEMS = 2**20
"""Most members of the outermost array: events of a block."""

_SLOT, _NUMBER, _TEXT, _LIST, _MAP, _EVENT = 8, 32, 80, 72, 72, 400
_PAIR = 60  # of a dict, for each key and for each value

_SMALL = re.compile(rb"[\x00-\x7f\xc0\xc2\xc3\xe0-\xff]{1,65536}")
_EMPTY = re.compile(rb"[\x80\x90]{1,65536}")
_DOUBLES = re.compile(rb"(?:[\xcb\xcf\xd3].{8}){1,65536}", re.DOTALL)
_NUMBER_BYTES = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8,
                 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}  # fmt: skip
_LENGTH_BYTES = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4,
                 0xDE: 2, 0xDF: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4}  # fmt: skip
_FIXED_EXT = {0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}


def check_weight(payload: bytes | memoryview, most: int = MOST_WEIGHT) -> None:
    """Refuse a payload that would take too much memory; one that is damaged is for the decoder.

    Raises:
        CodecError: It would take more than `most` bytes, or has more than `MOST_ITEMS` members.
    """
    if len(payload) <= LIGHT:
        return
    data = bytes(payload)
    at, left, weight = 0, 1, 0
    items = _members(data)
    if items > MOST_ITEMS:
        raise CodecError(f"a payload of {items} events, more than {MOST_ITEMS}")
    weight += items * _EVENT
    while left > 0 and at < len(data):
        if (run := _SMALL.match(data, at) or _EMPTY.match(data, at)) is not None:
            passed = min(left, run.end() - at)
            weight += passed * (_SLOT + (_MAP if data[at] in (0x80, 0x90) else 0))
            at, left = at + passed, left - passed
        elif (run := _DOUBLES.match(data, at)) is not None:
            passed = min(left, (run.end() - at) // 9)
            weight += passed * (_SLOT + _NUMBER)
            at, left = at + 9 * passed, left - passed
        else:
            size, members, taken = _one(data, at)
            at, left, weight = at + size, left - 1 + members, weight + taken
        if weight > most:
            raise CodecError(f"a payload that takes more than {most} bytes of memory")


def _members(data: bytes) -> int:
    first = data[0]
    if first & 0xF0 == 0x90:
        return first & 0x0F
    length = {0xDC: 2, 0xDD: 4}.get(first, 0)
    return int.from_bytes(data[1 : 1 + length], "big")


def _one(data: bytes, at: int) -> tuple[int, int, int]:
    """Return the bytes of an item without its members, how many these are, and its weight."""
    first = data[at]
    if first <= 0x8F:
        return 1, 2 * (first & 0x0F), _SLOT + _MAP + 2 * _PAIR * (first & 0x0F)
    if first <= 0x9F:
        return 1, first & 0x0F, _SLOT + _LIST
    if first <= 0xBF:
        return 1 + (first & 0x1F), 0, _SLOT + _TEXT + 4 * (first & 0x1F)
    if first in _NUMBER_BYTES:
        return 1 + _NUMBER_BYTES[first], 0, _SLOT + _NUMBER
    if first in _FIXED_EXT:
        return 1 + _FIXED_EXT[first], 0, _SLOT + _TEXT
    width = _LENGTH_BYTES.get(first, 0)
    length = int.from_bytes(data[at + 1 : at + 1 + width], "big")
    if first in (0xDC, 0xDD):
        return 1 + width, length, _SLOT + _LIST
    if first in (0xDE, 0xDF):
        # what is declared takes nothing until it is there
        return 1 + width, 2 * length, _SLOT + _MAP + 2 * _PAIR * min(length, len(data) - at)
    if first in (0xC7, 0xC8, 0xC9):
        return 2 + width + length, 0, _SLOT + _TEXT + length
    if first in (0xC4, 0xC5, 0xC6):
        return 1 + width + length, 0, _SLOT + _TEXT + length
    return 1 + width + length, 0, _SLOT + _TEXT + 4 * min(length, len(data) - at)
