"""Figures of the house: how large its rooms are, which names are shared, what is kept, and which way a call takes.

usage: python scripts/house.py [--root DIR] [--json] [--pairs]
       python scripts/house.py walks [--root DIR] [--json]

The first form reads the sources below DIR/src/nki and runs nothing. ``walks`` runs kernels and a model with that
package and prints the files that a call enters, how often it goes from one file to another, and the calls that go up a
layer (scripts/figures/walks.py says how they are counted). DIR is this checkout unless another one is named, so that
two states can be compared with one script.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.figures import everything, walks

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("figures", "walks"), default="figures")
    parser.add_argument("--root", type=Path, default=ROOT, metavar="DIR", help="the checkout to look at")
    parser.add_argument("--json", action="store_true", help="print JSON, with all places")
    parser.add_argument("--pairs", action="store_true", help="print the class names that two share, too")
    options = parser.parse_args()
    root = options.root.resolve()
    found = everything.figures(root) if options.what == "figures" else walks.walks(root)
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        lines = everything.tables(found, options.pairs) if options.what == "figures" else walks.tables(found)
        print("\n".join(lines))


if __name__ == "__main__":
    main()
