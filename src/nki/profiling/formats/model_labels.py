"""What other formats call the kernels of a model: by their modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nki.profiling.record import Profile

_ALL = 0.995
"""Share from which a part counts as the whole kernel."""


def layers(profile: Profile) -> dict[int, str]:
    """The path of the module that has most of each kernel, by number; "" is the model itself, others are left out."""
    shares: dict[int, dict[int, float]] = {}
    for row in profile["kernels"].rows():
        if row["module"] >= 0:
            of = shares.setdefault(row["kernel"], {})
            of[row["module"]] = of.get(row["module"], 0.0) + row["share"]
    paths = profile["modules"]["path"]
    return {kernel: paths[max(of, key=of.__getitem__)] for kernel, of in shares.items()}


def kernel_facts(profile: Profile) -> dict[int, dict[str, str]]:
    """For each kernel its name, and the modules that it computes with their shares, by number."""
    found: dict[int, dict[str, str]] = {}
    modules = profile["modules"]
    for row in profile["kernels"].rows():
        facts = found.setdefault(row["kernel"], {"kernel": row["name"]})
        if row["operation"]:
            path = modules["path"][row["module"]] if row["module"] >= 0 else ""
            place = f"{row['operation']} in {path}" if path else row["operation"]
            shown = place if row["share"] > _ALL else f"{place} ({row['share']:.0%})"
            facts["module"] = f"{facts['module']}, {shown}" if "module" in facts else shown
    return found
