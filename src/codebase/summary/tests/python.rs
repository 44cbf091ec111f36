use super::*;

pub(super) const TEXT: &str = r####"#!/usr/bin/env python
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
"####;

#[test]
fn items() {
    insta::assert_snapshot!(outline(Language::Python, TEXT), @r"
    Constant Any
    Constant LIMIT
    Constant _hidden -
    Constant a
    Constant b
    Alias Pair
    Type Thing
      Field x
      Field y
      Field __slots__
      Type Inner
        Field z
      Method __init__
      Method name
      Method get
      Method get
      Method newer
    Enum Color
      Variant RED
      Variant GREEN
    Interface Reads
      Method read
    Function fallback
    Function _private -
    Function generic
    ");
}

#[test]
fn signatures() {
    let of = |name| signature(Language::Python, TEXT, name);
    insta::assert_snapshot!(of("Thing"), @r#"
    @register(
        "name",
        other=lambda x: x,
    )
    @final  # why: not
    class Thing(Base[int], metaclass=Meta, key="class Fake: pass")
    "#);
    insta::assert_snapshot!(of("__init__"), @r#"def __init__(self, x: int = 3, *args: "Any", key: str = ":", **kw) -> None"#);
    insta::assert_snapshot!(of("name"), @r"
    @property
        def name(self) -> str
    ");
    insta::assert_snapshot!(of("LIMIT"), @"LIMIT: Final[int] = 3");
    insta::assert_snapshot!(of("_hidden"), @"_hidden");
    let summary = summarize(Language::Python, TEXT);
    let both: Vec<&str> =
        all(&summary).iter().filter(|item| item.name == "get").map(|item| item.signature.as_str()).collect();
    insta::assert_snapshot!(both.join("\n--\n"), @r#"
    @overload
        async def get(self, key: Literal["a"], /) -> int
    --
    @overload
        async def get(
            self,
            key: str,
            default: dict = {1: 2}, *,
            strict: bool = False,
        ) -> (
            str
        )
    "#);
}

#[test]
fn imports_and_docs() {
    insta::assert_snapshot!(imports(Language::Python, TEXT), @r"
    7 __future__: annotations
    9 os: 
    9 sys: 
    10 collections.abc: 
    11 .: sibling
    12 ..models: Thing Other
    16 .deep.er: *
    19 typing: Any
    67 .late: late
    81 fast:
    ");
    insta::assert_snapshot!(docs(Language::Python, TEXT), @r"
    The room.
    LIMIT: How many.
    Thing: A thing.
    __init__: Makes one of them.
    _private: Is private.
    ");
}

#[test]
fn names_used() {
    let (_, uses) = read(Language::Python, TEXT);
    insta::assert_snapshot!(uses.join(" "), @"Base Enum Final Helper ImportError Literal Meta Protocol TYPE_CHECKING main nested register");
}
