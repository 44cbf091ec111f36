#!/usr/bin/env python
# Copyright somebody.
"""The room.

It has more.
"""
from __future__ import annotations

import os, sys as system
import collections.abc
from . import sibling
from ..models import (
    Thing,  # the thing
    Other as Another,
)
from .deep.er import *

if TYPE_CHECKING:
    from typing import Any
else:
    Any = object

#: How many.
LIMIT: Final[int] = 3  # trailing: not a def f():
_hidden = {
    "a": 1,
}
a, b = 1, 2
type Pair[T] = tuple[T, T]
os.environ["x"] = "1"


@register(
    "name",
    other=lambda x: x,
)
@final  # why: not
class Thing(Base[int], metaclass=Meta, key="class Fake: pass"):
    """A thing. Or two."""

    x: int = 0
    y: dict[str, int]
    __slots__ = ("x", "y")

    class Inner: z = 1

    def __init__(self, x: int = 3, *args: "Any", key: str = ":", **kw) -> None:  # trailing:
        r"""Makes one
        of them."""
        self.x = x

    @property
    def name(self) -> str: return "def fake(): pass"

    @overload
    async def get(self, key: Literal["a"], /) -> int: ...
    @overload
    async def get(
        self,
        key: str,
        default: dict = {1: 2}, *,
        strict: bool = False,
    ) -> (
        str
    ):
        def nested(): pass
        from .late import late
        return await nested(Helper(key))

    if sys.version_info > (3, 8):
        def newer(self): pass

class Color(str, Enum):
    RED = "red"
    GREEN = "green"

class Reads(Protocol[T]):
    def read(self) -> T: ...

try:
    import fast
except ImportError:
    def fallback(): pass

def _private(größe: int = 1) -> "Thing":
    # not a doc
    'Is private.'

def generic[T: (int, str)](x: T) -> T: return x

if __name__ == "__main__":
    args = main()
