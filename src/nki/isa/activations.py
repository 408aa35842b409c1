"""Functions of single elements: activation and its relatives on Scalar, exponential and reciprocal on Vector."""

from __future__ import annotations

from typing import Annotated, Any

from nki.core.dtypes import (
    BY_NAME,
    bfloat16,
    float8_e4m3,
    float8_e5m2,
    float16,
    float32,
    int8,
    int16,
    int32,
    tfloat32,
    uint8,
    uint16,
    uint32,
)
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import View
from nki.isa import functions
from nki.isa.accumulator import (
    Command,
    OptionalOp,
    Result,
    accumulate,
    command_rule,
    held,
    operator_rule,
    result_rule,
    scalar_registers,
)
from nki.isa.alu import ABS_MAX, ABS_MIN, ADD, BYPASS, MAXIMUM, MINIMUM, MULTIPLY, RECIPROCAL, SUBTRACT, apply
from nki.isa.indirection import indirection_rules, no_indirection
from nki.isa.shared import on_partitions_of, same_elements
from nki.spec.arrays import Arrays
from nki.spec.cost import activates
from nki.spec.cost_vector import EXPONENTIAL, VECTOR_RECIPROCAL
from nki.spec.engine import engine as Engine
from nki.spec.engine import reduce_cmd
from nki.spec.instruction import instruction
from nki.spec.operand import ON_CHIP, Column, Dst, Flag, Name, Op, Operand, Src, column, out, source
from nki.spec.rule import Rule

_ISA = "nki/api/nki/isa"
_FUNCTIONS = "nki/api/nki.api.shared.rst, Supported Activation Functions"
_REDUCING = (reduce_cmd.reduce, reduce_cmd.reset_reduce)

_Float32Column = Annotated["float | NkiTensor", column((float32,))]
_ANY_BUT_TF32 = tuple(d for d in BY_NAME.values() if d.device and not d.is_packed and d is not tfloat32)
_Bias = Annotated["float | NkiTensor | None", Operand("column", reads=True, dtypes=_ANY_BUT_TF32)]

_Function = Annotated[Any, Operand("operator", example="nl.exp")]

_FUNCTION_RULE = Rule(
    "function",
    "op is a function of the activation unit",
    lambda a, t: a.op.activation,
    _FUNCTIONS,
    "use for example nl.exp; ALU operators run in nisa.tensor_scalar and nisa.tensor_tensor",
    lambda a, t: f"op is nl.{a.op}",
)

_NEEDS_OPERATOR = Rule(
    "reduce-op-missing",
    "a reducing reduce_cmd comes with reduce_op",
    lambda a, t: a.reduce_cmd not in _REDUCING or a.reduce_op is not None,
    _ISA,
    "pass reduce_op=nl.add",
    lambda a, t: f"reduce_cmd is {a.reduce_cmd.name}, reduce_op is missing",
)

_UNUSED_OPERATOR = Rule(
    "reduce-op-unused",
    "reduce_op comes with a reduce_cmd that uses it",
    lambda a, t: a.reduce_op is None or a.reduce_cmd is not reduce_cmd.idle,
    _ISA,
    "pass reduce_cmd=nisa.reduce_cmd.reset_reduce, or omit reduce_op",
    lambda a, t: f"reduce_cmd is {a.reduce_cmd.name}, so nothing is reduced",
    severity="warning",
)

_NO_SLOPE = Rule(
    "prelu-slope",
    "nl.prelu has a slope, which nisa.activate2 takes as relu_param",
    lambda a, t: a.op != functions.PRELU,
    _FUNCTIONS,
    "use nisa.activate2, or nl.relu for a slope of 0",
    lambda a, t: "op is nl.prelu, which has slope 0 here",
    severity="warning",
)

