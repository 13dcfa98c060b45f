"""The command and the library that the package carries."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from ._native import Error


def command() -> str:
    """Where the command ``flagstone`` of this package lies."""
    schemes = [sysconfig.get_path("scripts")]
    schemes.append(sysconfig.get_path("scripts", f"{os.name}_user"))
    # pip install --target puts scripts beside the package.
    schemes.append(str(Path(__file__).parent.parent / "bin"))
    for folder in schemes:
        found = os.path.join(folder, "flagstone")
        if os.access(found, os.X_OK):
            return found
    found = shutil.which("flagstone")
    if found is None:
        raise Error(f"the command flagstone is in none of {', '.join(schemes)}; reinstall the package")
    return found


def library() -> str:
    """Where ``libflagstone.so.0`` of this package lies, for ``LD_PRELOAD``."""
    return str(Path(__file__).parent / "lib" / "libflagstone.so.0")


def run_json(words: list[str]) -> Any:
    """Runs the command with ``--json=-`` and gives its document."""
    done = subprocess.run([command(), *words, "--json=-"], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return json.loads(done.stdout)
    lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
    line = lines[-1].removeprefix("flagstone: ")
    raise ValueError(line) if done.returncode == 2 else Error(line)


def main() -> None:
    """``python -m flagstone``: the command itself, in this process's place."""
    os.execv(command(), ["flagstone", *sys.argv[1:]])
