"""Chunked attention with scores by distance, in tiles: Triton kernels for NVIDIA GPUs.

    score(t, s) = q_t·k_s + p_t·r_{s-t+C-1}    for s from c·C to c·C+W-1, with c = t // C

Keys are counted from the oldest key of the past. Row r of the table belongs to the distance of
query and key, in every chunk. A program holds a tile of queries, iterates over tiles of keys and
keeps a running softmax (Dao et al. 2022, FlashAttention), so neither scores nor their gradients are
ever in memory. The scores of a tile need the products of its queries with two neighbouring tiles of
the table. The second tile is the first one for the next keys, so each distance is multiplied once,
like each key. `shift` moves these products to their keys, and `unshift` moves gradients back
(`positions.distances` has both for whole blocks).

Matrices are contiguous, one for each row of the batch and head: q (T, Dh), p (T, X), k and v
(S, Dh) with S = T+W-C. The table (W+C, X) is per head, `valid` (T/C, W) per row.
"""

import triton
import triton.language as tl

# Triton would compile another kernel for values that are 1 or a multiple of 16.
VARYING = ("seed", "num_queries", "chunk_size", "window")
LOWEST = tl.constexpr(-1e30)  # initial maximum of a softmax: finite, so that differences are too


@triton.jit
def load(matrix, rows, num_rows, width, WIDTH: tl.constexpr):
    """Load rows of a (num_rows, width) matrix, with zeros beyond it."""
    columns = tl.arange(0, WIDTH)
    inside = ((rows >= 0) & (rows < num_rows))[:, None] & (columns < width)[None, :]
    return tl.load(matrix + rows[:, None] * width + columns[None, :], mask=inside, other=0.0)


@triton.jit
def store(matrix, tile, rows, num_rows, width, WIDTH: tl.constexpr):
    columns = tl.arange(0, WIDTH)
    inside = (rows < num_rows)[:, None] & (columns < width)[None, :]
    places = matrix + rows[:, None] * width + columns[None, :]
    tl.store(places, tile.to(matrix.dtype.element_ty), mask=inside)


@triton.jit
def add(matrix, tile, rows, num_rows, width, WIDTH: tl.constexpr):
    """Like `store`, but adds to the existing values atomically."""
    columns = tl.arange(0, WIDTH)
    inside = ((rows >= 0) & (rows < num_rows))[:, None] & (columns < width)[None, :]
    tl.atomic_add(matrix + rows[:, None] * width + columns[None, :], tile, mask=inside)


@triton.jit
def product(a, b):
    """Return a b', without TF32."""
    return tl.dot(a, tl.trans(b), input_precision="ieee")


@triton.jit
def weighted(weights, rows):
    return tl.dot(weights.to(rows.dtype), rows, input_precision="ieee")


@triton.jit
def shift(near, far, SIZE: tl.constexpr):
    """Return scores by key from products with two neighbouring tiles of the table."""
    i, j = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    both = tl.where(i + j + 1 >= SIZE, near, far)  # row i needs the SIZE columns from SIZE-1-i
    return tl.gather(both, (j - i - 1 + SIZE) % SIZE, 1)


@triton.jit
def unshift(scores, SIZE: tl.constexpr):
    """Return the gradients of both products: the inverse of `shift`."""
    i, j = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    both = tl.gather(scores, (i + j + 1) % SIZE, 1)
    is_near = i + j + 1 >= SIZE
    return tl.where(is_near, both, 0.0), tl.where(is_near, 0.0, both)


@triton.jit
def visible(valid, queries, keys, num_queries, chunk_size, window):
    """Return whether each query sees each key: a valid key in the window of its chunk."""
    chunks = queries // chunk_size
    places = keys[None, :] - (chunks * chunk_size)[:, None]
    inside = (places >= 0) & (places < window) & (queries < num_queries)[:, None]
    return tl.load(valid + chunks[:, None] * window + places, mask=inside, other=0) != 0


@triton.jit
def kept(seed, queries, keys, num_keys, DROPOUT: tl.constexpr):
    """Return dropout's factor of each weight, a function of only the seed and the pair."""
    pairs = queries[:, None] * num_keys + keys[None, :]
    if DROPOUT == 0.0:
        factors = tl.full(pairs.shape, 1.0, tl.float32)
    else:
        factors = tl.where(tl.rand(seed, pairs) < DROPOUT, 0.0, 1.0 / (1.0 - DROPOUT))
    return factors