_COPY_BIAS = Rule(
    "copy-bias",
    "a bias is added by another function than nl.copy on NeuronCore-v2",
    lambda a, t: a.op != functions.COPY or (not isinstance(a.bias, View) and not a.bias) or t.has("scalar_copy_bias"),
    "github.com/aws-neuron/aws-neuron-sdk/issues/1296",
    "compute it on Vector: nisa.tensor_scalar(dst, data, op0=nl.multiply, operand0=scale, op1=nl.add, operand1=bias)",
    lambda a, t: f"op is nl.copy with a bias, which {t.name} is reported to leave out; here it is added, as documented",
    severity="warning",
)

_SCALE_AND_BIAS_RULES = [
    same_elements("dst", "data"),
    _FUNCTION_RULE,
    on_partitions_of("data", "scale", "bias"),
    Rule(
        "bias-immediate",
        "a bias other than 0 is a tensor where the target has no immediate bias",
        lambda a, t: isinstance(a.bias, View) or not a.bias or t.has("scalar_bias_immediate"),
        _ISA,
        "write the number to an SBUF tensor (P, 1) with nisa.memset, and pass that",
        lambda a, t: f"bias is {a.bias}, the target is {t.name}",
    ),
    Rule(
        "reciprocal-bias",
        "nl.reciprocal has a bias where the target has it",
        lambda a, t: a.op != RECIPROCAL or (not isinstance(a.bias, View) and not a.bias) or t.has("reciprocal_bias"),
        "nki/api/nki.api.shared.rst, NKI Engine Selection",
        "add the bias first with nisa.tensor_scalar",
        lambda a, t: f"op is nl.reciprocal and has a bias; {t.name} has no such bias",
    ),
    _NO_SLOPE,
    result_rule("data"),
    *indirection_rules("dst", "data", Engine.scalar),
]


@instruction(
    engines=(Engine.scalar,),
    source=_ISA,
    rules=[
        *_SCALE_AND_BIAS_RULES,
        _COPY_BIAS,
        operator_rule((ADD,)),
        _NEEDS_OPERATOR,
        _UNUSED_OPERATOR,
        command_rule(reduce_cmd.idle, reduce_cmd.reset, reduce_cmd.reduce, reduce_cmd.reset_reduce),
    ],
    steps=activates("Activate"),
    effects=scalar_registers,
)
def activation(
    dst: Dst,
    op: _Function,
    data: Src,
    bias: _Bias = None,
    scale: _Float32Column = 1.0,
    reduce_op: OptionalOp = None,
    reduce_res: Result = None,
    reduce_cmd: Command = reduce_cmd.idle,
    name: Name = None,
) -> None:
    """``dst = op(data * scale + bias)`` on Scalar, and on request the sum of the result over all free dimensions.

    Arithmetic is float32: the product rounds, the sum rounds, and the result rounds to the dtype of `dst`. Functions
    are valid in limited ranges (log, sin, arctan, sqrt, rsqrt, reciprocal); values outside are reported while running.
    ``op=nl.sin`` reduces no argument: outside -pi..pi it is a cubic, 27.65 at 9; calling nl.sin reduces first.

    The sum goes to the accumulator registers of Scalar, one for each partition, which keep their values between
    instructions: ``idle`` leaves them, ``reset`` sets them to 0, ``reduce`` adds to them, ``reset_reduce`` replaces
    them. What is summed are the float32 results before they round. `reduce_res` gets the registers after the command,
    and is written after `dst`, which it may overlap. (The pseudo code of the documents adds the registers twice with
    ``reduce``; its text says once, as here.)

    Args:
        dst, data: SBUF or PSUM, any dtype, the same partitions and elements per partition.
        op: nl.copy, exp, log, sqrt, rsqrt, reciprocal, square, abs, sign, sin, arctan, tanh, sigmoid, relu, prelu (with
            slope 0), gelu, gelu_dx, gelu_apprx_tanh, gelu_apprx_sigmoid, gelu_apprx_sigmoid_dx, silu, silu_dx,
            softplus, mish, erf or erf_dx.
        bias: tensor ``(P, 1)`` of any dtype but tfloat32, or a number, other than 0 only from NeuronCore-v3 on.
            nl.reciprocal has none on NeuronCore-v2.
        scale: a number, or a float32 tensor ``(P, 1)``.
        reduce_op: nl.add, needed by reduce and reset_reduce.
        reduce_res: ``(P, 1)`` in SBUF or PSUM.
    """


