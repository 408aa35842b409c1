"""Attention for one head, without ever storing the matrix of scores: the forward pass of flash attention.

The scores of 2048 queries and 2048 keys would take 16 MiB in float32, most of SBUF. Here they exist only in pieces of
128 queries x 512 keys. Each piece updates three things that are kept per query: the largest score so far, the sum of
the exponentials, and the weighted sum of the values. When a larger score turns up, what was summed before is scaled
down to the new maximum, so that no exponential ever exceeds 1.

    nki run examples/flash_attention.py \\
        --arg q=128x2048:bfloat16 --arg k=128x2048:bfloat16 --arg v=2048x128:bfloat16 --target trn2
"""

from dataclasses import dataclass

import nki
import nki.isa as nisa
import nki.language as nl

HEAD = 128  # head dimension: it fills the 128 rows of the Tensor engine
QUERIES = 128  # queries per piece: one per partition
KEYS = 512  # keys per piece: 512 float32 scores fill one PSUM bank of 2 KiB
CHUNK = 128  # keys that the second product contracts at once: again the 128 rows of the Tensor engine
CHUNKS = KEYS // CHUNK

# Stands for minus infinity: its exponential is 0, and unlike infinity it survives being multiplied by 0.
LOWEST = -1.0e30


@nki.jit
def flash_attention(q, k, v, causal=True):
    """Return ``softmax(q.T @ k / sqrt(128)) @ v``, on one core or, as ``flash_attention[2]``, on two.

    q and k come with the head dimension first: the Tensor engine contracts over partitions, so that queries and keys
    can be multiplied as they are loaded. v comes with the keys first, because the second product contracts over keys.

    Args:
        q: (128, sequence), bfloat16; the sequence is a multiple of 512.
        k: (128, sequence), bfloat16.
        v: (sequence, 128), bfloat16.
        causal: a query sees only the keys up to its own position.

    Returns:
        (sequence, 128) in the dtype of q.
    """
    check_shapes(q, k, v)
    sequence = q.shape[1]
    out = nl.ndarray((sequence, HEAD), dtype=q.dtype, buffer=nl.shared_hbm)
    keys, values = load_keys(k), load_values(v)
    # Queries are independent of each other, so the cores take turns. Under a causal mask later queries cost more;
    # taking turns instead of halves gives every core the same work.
    for start in range(nl.program_id(0) * QUERIES, sequence, nl.num_programs(0) * QUERIES):
        attend(out, q, keys, values, start, causal)
    return out


def check_shapes(q, k, v):
    """Refuse what the tiling below would handle wrongly; a kernel is Python, so it can say so itself."""
    sequence = q.shape[1]
    if q.shape != (HEAD, sequence) or k.shape != q.shape or v.shape != (sequence, HEAD) or sequence % KEYS:
        raise ValueError(
            f"q and k must be ({HEAD}, sequence), v (sequence, {HEAD}), and sequence a multiple of {KEYS}; "
            f"they are {q.shape}, {k.shape} and {v.shape}"
        )


def load_keys(k):
    """All keys in SBUF, (128, sequence): read once from HBM, used by every query."""
    keys = nl.ndarray(k.shape, dtype=k.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=keys, src=k)
    return keys


def load_values(v):
    """All values in SBUF in chunks of 128 keys, a list of (128, 128): the keys of a chunk lie on the partitions."""
    chunks = []
    for start in range(0, v.shape[0], CHUNK):
        chunk = nl.ndarray((CHUNK, HEAD), dtype=v.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=chunk, src=v[start : start + CHUNK, 0:HEAD])
        chunks.append(chunk)
    return chunks


@dataclass
class Running:
    """What is known about 128 queries after some of the keys, all in float32: (128, 1), (128, 1) and (128, 128)."""

    maximum: object
    total: object
    output: object


