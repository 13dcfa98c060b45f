"""Runs on virtual CPUs: specs, records, sweeps.

A spec is a string: everything that decides a run, as JSON. It can be sent anywhere; ``run`` makes its record.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any

from . import _native
from ._native import Error
from ._table import Table

Plan = "str | PathLike[str] | Mapping[str, Any]"

# Runs of one call into the extension: between two, Ctrl-C is heard.
_BATCH = 256


def _toml(axes: Mapping[str, Any]) -> str:
    """Axes as the text of a sweep's file. JSON's words, numbers, texts and lists are TOML's, too."""

    def inline(value: Any) -> str:
        if isinstance(value, Mapping):
            return "{ " + ", ".join(f"{json.dumps(k)} = {inline(v)}" for k, v in value.items()) + " }"
        if isinstance(value, (range, set, frozenset, tuple)):
            value = list(value)
        return json.dumps(value)

    lines = [f"{json.dumps(key)} = {inline(value)}" for key, value in axes.items() if key != "case"]
    for case in axes.get("case", []):
        lines.append("[[case]]")
        lines += [f"{json.dumps(key)} = {inline(value)}" for key, value in case.items()]
    return "\n".join(lines) + "\n"


def specs(plan: Plan, shard: str = "1/1") -> list[str]:
    """The runs of a sweep: of a file, or of its keys as a mapping. ``shard`` as in ``flagstone sweep``."""
    if isinstance(plan, Mapping):
        return _native.specs("the sweep", _toml(plan), ".", shard)
    path = fspath(plan)
    with open(path, encoding="utf-8") as file:
        return _native.specs(path, file.read(), os.path.dirname(path) or ".", shard)


def digest(spec: str) -> str:
    """The identity of a spec: equal digests, equal figures."""
    return _native.digest(spec)


def run(spec: str) -> dict[str, Any]:
    """One run, on the calling thread: its record."""
    return json.loads(_native.run(spec))


def _failed(failures: Sequence[str], rows: Sequence[Any]) -> None:
    if failures and not rows:
        raise Error(failures[0])


def sim(
    workload: str | list[str],
    *,
    jobs: int | None = None,
    cache: bool = True,
    **axes: Any,
) -> Table:
    """Runs here and now: ``sim("mmap1", machine="spr-2s-224@16", policy=["linux-7.0", "flagstone"], seeds=3)``.

    Each keyword is a key of a sweep's file (docs/sweep.md) and takes a value or a list; every combination is a
    run, and a row. Runs that failed are lines in ``failures``.
    """
    wanted = specs({"workload": workload, **{k: v for k, v in axes.items() if v is not None}})
    rows, failures = [], []
    for at in range(0, len(wanted), _BATCH):
        for record, why in _native.sim(wanted[at : at + _BATCH], jobs, cache):
            if record is not None:
                rows.append(json.loads(record))
            else:
                failures.append(why)
    _failed(failures, rows)
    return Table(rows, failures=failures)


def sweep(
    plan: Plan,
    out: str | PathLike[str],
    *,
    shard: str = "1/1",
    jobs: int | None = None,
) -> Table:
    """Makes those runs of a sweep that the folder ``out`` lacks, and gives all records of its part.

    Killed at any instant, the next call goes on.
    """
    wanted = specs(plan, shard)
    failures: list[str] = []
    for at in range(0, len(wanted), _BATCH):
        failures += _native.sweep(wanted[at : at + _BATCH], fspath(out), jobs)
    part = {digest(spec) for spec in wanted}
    rows = [row for row in collect(out) if row["spec_digest"] in part]
    _failed(failures, rows)
    return Table(rows, failures=failures)


def collect(out: str | PathLike[str]) -> Table:
    """All records of a sweep's folder."""
    return Table([json.loads(record) for record in _native.collect(fspath(out))])
