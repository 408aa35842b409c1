"""``nki grade``: is a kernel of somebody else right, does it keep the rules, and how fast is it?"""

from __future__ import annotations

import secrets
from pathlib import Path

import click

from nki.driver.prepare import chosen_target
from nki.tools.grade.grade import GradeRequest, grade
from nki.tools.grade.inputs import KINDS
from nki.tools.grade.process.confine import Limits
from nki.tools.grade.process.files import read_files
from nki.tools.grade.reference import load_reference
from nki.tools.grade.sets import read_ranges, read_sets
from nki.tools.grade.show import grade_json, show_grade
from nki.tools.grade.trials import Judgement
from nki.tools.options import options_of, said_grid
from nki.tools.output import REFUSED, stdout, working, write_json
from nki.tools.request import kernel_command

_TOLERANCE = click.FloatRange(min=0)
_PATH = click.Path(path_type=Path, exists=True, dir_okay=False)
_SEED = 1 << 31


@kernel_command("grade", short_help="Judge a kernel: rules, values, time, and a score.")
@click.option("--reference", required=True, metavar="FILE::FUNCTION", help="NumPy function of the same arguments.")
@click.option("--baseline", metavar="FILE::KERNEL", help="A kernel for the same task, to compare times with.")
@click.option("--also", multiple=True, metavar="'NAME=VALUE ...'", help="Judge these arguments too; repeatable.")
@click.option("--only-given", is_flag=True, help="Judge no sizes that were not given.")
@click.option("--range", "ranges", multiple=True, metavar="NAME=LOW..HIGH", help="The numbers that an argument has.")
@click.option("--skip", multiple=True, type=click.Choice(list(KINDS)[1:]), help="Leave a kind of inputs out.")
@click.option("--file", "files", multiple=True, type=_PATH, help="A file that the kernel's file imports.")
@click.option("--rtol", type=_TOLERANCE, help="Relative tolerance, instead of what dtype and inputs explain.")
@click.option("--atol", type=_TOLERANCE, help="Absolute tolerance; default with --rtol: rtol times the RMS.")
@click.option("--seconds", type=click.FloatRange(min=1), default=60.0, show_default=True, help="Limit of time.")
@click.option("--memory", type=click.IntRange(512), default=4096, show_default=True, help="Limit of memory, in MiB.")
@click.pass_context
def command(  # noqa: PLR0913 - one parameter for each option
    context: click.Context,
    kernel: str,
    args: tuple[str, ...],
    target: str | None,
    lnc: int | None,
    seed: int,
    as_json: bool,
    reference: str,
    baseline: str | None,
    also: tuple[str, ...],
    only_given: bool,
    ranges: tuple[str, ...],
    skip: tuple[str, ...],
    files: tuple[Path, ...],
    rtol: float | None,
    atol: float | None,
    seconds: float,
    memory: int,
) -> None:
    """Judge a kernel that somebody else wrote, person or program.

    It is traced in a process that sees its own folder and nothing else. Its program is checked, compiled, executed on
    fresh inputs and timed here, where nothing of the kernel's file runs. Without --seed the inputs are new every time.

    Exit code 0: nothing is wrong with it. 1: something is, and the score is 0. 2: the command was used wrongly.
    """
    options = options_of(target)
    chip = chosen_target(options.target)
    options = options_of(chip.name)
    sets = read_sets(args, also)
    judgement = Judgement(
        reference=load_reference(reference, as_json),
        ranges=read_ranges(ranges, sets),
        rtol=rtol,
        atol=atol,
        skipped=frozenset(skip),
        seed=seed if _is_given(context, "seed") else secrets.randbelow(_SEED),
    )
    hidden = [Path(text.partition("::")[0]).resolve() for text in (reference, *filter(None, [baseline]))]
    request = GradeRequest(
        candidate=read_files(kernel, files, hidden),
        baseline=None if baseline is None else read_files(baseline, files, hidden[:1]),
        sets=sets,
        derive=not only_given,
        judgement=judgement,
        target=chip,
        options=options,
        lnc=lnc,
        limits=Limits(seconds=seconds, memory=memory << 20),
        grid=said_grid(),
    )
    with working(f"grading {kernel}"):
        made = grade(request)
    if as_json:
        write_json(grade_json(made))
    else:
        show_grade(stdout(), made)
    if not made.passed:
        raise click.exceptions.Exit(REFUSED)


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