@triton.jit(do_not_specialize=VARYING)
def attend(
    q, p, k, v, table, valid, seed, out, log_total,
    num_heads, num_queries, chunk_size, window, dim, extra,
    SIZE: tl.constexpr, DIM: tl.constexpr, EXTRA: tl.constexpr,
    DROPOUT: tl.constexpr,
):  # fmt: skip
    """Compute out (T, Dh), and the logarithm of each query's sum of exponentials (T,)."""
    row = tl.program_id(1).to(tl.int64)  # from 0 to B·H-1
    start, tile = tl.program_id(0) * SIZE, tl.arange(0, SIZE)
    num_keys, num_rows = num_queries + window - chunk_size, window + chunk_size
    k, v = k + row * num_keys * dim, v + row * num_keys * dim
    table += row % num_heads * num_rows * extra
    valid += row // num_heads * (num_queries // chunk_size) * window
    queries = start + tile
    q = load(q + row * num_queries * dim, queries, num_queries, dim, DIM)
    p = load(p + row * num_queries * extra, queries, num_queries, extra, EXTRA)
    first = start // chunk_size * chunk_size
    last = (tl.minimum(start + SIZE, num_queries) - 1) // chunk_size * chunk_size + window
    rows = chunk_size - SIZE - start + tile  # rows of the near tile of the table, for keys from 0
    near = product(p, load(table, first + rows, num_rows, extra, EXTRA))
    largest = tl.full([SIZE], LOWEST, near.dtype)
    total = tl.zeros([SIZE], near.dtype)
    context = tl.zeros([SIZE, DIM], near.dtype)
    for begin in range(first, last, SIZE):
        keys = begin + tile
        far_rows = load(table, begin + rows + SIZE, num_rows, extra, EXTRA)
        far = product(p, far_rows)
        scores = product(q, load(k, keys, num_keys, dim, DIM)) + shift(near, far, SIZE)
        near = far
        seen = visible(valid, queries, keys, num_queries, chunk_size, window)
        new_largest = tl.maximum(largest, tl.max(tl.where(seen, scores, LOWEST), 1))
        weights = tl.exp(tl.where(seen, scores - new_largest[:, None], LOWEST))
        decay = tl.exp(largest - new_largest)
        largest, total = new_largest, total * decay + tl.sum(weights, 1)
        weights *= kept(seed + row, queries, keys, num_keys, DROPOUT)
        values = load(v, keys, num_keys, dim, DIM)
        context = context * decay[:, None] + weighted(weights, values)
    total = tl.where(total > 0.0, total, 1.0)  # a row that is only padding has out 0
    store(out + row * num_queries * dim, context / total[:, None], queries, num_queries, dim, DIM)
    log_total += row * num_queries
    tl.store(log_total + queries, largest + tl.log(total), mask=queries < num_queries)


@triton.jit
def gradients(
    q, near, far, keys, values, seen, factors, log_total, grad, delta,
    SIZE: tl.constexpr,
):  # fmt: skip
    """Return the weights of a tile after dropout, and the gradients of its scores."""
    scores = product(q, keys) + shift(near, far, SIZE)
    weights = tl.exp(tl.where(seen, scores - log_total[:, None], LOWEST))
    dweights = product(grad, values) * factors
    return weights * factors, weights * (dweights - delta[:, None])