def attend(out, q, keys, values, start, causal):
    """One piece of 128 queries, from `start` on, against all keys that it sees."""
    queries = nl.ndarray((HEAD, QUERIES), dtype=q.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=queries, src=q[0:HEAD, start : start + QUERIES])
    running = begin()
    seen = start + QUERIES if causal else keys.shape[1]
    for first in range(0, seen, KEYS):
        piece = scores(queries, keys[0:HEAD, first : first + KEYS])
        # Only the piece on the diagonal holds keys from both sides of the mask.
        if causal and first + KEYS > start:
            piece = hide_future(piece, start - first)
        chunks = values[first // CHUNK : first // CHUNK + CHUNKS]
        update(running, piece, chunks, q.dtype)
    finish(out, running, start)


def begin():
    """Before the first key: nothing was summed, and every score is larger than the maximum."""
    running = Running(column(), column(), nl.ndarray((QUERIES, HEAD), dtype=nl.float32, buffer=nl.sbuf))
    nisa.memset(dst=running.maximum, value=LOWEST)
    nisa.memset(dst=running.total, value=0.0)
    nisa.memset(dst=running.output, value=0.0)
    return running


def column():
    """One float32 per query."""
    return nl.ndarray((QUERIES, 1), dtype=nl.float32, buffer=nl.sbuf)


def scores(queries, keys):
    """``queries.T @ keys`` in PSUM, a query per partition: engines reduce along the free dimension."""
    piece = nl.ndarray((QUERIES, KEYS), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=piece, stationary=queries, moving=keys)
    return piece


def hide_future(piece, ahead):
    """The scores with LOWEST where the key comes after the query; `ahead` is the first query minus the first key."""
    # The mask is made on GpSimd, which cannot reach PSUM.
    copied = nl.ndarray(piece.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=copied, src=piece)
    masked = nl.ndarray(piece.shape, dtype=nl.float32, buffer=nl.sbuf)
    # Row p, column i stand for query ahead + p and key i: keep the score where ahead + p - i >= 0.
    nisa.affine_select(
        dst=masked,
        pattern=[[-1, KEYS]],
        channel_multiplier=1,
        offset=ahead,
        on_true_tile=copied,
        on_false_value=LOWEST,
        cmp_op=nl.greater_equal,
    )
    return masked


def update(running, piece, values, dtype):
    """Take the scores of 512 more keys into account."""
    maximum = new_maximum(running.maximum, piece)
    weights, total, shrink = exponentials(running.maximum, maximum, piece, dtype)
    running.maximum = maximum
    # total = total * shrink + the sum of the new weights; the same for the output, straight from PSUM.
    running.total = shrink_and_add(running.total, shrink, total)
    running.output = shrink_and_add(running.output, shrink, weighted_values(weights, values))


def new_maximum(old, piece):
    """The larger of the old maximum and the largest new score, per query."""
    largest, maximum = column(), column()
    nisa.tensor_reduce(dst=largest, op=nl.maximum, data=piece, axis=1)
    nisa.tensor_tensor(dst=maximum, data1=old, data2=largest, op=nl.maximum)
    return maximum


def exponentials(old, maximum, piece, dtype):
    """``exp((score - maximum) / sqrt(128))`` of the piece, its sum per query, and the same for the old maximum.

    The Scalar engine multiplies by a scale, adds a bias, takes the exponential and sums up the row in one pass, so that
    scores are neither scaled nor shifted beforehand.
    """
    scale = HEAD**-0.5
    bias, shrink, total = column(), column(), column()
    nisa.tensor_scalar(dst=bias, data=maximum, op0=nl.multiply, operand0=-scale)
    nisa.activation(dst=shrink, op=nl.exp, data=old, bias=bias, scale=scale)
    # The weights go back into the Tensor engine, which is four times as fast on bfloat16 as on float32. Their sum is
    # taken before they are rounded.
    weights = nl.ndarray((QUERIES, KEYS), dtype=dtype, buffer=nl.sbuf)
    nisa.activation(
        dst=weights,
        op=nl.exp,
        data=piece,
        bias=bias,
        scale=scale,
        reduce_op=nl.add,
        reduce_res=total,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    )
    return weights, total, shrink


def shrink_and_add(old, shrink, new):
    """``old * shrink + new`` in one pass of the Vector engine."""
    result = nl.ndarray(old.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.scalar_tensor_tensor(dst=result, data=old, op0=nl.multiply, operand0=shrink, op1=nl.add, operand1=new)
    return result


def weighted_values(weights, values):
    """``weights @ values`` in PSUM, (128, 128): the sum over 512 keys in four chunks, added up where they are."""
    transposed = transpose(weights)
    product = nl.ndarray((QUERIES, HEAD), dtype=nl.float32, buffer=nl.psum)
    for chunk in range(CHUNKS):
        here = slice(chunk * QUERIES, (chunk + 1) * QUERIES)
        nisa.nc_matmul(dst=product, stationary=transposed[0:CHUNK, here], moving=values[chunk], accumulate=chunk > 0)
    return product


def transpose(weights):
    """Each chunk of 128 keys with the keys on the partitions, side by side: the second product contracts over keys."""
    # The Tensor engine writes only to PSUM and reads only from SBUF. Four transposes share one PSUM tensor, so that one
    # copy brings them back.
    in_psum = nl.ndarray((CHUNK, CHUNKS * QUERIES), dtype=weights.dtype, buffer=nl.psum)
    for chunk in range(CHUNKS):
        keys = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
        here = slice(chunk * QUERIES, (chunk + 1) * QUERIES)
        nisa.nc_transpose(dst=in_psum[0:CHUNK, here], data=weights[0:QUERIES, keys], engine=nisa.engine.tensor)
    transposed = nl.ndarray(in_psum.shape, dtype=weights.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=transposed, src=in_psum)
    return transposed


def finish(out, running, start):
    """Divide by the sum of the weights, round once, and store."""
    inverse = column()
    nisa.reciprocal(dst=inverse, data=running.total)
    result = nl.ndarray((QUERIES, HEAD), dtype=out.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=result, data=running.output, op0=nl.multiply, operand0=inverse)
    nisa.dma_copy(dst=out[start : start + QUERIES, 0:HEAD], src=result)
