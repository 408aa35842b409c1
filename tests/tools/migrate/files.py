"""Files of old kernels that tests write, and what becomes of them."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np

from nki.driver.prepare import chosen_target
from nki.tools.migrate.whole import Whole, migrate_file
from nki.tools.options import options_of

IMPORTS = """\
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

"""


NEW_IMPORTS = IMPORTS.replace("neuronxcc.nki as nki", "nki").replace("neuronxcc.", "")


def rewritten(tmp_path: Path, body: str, given: str = "") -> Whole:
    path = tmp_path / "kernels.py"
    path.write_text(IMPORTS + textwrap.dedent(body))
    options = options_of()
    arrays = {}
    for each in filter(None, given.split(", ")):
        name, _, shape = each.partition("=")
        arrays[name] = np.random.default_rng(0).standard_normal(tuple(map(int, shape.split("x")))).astype(np.float32)
    return migrate_file(path, arrays, chosen_target("trn2", options.target, ""), options)
