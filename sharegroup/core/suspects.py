"""Portions of suspects: the search for the record that kills the processes that take it.

A record is a suspect (`Run.is_suspect`) when its last delivery ended without an acknowledgement of the application: it
may have died of this record, or of one that it held beside it. Kafka counts the delivery against each of them alike, so
good records are given up with the bad one. Here suspects are delivered apart from all others, in portions that shrink
with each such end, and on their last delivery one by one. So a record that kills costs as many processes as it has
deliveries, and is the only one that is given up (docs/differences.md).
"""

from __future__ import annotations

_PATIENT_LIMIT = 4
"""From this delivery count limit on, the first end is no reason to search: most of them are deployments."""


def portion_size(suspect_count: int, delivery_count: int, delivery_count_limit: int) -> int:
    """Return how many suspects are delivered together: the smallest s with s ** (r + 1) >= n ** r.

    r is the number of deliveries that are left after this one. So each of them divides the suspects by about the same
    factor, and on the last one there is one.

    Args:
        suspect_count: n, all suspects of the share-partition with that delivery count.
        delivery_count: deliveries so far.
    """
    left = delivery_count_limit - 1 - delivery_count
    if left <= 0:
        return 1
    if delivery_count <= 1 and delivery_count_limit >= _PATIENT_LIMIT:
        return suspect_count
    # Integers only: an audit must come to the same portions.
    bound = suspect_count**left
    low, high = 1, suspect_count
    while low < high:
        middle = (low + high) // 2
        if middle ** (left + 1) >= bound:
            high = middle
        else:
            low = middle + 1
    return low
