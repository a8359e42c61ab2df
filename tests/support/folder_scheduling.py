"""How `--dist loadscope` divides the tests that start JVMs: whole folders, so that what is shared is there once."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

_OF_ONE_SESSION = ("tests/spark", "tests/kafka", "tests/logs")
"""Folders whose tests share this process's Spark session or its brokers."""


class FolderScheduling(LoadScopeScheduling):
    """The tests of a folder run in one process; a process that has done with its folder takes the next one.

    Those of one Spark session and its brokers thus run beside those whose processors are processes of their own.
    """

    def _split_scope(self, nodeid: str) -> str:
        """The folder that must not be divided. (The groups of xdist 3.8 do not reach the node ids of pytest 9.)"""
        path = nodeid.partition("::")[0]
        folder = path.rpartition("/")[0]
        return "session" if folder in _OF_ONE_SESSION else folder
