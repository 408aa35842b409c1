"""Honest kernels pass, and their grade says how fast they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from nki.core.errors import UsageError
from nki.tools.grade.grade import Grade
from tests.tools.grade import kernels
from tests.tools.grade.grading import ADD, codes, graded

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize(
    ("name", "source", "args"),
    [
        ("matmul", kernels.MATMUL, ("x=128x64:bfloat16", "w=128x96:bfloat16")),
        ("softmax", kernels.SOFTMAX, ("x=130x40:float32",)),
        ("increment", kernels.INCREMENT, ADD),
    ],
)
def test_kernels_pass(tmp_path: Path, name: str, source: str, args: tuple[str, ...]) -> None:
    made = graded(tmp_path, source, args, name=name, derive=True)
    assert codes(made) == [], [finding.message for finding in made.findings]
    assert all(trial.passed for trial in made.trials)
    assert 0.0 < made.score < 100.0


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> Grade:
    """A kernel against a slower baseline, traced in two processes, with a derived set of sizes."""
    folder = tmp_path_factory.mktemp("added")
    return graded(folder, kernels.ADD, baseline=kernels.SLOW_ADD, derive=True, traces=2)


def test_a_grade_has_all_kinds_and_a_derived_set(added: Grade) -> None:
    asked = [(trial.question.number, trial.question.kind.name) for trial in added.trials if not trial.question.note]
    first = [(0, name) for name in ("normal", "again", "large", "tiny", "mixed", "zeros", "nan", "infinite")]
    assert asked == [*first, (1, "normal"), (1, "mixed")]
    assert str(added.sets[1]) == "a=128x32:float32 b=128x32:float32"
    assert len({trial.question.seed for trial in added.trials}) == 10


def test_a_faster_kernel_than_the_baseline_has_more_than_half_of_the_score(added: Grade) -> None:
    assert codes(added) == []
    assert added.times is not None
    assert added.times.speedup is not None
    assert added.times.speedup > 1.0
    assert added.score > 50.0


def test_the_program_that_is_judged_is_the_one_that_a_call_runs(added: Grade) -> None:
    """The same IR, whatever process traced it."""
    assert len(added.fingerprints) == 2


def test_indices_have_a_range(tmp_path: Path) -> None:
    args = ("table=20x16:float32", "index=8x1:int32")
    with pytest.raises(UsageError) as caught:
        graded(tmp_path, kernels.GATHER, args, name="gather")
    assert caught.value.code == "grade.reference"
    assert codes(graded(tmp_path, kernels.GATHER, args, name="gather", ranges=("index=0..19",))) == []


def test_a_package_and_a_refusal_of_other_sizes(tmp_path: Path) -> None:
    """All of the package is there but the reference in it; sizes that a kernel refuses are noted."""
    refuses = kernels.ADD.replace(
        "    rows, columns", "    if a.shape[0] != SIZE:\n        raise ValueError('no')\n    rows, columns"
    )
    made = graded(tmp_path, "from .sizes import SIZE\n" + refuses, derive=True, package={"sizes.py": "SIZE = 64\n"})
    assert codes(made) == []
    assert any("does not take a=128x32:float32" in note for note in made.notes)
    lost = graded(tmp_path, "from .references import add\n" + kernels.ADD, package={"__init__.py": ""})
    assert codes(lost) == ["kernel.import"]
    assert "--file" not in lost.findings[-1].fix
