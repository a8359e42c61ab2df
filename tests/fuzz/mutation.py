"""Mistakes in a JSON document: in its values, in its structure, and in its bytes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any

HUGE = [2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64, 10**30, -1, -2, -(2**31), -(2**31) - 1, -(2**63), -(2**64)]
FLOATS = [1e308, -1e308, 0.5, float("nan"), float("inf"), float("-inf")]
TEXTS = ["", "\x00", "a\x00b", "\ud800", "\udfff\ud800", "é" * 300, "x" * 70_000, "7", "null", "\u202e", "🙂" * 40]


def mutated(document: Any, random: Random, count: int) -> Any:
    """The document with some of its values changed, gone, added, or put elsewhere."""
    document = copy.deepcopy(document)
    for _ in range(count):
        places = list(_places(document))
        if not places:
            return _anything(random)
        parent, key = random.choice(places)
        if random.random() < 0.15:
            _restructure(parent, key, random)
        else:
            parent[key] = _other(parent[key], random)
    return document


def to_bytes(document: Any, random: Random) -> bytes:
    """JSON as a careless client may write it: NaN, escapes or not, lone surrogates."""
    if random.random() < 0.8:
        return json.dumps(document).encode()
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")


def damaged(value: bytes, random: Random) -> bytes:
    """The bytes cut off, changed, doubled, or wrapped."""
    index = random.randrange(len(value) + 1)
    damages: list[Callable[[], bytes]] = [
        lambda: value[:index],
        lambda: value[index:],
        lambda: value[:index] + bytes([random.randrange(256)]) + value[index + 1 :],
        lambda: value[:index] + b"\xff\xfe" + value[index:],
        lambda: value + value,
        lambda: b"\xef\xbb\xbf" + value,
        lambda: value.decode(errors="replace").encode("utf-16"),
        lambda: b"[" + value + b"]",
        lambda: b'{"a":' * random.choice([50, 5_000]) + value,
        lambda: value.replace(b"{", b'{"api_key":79,"group_id":"elsewhere","member_id":7,', 1),
        lambda: value.replace(b"}", b',"body":{},"v":1}', 1),
        lambda: value.replace(b":0", b":1e999").replace(b":1", b":0001"),
        lambda: value.replace(b'"', b"'"),
        lambda: b" " * 10_000 + value,
    ]
    return random.choice(damages)()


def _places(node: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every value below a node."""
    positions: list[tuple[Any, Any]] = []
    waiting = [node]
    while waiting and len(positions) < 200:
        container = waiting.pop()
        if isinstance(container, dict):
            keys: list[Any] = list(container)
        elif isinstance(container, list):
            keys = list(range(len(container)))
        else:
            continue
        for key in keys:
            positions.append((container, key))
            waiting.append(container[key])
    return positions


def _restructure(parent: Any, key: Any, random: Random) -> None:
    value = parent[key]
    if isinstance(parent, dict):
        if random.random() < 0.6:
            del parent[key]
        else:
            parent[random.choice([*TEXTS, str(key) + "s"])] = value
    elif random.random() < 0.5:
        parent.reverse()
    else:
        parent.extend([value] * random.choice([1, 3, 300]))


def _other(value: Any, random: Random) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and random.random() < 0.7:
        return random.choice([*HUGE, value + 1, value - 1, -value, str(value), float(value)])
    if isinstance(value, str) and random.random() < 0.5:
        return random.choice([*TEXTS, value + " ", value.upper(), value * 2])
    if isinstance(value, list) and random.random() < 0.5:
        return random.choice([value * 2, value[::-1], value[:1] * 500, [], {}, None])
    return _anything(random)


def _anything(random: Random) -> Any:
    nested: Any = 1
    for _ in range(random.choice([3, 60, 150])):
        nested = {"a": nested} if random.random() < 0.5 else [nested]
    choices = [None, True, {}, [], [[]], nested, [1] * 2_000, {str(n): n for n in range(50)}]
    return random.choice([*choices, *TEXTS, *HUGE, *FLOATS])
