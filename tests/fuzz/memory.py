"""The memory that an object keeps."""

from __future__ import annotations

import gc
import sys
from types import FunctionType, ModuleType


def reachable_bytes(root: object, besides: object) -> int:
    """Return the size of an object and of all that is reachable from it, without code.

    Args:
        root: the object.
        besides: an object that is passed over, with what is reachable only by it.
    """
    seen = {id(besides)}
    waiting = [root]
    total_bytes = 0
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | FunctionType | ModuleType):
            continue
        seen.add(id(one))
        total_bytes += sys.getsizeof(one)
        waiting += gc.get_referents(one)
    return total_bytes
