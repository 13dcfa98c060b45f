"""Simulated runs and sweeps from the installed package."""

import os
import sys

import flagstone

folder = sys.argv[1]
grid = {"workload": "random-mix", "machine": "x86-16@4", "tasks": [1, 2], "window": "1ms", "seeds": [1, 2, 3]}

# sim: a row for each run; the same as the command's own records by their digests.
table = flagstone.sim(cache=False, policy=["flagstone", "linux-7.0"], **grid)
assert len(table) == 12 and not table.failures, table
assert {row["policy"] for row in table} == {"flagstone", "linux-7.0"}
assert all(row["ops_per_task_per_s"] > 0 for row in table)
assert table.to_arrow().num_rows == 12
assert len(table.to_pandas()) == 12
again = flagstone.sim(cache=False, jobs=1, policy=["flagstone", "linux-7.0"], **grid)
assert again.rows == table.rows, "the same figures by one thread as by several"

# knobs and cases, and mistakes in them.
knobs = flagstone.specs({**grid, "knobs": {"sheaf_capacity": [16, 32]}})
assert len(knobs) == 12
cases = flagstone.specs({**grid, "case": [{"policy": "linux-6.5", "knobs": {"cpu_partial": [30, 60]}}, {"policy": "flagstone"}]})
assert len(cases) == 18, len(cases)
for wrong, words in [({"workload": "hackbnch"}, "hackbench"), ({"workload": "mmap1", "polcy": "x"}, "policy")]:
    try:
        flagstone.specs(wrong)
    except ValueError as error:
        assert words in str(error), error
    else:
        raise AssertionError(wrong)

# sweep: what is there is not made again; parts have no row in common and are the whole together.
runs = os.path.join(folder, "runs")
first = flagstone.sweep(grid, runs, shard="1/2")
second = flagstone.sweep(grid, runs, shard="2/2")
digests = [row["spec_digest"] for row in [*first, *second]]
assert len(digests) == len(set(digests)) == 6 == len(flagstone.collect(runs))
before = {name: os.stat(os.path.join(runs, name)).st_mtime_ns for name in os.listdir(runs)}
assert len(flagstone.sweep(grid, runs)) == 6
after = {name: os.stat(os.path.join(runs, name)).st_mtime_ns for name in os.listdir(runs)}
assert before == after, "nothing is made twice"
print("all as expected")
