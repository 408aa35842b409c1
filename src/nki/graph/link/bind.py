"""Which values are the same memory, and where bytes must be copied: results, what loops carry, what branches give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nki.core.source import Location
from nki.graph.ir import Function, Value
from nki.graph.link.steps import Choice, KernelRun, ModelLoop, ModelSteps, Step, ValueCopy


def bind(function: Function, steps: ModelSteps) -> tuple[Value, ...]:
    """Put copies into the steps; returns for each result of the function the value that holds it.

    A result has memory of its own, that of no argument, constant or other result, and of its own element type.
    """
    steps.steps = _block(steps.steps, steps)
    given = {*function.arguments, *steps.constants}
    outputs: list[Value] = []
    for result in function.results:
        root = steps.root(result)
        if root in given or root.type.dtype != result.type.dtype:
            target = Value(result.type, result.name)
            steps.steps.append(ValueCopy(result, target, Location()))
            root = target
        given.add(root)
        outputs.append(root)
    return tuple(outputs)


def reads(step: Step, steps: ModelSteps) -> list[Value]:
    """The memory that a step reads, also in what is in it, in order."""
    return list(dict.fromkeys(steps.root(value) for value in _read(step)))


def writes(step: Step, steps: ModelSteps) -> list[Value]:
    """The memory that a step writes, also in what is in it, in order."""
    return list(dict.fromkeys(steps.root(value) for value in _written(step)))


def _read(step: Step) -> Iterator[Value]:
    match step:
        case KernelRun():
            yield from step.reads
        case ValueCopy():
            yield step.source
        case ModelLoop():
            yield step.test
            for inner in (*step.condition, *step.body):
                yield from _read(inner)
        case Choice():
            yield step.index
            for branch, _ in step.branches:
                for inner in branch:
                    yield from _read(inner)


def _written(step: Step) -> Iterator[Value]:
    match step:
        case KernelRun():
            yield from step.writes
        case ValueCopy():
            yield step.target
        case ModelLoop():
            for inner in (*step.condition, *step.body):
                yield from _written(inner)
        case Choice():
            yield from step.results
            for branch, _ in step.branches:
                for inner in branch:
                    yield from _written(inner)


def _block(block: Sequence[Step], steps: ModelSteps) -> list[Step]:
    made: list[Step] = []
    for step in block:
        if isinstance(step, ModelLoop):
            made += _loop(step, steps)
        elif isinstance(step, Choice):
            made.append(_choice(step, steps))
        else:
            made.append(step)
    return made


def _loop(loop: ModelLoop, steps: ModelSteps) -> list[Step]:
    changed = []
    for first, carried, following in zip(loop.initial, loop.carried, loop.following, strict=True):
        if steps.root(following) is carried:
            steps.same[carried] = first  # every trip has the value from before the loop
        else:
            changed.append((first, carried, following))
    loop.condition = _block(loop.condition, steps)
    loop.body = _block(loop.body, steps)
    before: list[Step] = [ValueCopy(first, carried, loop.location) for first, carried, _ in changed]
    kept = [(carried, following) for _, carried, following in changed if not _in_place(carried, following, loop, steps)]
    loop.body += _at_once([ValueCopy(following, carried, loop.location) for carried, following in kept], steps)
    return [*before, loop]


def _at_once(copies: list[ValueCopy], steps: ModelSteps) -> list[ValueCopy]:
    """Copies in an order in which none overwrites what another one still reads; where there is none, through others."""
    made: list[ValueCopy] = []
    while copies:
        needed = {steps.root(copy.source) for copy in copies}
        free = [copy for copy in copies if copy.target not in needed or steps.root(copy.source) is copy.target]
        if not free:
            first = copies[0]
            kept = Value(first.target.type, first.target.name)
            made.append(ValueCopy(first.target, kept, first.location))
            copies = [
                ValueCopy(kept, c.target, c.location) if steps.root(c.source) is first.target else c for c in copies
            ]
            continue
        made += free
        copies = [copy for copy in copies if copy not in free]
    return made


def _in_place(carried: Value, following: Value, loop: ModelLoop, steps: ModelSteps) -> bool:
    """Whether the next trip's value is made where this trip's is: nobody reads that any more."""
    root = steps.root(following)
    at = next(
        (n for n, step in enumerate(loop.body) if not isinstance(step, ValueCopy) and root in writes(step, steps)), -1
    )
    alone = sum(steps.root(other) is root for other in loop.following) == 1
    later = {steps.root(other) for other in loop.following if other is not following}
    if at < 0 or not alone or carried in later or root.type != carried.type:
        return False
    if isinstance(loop.body[at], ModelLoop) or any(carried in reads(step, steps) for step in loop.body[at + 1 :]):
        return False
    if carried in reads(loop.body[at], steps) and not _is_within(loop.body[at], root, carried, steps):
        return False
    steps.same[root] = carried
    return True


def _is_within(step: Step, new: Value, old: Value, steps: ModelSteps) -> bool:
    """Whether a kernel makes a value in the memory of an operand, which it reads only once."""
    if not isinstance(step, KernelRun) or sum(steps.root(value) is old for value in step.reads) != 1:
        return False
    pairs = [(steps.root(step.writes[result]), steps.root(step.reads[operand])) for result, operand in step.within]
    return (new, old) in pairs


def _choice(choice: Choice, steps: ModelSteps) -> Choice:
    branches = []
    for block, results in choice.branches:
        made = _block(block, steps)
        own = {value for step in made for value in writes(step, steps)}
        for result, value in zip(choice.results, results, strict=True):
            root = steps.root(value)
            if root in own and root.type == result.type:
                steps.same[root] = result
                own.discard(root)
            else:
                made.append(ValueCopy(value, result, choice.location))
        branches.append((made, results))
    choice.branches = tuple(branches)
    return choice
