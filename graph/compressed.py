"""The serializer of checkpoints: strict, and what is long is compressed.

A compressed value is marked by its type, ``msgpack+zlib``. What was written without compression is read too;
LangGraph's own serializer does not know the mark, so a file is read with this one.
"""

import zlib
from typing import Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

ABOVE = 1024
"""Bytes from which on a value is compressed: below, little is saved."""

_MARK = "+zlib"
_LEVEL = 1


class Compressed(JsonPlusSerializer):
    """LangGraph's serializer, with what is long compressed where that makes it shorter."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return the kind of a value and its bytes."""
        kind, data = super().dumps_typed(obj)
        if len(data) < ABOVE:
            return kind, data
        packed = zlib.compress(data, _LEVEL)
        return (kind + _MARK, packed) if len(packed) < len(data) else (kind, data)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value of a kind and bytes."""
        kind, packed = data
        if kind.endswith(_MARK):
            return super().loads_typed((kind.removesuffix(_MARK), zlib.decompress(packed)))
        return super().loads_typed(data)


def serializer() -> JsonPlusSerializer:
    """Return the serializer of checkpoints: strict, for the state holds plain values alone."""
    return Compressed(allowed_msgpack_modules=None)
