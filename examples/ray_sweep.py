"""A sweep on Ray: every run is a task of its own, wherever the cluster has cores.

    pip install flagstone pyarrow ray
    python ray_sweep.py grid.toml rows.parquet                   # this machine
    python ray_sweep.py grid.toml rows.parquet --address auto    # the cluster this machine belongs to

Workers need the package ``flagstone`` of the same version, and nothing else: a task is a text, its result a
record. A worker that dies loses the run it was at; Ray makes it again elsewhere.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import flagstone
import ray

# Tasks handed to Ray at a time: enough for every core to have the next one at hand.
AHEAD = 1000


@ray.remote(num_cpus=1, max_retries=3)
def one(spec: str) -> dict[str, Any]:
    """One run."""
    return flagstone.run(spec)


def records(specs: list[str]) -> Iterator[dict[str, Any]]:
    """The record of each spec, once, as they are made."""
    waiting = iter(specs)
    under_way: list[Any] = []
    while True:
        for spec in waiting:
            under_way.append(one.remote(spec))
            if len(under_way) >= AHEAD:
                break
        if not under_way:
            return
        done, under_way = ray.wait(under_way)
        yield from ray.get(done)


def main() -> None:
    parser = argparse.ArgumentParser(description="a sweep on Ray")
    parser.add_argument("grid", help="the sweep's file (docs/sweep.md)")
    parser.add_argument("out", help="the table, as Parquet")
    parser.add_argument("--address", help="address of a cluster [default: one on this machine]")
    asked = parser.parse_args()
    ray.init(address=asked.address)
    rows = list(records(flagstone.specs(asked.grid)))
    import pyarrow.parquet

    pyarrow.parquet.write_table(flagstone.Table(rows).to_arrow(), asked.out)
    print(f"{len(rows)} rows in {asked.out}")


if __name__ == "__main__":
    main()
