"""The language check: what Python cannot do with tensors and registers."""

from __future__ import annotations

from nki.frontend.check.language_check import check_function
from tests.frontend.check.checking import Load, expect, found, marked

# --------------------------------------------------------------------------------------------------- tensors, registers


def test_functions_of_the_host_on_tensors(load: Load) -> None:
    text = """
    def kernel(a, b, scale):
        rows, columns = a.shape
        x = nl.load(a)
        «np.exp(x)»
        «np.exp(a)»
        y = «np.linalg.norm(x[0:1].reshape((1, 4)))»
        z = «math.sqrt(nl.load(a))»
        np.sqrt(scale), np.prod(a.shape), np.shape(a), math.ceil(rows / 128), np.add(1, 2), np.exp(b)
        nisa.tensor_tensor(dst=x, data1=x, data2=x, op=np.add)
    """
    expect(load, text, *["warning tensor.numpy"] * 4)


def test_tensors_are_followed_into_helpers(load: Load) -> None:
    text = """
    def helper(x, n):
        return «np.exp(x)», np.sqrt(n)
    def host(x, n):
        return np.exp(x).shape, x.shape
    def kernel(a):
        host(np.eye(128), 3)
        return helper(nl.load(a), n=4)
    """
    expect(load, text, "warning tensor.numpy")


def test_a_name_with_two_meanings_is_not_judged(load: Load) -> None:
    text = """
    def kernel(a, flag):
        x = nl.load(a)
        if flag:
            x = 3.0
        if x:
            return np.exp(x)
        b = a.shape
        a = np.zeros(3)
        return np.exp(a)
    """
    expect(load, text)


def test_assignment_into_tensors(load: Load) -> None:
    text = """
    def kernel(a, sizes):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        out[0:128, :] = nl.load(a)
        out[0] = 0
        a[0] = out[0]
        tiles = [out]
        tiles[0] = nisa.dma_copy(dst=out, src=a)
        «out[0:128, :]» = nisa.dma_copy(dst=out, src=a)
        «a[1]» = None
        «out[0]» = tiles[0] = [1, 2]
        return out
    """
    expect(load, text, *["warning tensor.assignment"] * 3)


def test_operators_that_assign(load: Load) -> None:
    text = """
    def kernel(a, n):
        x = nl.load(a)
        «x[0:64]» += 1
        «a[0]» *= x
        n += a.shape[0]
        return x
    """
    expect(load, text, *["warning tensor.arithmetic"] * 2)


def test_what_is_advised_for_an_operator_that_changes_a_part(load: Load) -> None:
    text = """
    def kernel(a):
        x = nl.load(a)
        n = a.shape[0]
        x[0:4] /= 2
        x[0:4] /= n
        x[0:4] /= n + 1
        x[0:4] /= x
        x[0:4] //= 3
        a[0] %= x
        return x
    """
    kernel = load(text).kernel
    assert [finding.fix for finding in check_function(kernel) if finding.code == "tensor.arithmetic"] == [
        "write x[0:4] = nl.multiply(x[0:4], 1 / 2)",
        "write x[0:4] = nl.multiply(x[0:4], 1 / n)",
        "write x[0:4] = nl.multiply(x[0:4], 1 / (n + 1))",
        "write x[0:4] = nl.multiply(x[0:4], nl.reciprocal(x))",
        "write x[0:4] = nl.floor(nl.multiply(x[0:4], 1 / 3))",
        "write a[0] = nl.mod(nl.load(a[0]), x)",
    ]


def test_parameters_that_are_written_like_tensors(load: Load) -> None:
    text = """
    def kernel(a, rows, out, table):
        out[...] = nl.load(a)
        rows[0:128] = nl.load(a)
        «table["key"]» = 1
        «table[0]» = 1
    """
    expect(load, text, *["warning purity.argument"] * 2)
    expect(load, "def kernel(out):\n    out[:, 0] = 0\n    return «np.exp(out)»\n", "warning tensor.numpy")


def test_conditions_that_are_tensors(load: Load) -> None:
    text = """
    def kernel(a, mask=None):
        x = nl.load(a)
        if «x» and not «nl.equal(x, x)»:
            pass
        while «x[0:1]»:
            pass
        assert «x», "message"
        y = 1 if «x» else 2
        if x is None or mask or x.shape[0] > 1 or a:
            pass
        mask.shape
        return x or y
    """
    expect(load, text, *["warning tensor.truth"] * 5)


def test_registers_are_no_numbers(load: Load) -> None:
    text = """
    def kernel(a, b):
        r = nisa.register_alloc(1)
        n = nisa.scalar_load(b)
        while r:
            pass
        while n > 3:
            pass
        if «r»:
            pass
        if «n»:
            pass
        if «n > 3»:
            pass
        if «r == 1», 2:
            pass
        z = «r is n»
        y = r is None or r == None or n == 4
        «int(r)»
        for i in «range(n)»:
            pass
        for j in nl.dynamic_range(4):
            if «j»:
                pass
    """
    expect(load, text.replace("if «r == 1», 2:", "if [«r == 1»]:"), *["warning register.python-value"] * 8)


def test_results_that_nobody_takes(load: Load) -> None:
    text = """
    def kernel(a):
        x = nl.load(a)
        «nl.exp(x)»
        «x.reshape((4, 4))»
        nl.store(a, x)
        nisa.tensor_copy(dst=x, src=x)
        nl.device_print("x", x)
        print(x)
        y = nl.exp(x)
        a.append(1)
    """
    plain, places = marked(text)
    said = [each for each in found(load, plain) if each[1] == "tensor.unused"]
    assert said == [("warning", "tensor.unused", where) for where in places]


def test_columns_count_characters(load: Load) -> None:
    expect(load, 'def kernel(a):\n    x = nl.load(a); s = "größe µ"; «np.exp(x)»\n', "warning tensor.numpy")
