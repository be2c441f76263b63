"""Reads CTranslate2's `model.bin`, binary versions 5 and 6, without CTranslate2."""

import struct

import numpy as np

from checkpoints.convert.folder import Array

DTYPES = (np.float32, np.int8, np.int16, np.int32, np.float16)  # by the file's number for each


class _Cursor:
    """Takes little-endian values off the front of `data`."""

    def __init__(self, data: bytes) -> None:
        self._data, self._offset = data, 0

    def number(self, layout: str) -> int:
        """One unsigned integer: B, H or I of `struct`."""
        (value,) = struct.unpack("<" + layout, self.take(struct.calcsize(layout)))
        return int(value)

    def string(self) -> str:
        return self.take(self.number("H"))[:-1].decode()  # its length counts a closing NUL

    def take(self, count: int) -> bytes:
        start, self._offset = self._offset, self._offset + count
        return self._data[start : self._offset]


def tensors(model: bytes) -> dict[str, Array]:
    """Every variable by its CTranslate2 name; settings are scalars, an alias is its target's array."""
    cursor = _Cursor(model)
    version = cursor.number("I")
    assert version in (5, 6), f"binary version {version}"
    cursor.string()  # the name of the model's spec
    cursor.number("I")  # its revision
    found = dict(_variable(cursor) for _ in range(cursor.number("I")))
    for _ in range(cursor.number("I")):
        alias, target = cursor.string(), cursor.string()
        found[alias] = found[target]
    return found


def _variable(cursor: _Cursor) -> tuple[str, Array]:
    name = cursor.string()
    shape = [cursor.number("I") for _ in range(cursor.number("B"))]
    dtype = DTYPES[cursor.number("B")]
    return name, np.frombuffer(cursor.take(cursor.number("I")), dtype).reshape(shape)
