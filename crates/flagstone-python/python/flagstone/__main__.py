"""``python -m flagstone``: the command."""

from ._command import main

main()
