"""The functions of the installed package, on a trace of five thousand blocks of 1033 bytes."""

import sys
import threading

import flagstone
import pandas
import pyarrow

recorded = sys.argv[1]


def raises(kind, words, call):
    try:
        call()
    except kind as error:
        assert words in str(error), error
        assert "\n" not in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__} with {words!r}")


# plan: the rows of the command, as a table of each kind.
table = flagstone.plan(policy=["linux-6.5", "flagstone"], cpus=[224], page_size=4096, size=[256, 192])
assert len(table) == 4 and table.document["schema"] == "flagstone.plan/1"
assert table["size"] == [256, 256, 192, 192], table["size"]
arrow = table.to_arrow()
assert isinstance(arrow, pyarrow.Table) and arrow.num_rows == 4
assert arrow.column("objects").to_pylist() == [row["objects"] for row in table]
assert isinstance(table.to_pandas(), pandas.DataFrame)
assert pyarrow.table(table).equals(arrow), "a table is an Arrow stream"
assert flagstone.plan(zone_pages=1 << 22, cpus=8, policy="linux-6.7")["high_max"][0] > 0

# trace: as many events as the file says, allocations before their frees.
trace = flagstone.trace(recorded)
events = trace.to_arrow()
assert events.num_rows == len(trace) > 5000, len(trace)
assert trace.header["schema"] == "flagstone-trace/1"
frame = trace.to_pandas()
held = frame[(frame.event == "alloc") & (frame["size"] == 1033)]
assert len(held) >= 5000, len(held)
assert frame.ns.is_monotonic_increasing
assert sum(batch.num_rows for batch in trace.batches()) == len(trace)
dropped = trace.__arrow_c_stream__()
del dropped

# replay: real runs of the carried command.
replayed = flagstone.replay(recorded, against=["glibc"], runs=1)
assert replayed["allocator"] == ["flagstone", "glibc"], replayed["allocator"]
assert all(row["peak_rss_bytes"]["median"] > 500_000 for row in replayed)
assert replayed.to_arrow().num_rows == 2

# Mistakes are exceptions of one line; a panic is one too, and the next call works.
raises(ValueError, "did you mean '--policy'", lambda: flagstone.plan(polcy="linux-6.5", size=256))
raises(ValueError, "did you mean 'flagstone'", lambda: flagstone.plan(policy="flagstoen", size=256))
raises(ValueError, "not a flagstone-trace/1 file", lambda: flagstone.trace(flagstone.library()))
raises(OSError, "No such file", lambda: flagstone.trace(recorded + ".not"))
raises(ValueError, "replay", lambda: flagstone.replay(recorded + ".not"))
raises(flagstone.Error, "asked for", flagstone._native.panic)
assert len(flagstone.plan(size=64)) == 1

# Work is done without the interpreter's lock. Nobody is asked to give the lock away (the switch interval), so
# another thread that wakes up runs during the call only if the call gave it up; otherwise behind it.
sys.setswitchinterval(1000)
calling = False
seen = False


def look(gate):
    global seen
    with gate:
        seen = seen or calling


for _ in range(100):
    gate = threading.Lock()
    gate.acquire()
    other = threading.Thread(target=look, args=(gate,))
    other.start()
    calling = True
    gate.release()
    flagstone.plan(policy="linux-6.5", cpus=range(1, 257), size=range(64, 4096, 64))
    calling = False
    other.join()
    if seen:
        break
assert seen, "a call keeps the interpreter's lock"
print("all as expected")
