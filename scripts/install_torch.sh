#!/usr/bin/env bash
# Installs a CPU build of torch: from the CPU index, or else, saying so, from the index that pip is set up with.
# usage: install_torch.sh PYTHON REQUIREMENT INDEX
set -euo pipefail

python=$1 requirement=$2 index=$3

pip_install() { "$python" -m pip --disable-pip-version-check --quiet install "$@"; }

if "$python" -c "import importlib.metadata as m, sys; sys.exit(m.version('torch').split('+')[0] != '${requirement#torch==}')" \
    2>/dev/null; then
    exit 0
fi

# Without dependencies, so that an unreachable index costs one short try; they come with the tests' other requirements.
if ! pip_install --no-deps --timeout 5 --retries 0 --index-url "$index" "$requirement"; then
    {
        echo "=========================================================================================="
        echo "WARNING: no $requirement from the CPU index $index"
        echo "         trying the plain index instead. On Linux that may be a CUDA build of several GB;"
        echo "         to avoid it, stop here and give a CPU wheel: make TORCH_INDEX=URL, or PIP_FIND_LINKS=DIR."
        echo "=========================================================================================="
    } >&2
    pip_install "$requirement"
fi

"$python" - <<'END'
import importlib.metadata
from pathlib import Path

torch = importlib.metadata.distribution("torch")
facts = {}
exec(Path(torch.locate_file("torch/version.py")).read_text(), facts)
if facts["cuda"]:
    print(f"WARNING: torch {torch.version} is a CUDA build; the tests need none of that")
else:
    print(f"torch {torch.version}, a build without CUDA")
END
