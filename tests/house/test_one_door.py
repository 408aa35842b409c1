"""There is one place that chooses a target where nobody names one, and the environment is read at the front doors."""

from __future__ import annotations

from pathlib import Path

from scripts.figures import choices
from scripts.figures.tree import sources

READ = ("load_target", "from_environment")
SOURCES = [each for each in sources(Path(__file__).resolve().parents[2]) if any(name in each.text for name in READ)]
"""A small part of the package, which is parsed."""

DOORS = ("nki/driver/", "nki/tools/")


def test_the_default_target_is_chosen_in_one_place() -> None:
    assert choices.default_targets(SOURCES) == {"nki/driver/prepare.py": 1}


def test_the_environment_is_read_by_the_driver_and_the_command_line() -> None:
    read = choices.environment(SOURCES)
    assert read and [path for path in read if not path.startswith(DOORS)] == []
