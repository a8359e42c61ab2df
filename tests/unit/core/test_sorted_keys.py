"""Keys in ascending order, few of them and many."""

from __future__ import annotations

import pytest

from sharegroup.core.sorted_keys import SortedKeys


@pytest.mark.parametrize("count", [2, 999, 1_000, 2_500], ids=lambda count: f"{count} keys")
def test_keys_stay_sorted_whatever_replaces_removes_and_adds_them(count: int) -> None:
    keys = SortedKeys(list(range(0, 10 * count, 10)))
    keys.replace(0, 5)
    keys.add(7)
    keys.replace(10 * (count - 1), 10 * count)
    expected = [5, 7, *range(10, 10 * (count - 1), 10), 10 * count]
    assert list(keys) == expected
    assert [len(keys), keys[0], keys[len(keys) - 1]] == [len(expected), expected[0], expected[-1]]
    assert keys.bisect_right(7) == expected.index(7) + 1
    keys.remove(7)
    assert 7 not in list(keys)


@pytest.mark.parametrize("count", [3, 1_000], ids=lambda count: f"{count} keys")
def test_keys_below_one_are_taken(count: int) -> None:
    keys = SortedKeys(list(range(0, 10 * count, 10)))
    assert keys.take_below(0) == []
    assert keys.take_below(11) == [0, 10]
    assert list(keys) == list(range(20, 10 * count, 10))
    assert keys.take_below(10 * count) == list(range(20, 10 * count, 10))
    assert len(keys) == 0
