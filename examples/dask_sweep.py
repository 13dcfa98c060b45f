"""A sweep on Dask: every run is a task of its own, wherever the scheduler has workers.

    pip install flagstone pyarrow 'dask[distributed]'
    python dask_sweep.py grid.toml rows.parquet                          # a cluster on this machine
    python dask_sweep.py grid.toml rows.parquet --scheduler tcp://host:8786

Workers need the package ``flagstone`` of the same version, and nothing else: a task is a text, its result a
record. A worker that dies loses the run it was at; Dask makes it again elsewhere.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import flagstone
from dask.distributed import Client, LocalCluster, as_completed


def records(client: Client, specs: list[str]) -> Iterator[dict[str, Any]]:
    """The record of each spec, once, as they are made."""
    keys = ["run-" + flagstone.digest(spec) for spec in specs]
    futures = client.map(flagstone.run, specs, key=keys, retries=2)
    for future in as_completed(futures):
        yield future.result()
        future.release()


def main() -> None:
    parser = argparse.ArgumentParser(description="a sweep on Dask")
    parser.add_argument("grid", help="the sweep's file (docs/sweep.md)")
    parser.add_argument("out", help="the table, as Parquet")
    parser.add_argument("--scheduler", help="address of a scheduler [default: a cluster here]")
    parser.add_argument("--workers", type=int, help="workers of a cluster here [default: its cores]")
    asked = parser.parse_args()
    specs = flagstone.specs(asked.grid)
    # One thread for each worker: a run needs a core, and a run that ends its process ends no other.
    cluster = asked.scheduler or LocalCluster(n_workers=asked.workers, threads_per_worker=1)
    with Client(cluster) as client:
        rows = list(records(client, specs))
    import pyarrow.parquet

    pyarrow.parquet.write_table(flagstone.Table(rows).to_arrow(), asked.out)
    print(f"{len(rows)} rows in {asked.out}")


if __name__ == "__main__":
    main()