@activation.body
def _(a: Any, x: Arrays) -> None:
    result = _activated(a, x)
    accumulate(x, a.reduce_cmd, ADD, result, a.data.shape[0])
    x.store(a.dst, result)
    if a.reduce_res is not None:
        x.store(a.reduce_res, held(x, a.data.shape[0]))


def _activated(a: Any, x: Arrays) -> Any:
    """``op(data * scale + bias)``; no step for a scale of 1 and a bias that is not given, so that -0 stays -0."""
    values = x.load(a.data)
    if isinstance(a.scale, View) or a.scale != 1:
        values = x.multiply(values, x.column(a.scale))
    if a.bias is not None:
        values = x.add(values, x.column(a.bias))
    functions.check_domain(x, a.op, values)
    return functions.apply(x, a.op, values, x.constant(0.0))


@instruction(
    engines=(Engine.scalar,),
    source=_ISA,
    rules=[*_SCALE_AND_BIAS_RULES, operator_rule((ADD,))],
    steps=activates("Activate"),
    effects=("accumulator",),
)
def activation_reduce(
    dst: Dst,
    op: _Function,
    data: Src,
    reduce_op: Op,
    reduce_res: Annotated[NkiTensor, out()],
    bias: _Bias = None,
    scale: _Float32Column = 1.0,
    name: Name = None,
) -> None:
    """``dst = op(data * scale + bias)`` and ``reduce_res = sum of dst`` on Scalar.

    The same as `activation` with ``reduce_cmd=nisa.reduce_cmd.reset_reduce``; it overwrites the same registers.

    Args:
        dst, op, data, bias, scale: as in `activation`.
        reduce_op: nl.add.
        reduce_res: ``(P, 1)`` in SBUF or PSUM, written after `dst`.
    """


@activation_reduce.body
def _(a: Any, x: Arrays) -> None:
    result = _activated(a, x)
    accumulate(x, reduce_cmd.reset_reduce, ADD, result, a.data.shape[0])
    x.store(a.dst, result)
    x.store(a.reduce_res, held(x, a.data.shape[0]))


_STAGES = (
    (MULTIPLY, ADD),
    (MULTIPLY, SUBTRACT),
    (MULTIPLY, BYPASS),
    (ADD, BYPASS),
    (SUBTRACT, BYPASS),
    (BYPASS, BYPASS),
)


