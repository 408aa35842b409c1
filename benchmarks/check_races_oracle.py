"""How often the proof of schedules agrees with an oracle that runs every legal order, on random small programs.

Prints a table of verdicts: a false alarm is "racy" for an ordered program, a miss is "ordered" for a racy one. Usage:
``python benchmarks/check_races_oracle.py [--count N] [--seed FIRST] [--of queues|cores] [--json]``, from the root.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.passes.proof.agreement import table

VERDICTS = ("ordered", "racy", "stuck")


def main() -> int:
    """Count and print; returns 1 if there is any disagreement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--of", choices=("queues", "cores"), default="queues")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    started = time.process_time()
    found = table(range(options.seed, options.seed + options.count), options.of)
    misses = sum(count for (oracle, proof), count in found.items() if oracle != proof and proof == "ordered")
    alarms = sum(count for (oracle, proof), count in found.items() if oracle != proof and oracle == "ordered")
    wrong = sum(count for (oracle, proof), count in found.items() if oracle != proof)
    seconds = time.process_time() - started
    if options.json:
        rows = [{"oracle": a, "proof": b, "programs": found[a, b]} for a in VERDICTS for b in VERDICTS]
        print(json.dumps({"rows": rows, "misses": misses, "false_alarms": alarms, "wrong": wrong, "seconds": seconds}))
        return int(wrong > 0)
    print("oracle    " + "".join(f"{'proof: ' + verdict:>16}" for verdict in VERDICTS))
    for oracle in VERDICTS:
        print(f"{oracle:10}" + "".join(f"{found[oracle, proof]:16}" for proof in VERDICTS))
    print(f"{options.count} programs, {alarms} false alarms, {misses} misses, {seconds:.1f} s")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
