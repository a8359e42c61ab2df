"""`sharegroup processor` for spark-submit, with the same flags:

spark-submit jobs/share_group_processor.py --config conf/local.yaml --standby
"""

from __future__ import annotations

from sharegroup.programs.ending import run_program
from sharegroup.programs.processor import processor

if __name__ == "__main__":
    run_program(processor)
