"""A Dask cluster on this machine: prints its address, and lives until nobody can write to it any more.

cluster_program.py WORKERS
"""

import sys

from distributed import LocalCluster

if __name__ == "__main__":
    options = {"n_workers": int(sys.argv[1]), "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options, silence_logs=50) as cluster:
        sys.stdout.write(f"{cluster.scheduler_address}\n")
        sys.stdout.flush()
        sys.stdin.read()
