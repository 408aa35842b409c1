"""`python -m nki`: the command, for where the scripts of an environment are not on the path."""

from __future__ import annotations

from nki.tools.cli import main

if __name__ == "__main__":
    main(prog_name="nki")
