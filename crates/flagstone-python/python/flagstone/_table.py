"""Rows that become Arrow tables or pandas frames when asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError as missing:
        raise ImportError("this needs pyarrow: pip install 'flagstone[arrow]'") from missing
    return pyarrow


class Table:
    """Rows of an answer, the document they came in (``document``), and runs that failed (``failures``)."""

    def __init__(
        self,
        rows: list[dict[str, Any]],
        document: dict[str, Any] | None = None,
        failures: list[str] | None = None,
    ) -> None:
        self.rows = rows
        self.document = document if document is not None else {"rows": rows}
        self.failures = failures or []

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in the order in which rows have them."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __getitem__(self, at: int | str) -> Any:
        """A row by number, or a column by name."""
        if isinstance(at, str):
            if at not in self.columns:
                raise KeyError(at)
            return [row.get(at) for row in self.rows]
        return self.rows[at]

    def __repr__(self) -> str:
        schema = self.document.get("schema", "flagstone")
        return f"<{schema}: {len(self)} rows of {', '.join(self.columns)}>"

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table``."""
        arrow = _arrow()
        return arrow.table({name: self[name] for name in self.columns})

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame``."""
        import pandas

        return pandas.DataFrame(self.rows, columns=self.columns)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)
