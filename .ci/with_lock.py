"""Runs a command while it holds a lock file, so that two makes at once do not write one folder.

The command inherits the lock; the kernel frees it when the command ends, however it ends.
"""

import fcntl
import os
import sys

lock_path, *command = sys.argv[1:]
os.makedirs(os.path.dirname(lock_path), exist_ok=True)
lock = os.open(lock_path, os.O_RDWR | os.O_CREAT)
os.set_inheritable(lock, True)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print(f"Waiting for another make, which holds {lock_path}.", file=sys.stderr)
    fcntl.flock(lock, fcntl.LOCK_EX)
os.execvp(command[0], command)