@instruction(
    engines=(Engine.scalar,),
    source=_ISA,
    feature="activate2",
    rules=[
        same_elements("dst", "data"),
        _FUNCTION_RULE,
        Rule(
            "stages",
            "(op0, op1) is (multiply, add), (multiply, subtract), (multiply, bypass), (add, bypass), "
            "(subtract, bypass) or (bypass, bypass)",
            lambda a, t: (a.op0, a.op1) in _STAGES,
            _ISA,
            "use nisa.tensor_scalar first",
            lambda a, t: f"op0 is nl.{a.op0}, op1 is nl.{a.op1}",
        ),
        Rule(
            "reverse",
            "an operator that is nl.bypass is not reversed",
            lambda a, t: not (a.reverse0 and a.op0 == BYPASS) and not (a.reverse1 and a.op1 == BYPASS),
            _ISA,
            "omit the reverse flag of the operator that is bypassed",
            lambda a, t: f"op0 is nl.{a.op0}, reverse0 {a.reverse0}; op1 is nl.{a.op1}, reverse1 {a.reverse1}",
        ),
        Rule(
            "immediate-dtypes",
            "imm0 and imm1 have the same dtype if both are tensors",
            lambda a, t: not (isinstance(a.imm0, View) and isinstance(a.imm1, View)) or a.imm0.dtype == a.imm1.dtype,
            _ISA,
            "cast one of them",
            lambda a, t: f"imm0 is {a.imm0.dtype}, imm1 is {a.imm1.dtype}",
        ),
        on_partitions_of("data", "imm0", "imm1", "relu_param"),
        Rule(
            "relu-param",
            "relu_param belongs to nl.prelu",
            lambda a, t: a.op == functions.PRELU or (not isinstance(a.relu_param, View) and a.relu_param == 0),
            _ISA,
            "omit relu_param",
            lambda a, t: f"op is nl.{a.op}, which has no parameter",
            severity="warning",
        ),
        operator_rule((ADD, MAXIMUM, MINIMUM, ABS_MAX, ABS_MIN)),
        _NEEDS_OPERATOR,
        _UNUSED_OPERATOR,
        command_rule(reduce_cmd.idle, reduce_cmd.reset, reduce_cmd.reduce, reduce_cmd.reset_reduce),
        result_rule("data"),
        *indirection_rules("dst", "data", Engine.scalar),
    ],
    steps=activates("Activate2"),
    effects=scalar_registers,
)
def activate2(
    dst: Dst,
    op: _Function,
    data: Src,
    imm0: Column,
    imm1: Column,
    op0: Op,
    op1: Op,
    relu_param: Column = 0.0,
    reverse0: Flag = False,
    reverse1: Flag = False,
    reduce_op: OptionalOp = None,
    reduce_res: Result = None,
    reduce_cmd: Command = reduce_cmd.idle,
    name: Name = None,
) -> None:
    """``dst = op((data <op0> imm0) <op1> imm1)`` on Scalar, with an optional reduction over all free dimensions.

    Arithmetic is float32 with one rounding to the dtype of `dst`. The accumulator registers are those of `activation`;
    ``reset`` and ``reset_reduce`` set them to the identity of `reduce_op` (of nl.add, if ``reset`` comes without one).
    nl.abs_max and nl.abs_min compare magnitudes and keep signs. (trainium3_arch.rst says that no instruction for this
    unit exists yet; the newer nki.isa has it.)

    Args:
        dst, data: SBUF or PSUM, any dtype, the same partitions and elements per partition.
        op: as in `activation`.
        imm0, imm1: numbers, or tensors ``(P, 1)`` of one dtype; not used with nl.bypass.
        op0, op1: (multiply, add), (multiply, subtract), (multiply, bypass), (add, bypass), (subtract, bypass), or
            (bypass, bypass).
        relu_param: slope of nl.prelu for negative values, a number or a tensor ``(P, 1)``.
        reverse0, reverse1: swap the operands of the operator.
        reduce_op: nl.add, maximum, minimum, abs_max or abs_min.
        reduce_res: ``(P, 1)`` in SBUF or PSUM, gets the registers after the command; written after `dst`.
    """


@activate2.body
def _(a: Any, x: Arrays) -> None:
    values = x.load(a.data)
    for operator, operand, reverse in ((a.op0, a.imm0, a.reverse0), (a.op1, a.imm1, a.reverse1)):
        if operator != BYPASS:
            values = apply(x, operator, values, x.column(operand), reverse)
    functions.check_domain(x, a.op, values)
    result = functions.apply(x, a.op, values, x.column(a.relu_param))
    accumulate(x, a.reduce_cmd, a.reduce_op or ADD, result, a.data.shape[0])
    x.store(a.dst, result)
    if a.reduce_res is not None:
        x.store(a.reduce_res, held(x, a.data.shape[0]))


_SMALL = (float8_e4m3, float8_e5m2, float16, bfloat16, float32)
_INTEGERS = (int8, int16, int32, uint8, uint16)


