"""`sharegroup worker` for spark-submit, with the same flags:

spark-submit jobs/share_worker.py --config conf/local.yaml --group orders --topic orders handlers:handle
"""

from __future__ import annotations

from sharegroup.programs.ending import run_program
from sharegroup.programs.worker import worker

if __name__ == "__main__":
    run_program(worker)
