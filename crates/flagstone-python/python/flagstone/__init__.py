"""Flagstone from Python: its answers as tables, its command and its library in one package.

``plan``, ``sim``, ``sweep``, ``trace``, ``replay`` return tables: lists of rows that turn into Arrow tables or pandas frames
when asked. Options are those of the command of the same name, with ``_`` for ``-``; lists become several
values, ``True`` a flag. A mistake in a call is ``ValueError``; what fails otherwise is ``flagstone.Error``.
"""

from __future__ import annotations

import json as _json
from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

from . import _native
from ._command import command, library, run_json as _run_json
from ._lab import collect, digest, run, sim, specs, sweep
from ._native import Error
from ._table import Table, _arrow

__all__ = [
    "Error",
    "Table",
    "Trace",
    "collect",
    "command",
    "digest",
    "library",
    "plan",
    "replay",
    "run",
    "sim",
    "specs",
    "sweep",
    "trace",
]
__version__ = _native.version().split()[0]


def _words(options: Mapping[str, Any]) -> list[str]:
    """Keyword arguments as words of a command line."""
    words: list[str] = []
    for name, value in options.items():
        option = "--" + name.strip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
        elif isinstance(value, Mapping):
            for key, one in value.items():
                words += [option, f"{key}={one}"]
        elif isinstance(value, (list, tuple, range, set, frozenset)):
            for one in value:
                words += [option, str(one)]
        else:
            words += [option, fspath(value) if isinstance(value, PathLike) else str(value)]
    return words


class Trace:
    """A recorded trace. Its events are read from the file whenever they are asked for.

    It is an Arrow stream (``__arrow_c_stream__``): polars, DuckDB and others take it as it is.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._native = _native.Events(fspath(path))
        self.info: dict[str, Any] = _json.loads(self._native.header)

    @property
    def header(self) -> dict[str, Any]:
        """What was recorded, where and how."""
        return self.info["header"]

    @property
    def processes(self) -> list[dict[str, Any]]:
        """The programs."""
        return self.info["processes"]

    def __len__(self) -> int:
        return self.info["events"]

    def __repr__(self) -> str:
        words = " ".join(self.header["command"]) or self.header["recorder"]
        return f"<trace of {words!r}: {len(self)} events of {self.info['threads']} threads>"

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._native.__arrow_c_stream__(requested_schema)

    def batches(self) -> Any:
        """A ``pyarrow.RecordBatchReader``: for traces larger than memory."""
        return _arrow().RecordBatchReader.from_stream(self)

    def to_arrow(self) -> Any:
        """All events as a ``pyarrow.Table``, oldest first."""
        return self.batches().read_all()

    def to_pandas(self) -> Any:
        """All events as a ``pandas.DataFrame``, oldest first."""
        return self.to_arrow().to_pandas()


def plan(**options: Any) -> Table:
    """What policies choose for caches: ``plan(policy=["linux-6.5"], cpus=[224], size=[256, 192])``."""
    document = _json.loads(_native.plan(_words(options)))
    return Table(document.get("rows") or document.get("pcp") or [], document)


def trace(path: str | PathLike[str]) -> Trace:
    """A trace that ``flagstone record`` or ``flagstone trace import`` wrote."""
    return Trace(path)


def replay(path: str | PathLike[str], **options: Any) -> Table:
    """A trace run again on real threads: ``replay("app.fst", against=["glibc"], runs=5)``.

    Runs the carried command: allocators under test get processes of their own.
    """
    document = _run_json(["replay", fspath(path), *_words(options)])
    return Table(document["rows"], document)