@triton.jit(do_not_specialize=VARYING)
def attend_backward_queries(
    q, p, k, v, table, valid, seed, log_total, grad, delta, dq, dp, dtable,
    num_heads, num_queries, chunk_size, window, dim, extra,
    SIZE: tl.constexpr, DIM: tl.constexpr, EXTRA: tl.constexpr,
    DROPOUT: tl.constexpr,
):  # fmt: skip
    """Store the gradients of q and p, and add those of the table atomically.

    `delta` (T,) is each query's sum of out · grad, which equals its sum of weights times their
    gradients.
    """
    row = tl.program_id(1).to(tl.int64)
    start, tile = tl.program_id(0) * SIZE, tl.arange(0, SIZE)
    num_keys, num_rows = num_queries + window - chunk_size, window + chunk_size
    k, v = k + row * num_keys * dim, v + row * num_keys * dim
    table += row % num_heads * num_rows * extra
    dtable += row % num_heads * num_rows * extra
    valid += row // num_heads * (num_queries // chunk_size) * window
    queries = start + tile
    q = load(q + row * num_queries * dim, queries, num_queries, dim, DIM)
    p = load(p + row * num_queries * extra, queries, num_queries, extra, EXTRA)
    grad = load(grad + row * num_queries * dim, queries, num_queries, dim, DIM)
    inside = queries < num_queries
    log_total = tl.load(log_total + row * num_queries + queries, mask=inside, other=0.0)
    delta = tl.load(delta + row * num_queries + queries, mask=inside, other=0.0)
    first = start // chunk_size * chunk_size
    last = (tl.minimum(start + SIZE, num_queries) - 1) // chunk_size * chunk_size + window
    rows = first + chunk_size - SIZE - start + tile
    near_rows = load(table, rows, num_rows, extra, EXTRA)
    near = product(p, near_rows)
    q_sum = tl.zeros([SIZE, DIM], near.dtype)
    p_sum = tl.zeros([SIZE, EXTRA], near.dtype)
    table_sum = tl.zeros([SIZE, EXTRA], near.dtype)  # gradient of the near tile so far
    for begin in range(first, last, SIZE):
        keys = begin + tile
        far_rows = load(table, rows + SIZE, num_rows, extra, EXTRA)
        far = product(p, far_rows)
        key_rows = load(k, keys, num_keys, dim, DIM)
        values = load(v, keys, num_keys, dim, DIM)
        seen = visible(valid, queries, keys, num_queries, chunk_size, window)
        factors = kept(seed + row, queries, keys, num_keys, DROPOUT)
        _, dscores = gradients(
            q, near, far, key_rows, values, seen, factors, log_total, grad, delta, SIZE
        )
        dnear, dfar = unshift(dscores, SIZE)
        q_sum += weighted(dscores, key_rows)
        p_sum += weighted(dnear, near_rows) + weighted(dfar, far_rows)
        table_sum += weighted(tl.trans(dnear), p)
        add(dtable, table_sum, rows, num_rows, extra, EXTRA)
        table_sum = weighted(tl.trans(dfar), p)
        rows, near_rows, near = rows + SIZE, far_rows, far
    add(dtable, table_sum, rows, num_rows, extra, EXTRA)
    store(dq + row * num_queries * dim, q_sum, queries, num_queries, dim, DIM)
    store(dp + row * num_queries * extra, p_sum, queries, num_queries, extra, EXTRA)


@triton.jit(do_not_specialize=VARYING)
def attend_backward_keys(
    q, p, k, v, table, valid, seed, log_total, grad, delta, dk, dv,
    num_heads, num_queries, chunk_size, window, dim, extra,
    SIZE: tl.constexpr, DIM: tl.constexpr, EXTRA: tl.constexpr,
    DROPOUT: tl.constexpr,
):  # fmt: skip
    """Store the gradients of k and v for a tile of keys, over all queries that see any of them."""
    row = tl.program_id(1).to(tl.int64)
    start, tile = tl.program_id(0) * SIZE, tl.arange(0, SIZE)
    num_keys, num_rows = num_queries + window - chunk_size, window + chunk_size
    q, p = q + row * num_queries * dim, p + row * num_queries * extra
    grad += row * num_queries * dim
    log_total, delta = log_total + row * num_queries, delta + row * num_queries
    table += row % num_heads * num_rows * extra
    valid += row // num_heads * (num_queries // chunk_size) * window
    keys = start + tile
    key_rows = load(k + row * num_keys * dim, keys, num_keys, dim, DIM)
    values = load(v + row * num_keys * dim, keys, num_keys, dim, DIM)
    first = tl.cdiv(tl.maximum(start - window + 1, 0), chunk_size) * chunk_size
    last = tl.minimum((start + SIZE - 1) // chunk_size * chunk_size + chunk_size, num_queries)
    k_sum = tl.zeros([SIZE, DIM], log_total.dtype.element_ty)
    v_sum = tl.zeros([SIZE, DIM], log_total.dtype.element_ty)
    for begin in range(first, last, SIZE):
        queries = begin + tile
        q_rows = load(q, queries, num_queries, dim, DIM)
        p_rows = load(p, queries, num_queries, extra, EXTRA)
        grad_rows = load(grad, queries, num_queries, dim, DIM)
        inside = queries < num_queries
        rows = start + chunk_size - SIZE - begin + tile
        near = product(p_rows, load(table, rows, num_rows, extra, EXTRA))
        far = product(p_rows, load(table, rows + SIZE, num_rows, extra, EXTRA))
        seen = visible(valid, queries, keys, num_queries, chunk_size, window)
        factors = kept(seed + row, queries, keys, num_keys, DROPOUT)
        weights, dscores = gradients(
            q_rows, near, far, key_rows, values, seen, factors,
            tl.load(log_total + queries, mask=inside, other=0.0), grad_rows,
            tl.load(delta + queries, mask=inside, other=0.0), SIZE,
        )  # fmt: skip
        k_sum += weighted(tl.trans(dscores), q_rows)
        v_sum += weighted(tl.trans(weights), grad_rows)
    store(dk + row * num_keys * dim, k_sum, keys, num_keys, dim, DIM)
    store(dv + row * num_keys * dim, v_sum, keys, num_keys, dim, DIM)