@instruction(
    engines=(Engine.vector,),
    source=_ISA,
    feature="exponential",
    rules=[
        same_elements("dst", "src"),
        on_partitions_of("src", "max_value", "reduce_init"),
        Rule(
            "rank",
            "src and dst have at most 4 dimensions",
            lambda a, t: a.src.ndim <= 4 and a.dst.ndim <= 4,
            _ISA,
            "merge dimensions with tensor.reshape",
            lambda a, t: f"src has {a.src.ndim} dimensions, dst has {a.dst.ndim}",
        ),
        command_rule(reduce_cmd.idle, reduce_cmd.reduce, reduce_cmd.load_reduce, reduce_cmd.reset_reduce),
        Rule(
            "reduce-init",
            "reduce_init is 0 unless reduce_cmd is load_reduce",
            lambda a, t: (
                a.reduce_cmd is reduce_cmd.load_reduce or (not isinstance(a.reduce_init, View) and a.reduce_init == 0)
            ),
            _ISA,
            "omit reduce_init, or pass reduce_cmd=nisa.reduce_cmd.load_reduce",
            lambda a, t: f"reduce_cmd is {a.reduce_cmd.name}",
        ),
        result_rule("src"),
        *indirection_rules("dst", "src", Engine.vector),
    ],
    steps=EXPONENTIAL,
    effects=("accumulator",),
)
def exponential(
    dst: Annotated[NkiTensor, out(ON_CHIP, (*_SMALL, tfloat32, *_INTEGERS))],
    src: Annotated[NkiTensor, source(ON_CHIP, (*_SMALL, *_INTEGERS, uint32))],
    max_value: _Float32Column = 0.0,
    reduce_res: Annotated[NkiTensor | None, out(ON_CHIP, (*_SMALL, tfloat32))] = None,
    reduce_cmd: Command = reduce_cmd.idle,
    reduce_init: _Float32Column = 0.0,
    name: Name = None,
) -> None:
    """``dst = exp(src - max_value)`` on Vector, with an optional sum over all free dimensions.

    Arithmetic is float32 with one rounding to the dtype of `dst`; the sum takes the values before it. The sum uses the
    accumulator registers of Vector, which all its reducing instructions share: ``reset_reduce`` starts from 0,
    ``reduce`` goes on, ``load_reduce`` starts from `reduce_init`; after ``idle`` their content is undefined, so that a
    ``reduce`` right after it is reported.

    Args:
        dst: SBUF or PSUM; e4m3, e5m2, 16-bit and 32-bit floats, tfloat32, or an integer but uint32.
        src: SBUF or PSUM; the same but tfloat32, or uint32. Up to 4 dimensions.
        max_value: a number, or a float32 tensor ``(P, 1)``.
        reduce_res: ``(P, 1)``, a float; gets the registers after the command, and is written after `dst`.
        reduce_init: a number, or a float32 tensor ``(P, 1)``; with ``load_reduce`` only.
    """


@exponential.body
def _(a: Any, x: Arrays) -> None:
    result = x.exp(x.subtract(x.load(a.src), x.column(a.max_value)))
    initial = x.column(a.reduce_init)
    accumulate(x, a.reduce_cmd, ADD, result, a.src.shape[0], initial)
    x.store(a.dst, result)
    if a.reduce_res is not None:
        x.store(a.reduce_res, held(x, a.src.shape[0]))


@instruction(
    engines=(Engine.vector,),
    source=_ISA,
    rules=[same_elements("dst", "data"), no_indirection()],
    steps=VECTOR_RECIPROCAL,
)
def reciprocal(dst: Dst, data: Src, name: Name = None) -> None:
    """``dst = 1 / data`` on Vector, in float32, rounded to the dtype of `dst`.

    More precise than ``nisa.activation(op=nl.reciprocal)`` and without its range, but eight cycles for each element.

    Args:
        dst, data: SBUF or PSUM, any dtype, the same partitions and elements per partition.
    """


@reciprocal.body
def _(a: Any, x: Arrays) -> None:
    x.store(a.dst, x.divide(x.constant(1.0), x.load(a.data)))
