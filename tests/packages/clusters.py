"""The examples on real clusters of several processes, one of which is killed in the middle."""

import os
import signal
import sys
import time

import flagstone

sys.path.insert(0, sys.argv[2])
kind = sys.argv[1]

GRID = {
    "workload": "random-mix",
    "machine": "x86-16@4",
    "policy": ["flagstone", "linux-7.0"],
    "tasks": [1, 2],
    "seeds": 8,
    "window": "2ms",
}
specs = flagstone.specs(GRID)
assert len(specs) == 32
wanted = sorted(flagstone.digest(spec) for spec in specs)


def kill(process):
    os.kill(process, signal.SIGKILL)


def check(rows):
    assert sorted(row["spec_digest"] for row in rows) == wanted, "every row once"
    one = next(row for row in rows if row["spec_digest"] == flagstone.digest(specs[0]))
    assert one == flagstone.run(specs[0]), "the same figures on a worker as here"


def on_dask():
    from dask.distributed import Client, LocalCluster

    import dask_sweep

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            victim = list(client.run(os.getpid).values())[0]
            rows = []
            for row in dask_sweep.records(client, specs):
                rows.append(row)
                if len(rows) == 3:
                    kill(victim)
            check(rows)
            until = time.monotonic() + 60
            while len(client.scheduler_info()["workers"]) < 2:
                assert time.monotonic() < until, "the killed worker was not replaced"
                time.sleep(0.1)
            assert victim not in client.run(os.getpid).values(), "the worker was killed"


def on_ray():
    import ray

    import ray_sweep

    ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)

    @ray.remote(num_cpus=1, max_retries=0)
    def place():
        return os.getpid()

    victim = ray.get(place.remote())
    rows = []
    for row in ray_sweep.records(specs):
        rows.append(row)
        if len(rows) == 3:
            kill(victim)
    check(rows)
    ray.shutdown()


if __name__ == "__main__":
    {"dask": on_dask, "ray": on_ray}[kind]()
    print("every row once")
