"""Every position encoding frame by frame: the papers' formulas in loops over absolute frames.

Nothing is shared with asrkit.model.positions but the parameters and their shapes: a score is of
one query, one key and one head, i and j count from the start of the stream, and what an encoding
adds to a frame is computed for that frame alone. Autograd through the loops gives the gradients.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from asrkit.model.attention import ChunkAttention
from asrkit.model.positions import KINDS

Place = Callable[[int, int, int], tuple[int, int]]

# m_h = 2^-exponent by number of heads: Press et al. 2022, section 3, and for numbers that are no
# power of two the workaround of their published code.
ALIBI_EXPONENTS = {
    1: [8.0],
    2: [4.0, 8.0],
    3: [4.0, 8.0, 2.0],
    4: [2.0, 4.0, 6.0, 8.0],
    6: [2.0, 4.0, 6.0, 8.0, 1.0, 3.0],
    8: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
    12: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 0.5, 1.5, 2.5, 3.5],
}


def kind_of(position: object) -> str:
    return next(kind for kind, cls in KINDS.items() if type(position) is cls)


def clip(distance: int, limit: int | None) -> int:
    return distance if limit is None else max(-limit, min(limit, distance))


def vector(numbers: list[float]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


@cache
def sinusoid(t: int, dim: int) -> Tensor:
    angles = [t / 10000 ** (2 * m / dim) for m in range(dim // 2)]
    return vector([wave(angle) for angle in angles for wave in (math.sin, math.cos)])


def of_head(x: Tensor, head: int, num_heads: int) -> Tensor:
    size = len(x) // num_heads
    return x[head * size : (head + 1) * size]


def none(position: Any, q: Tensor, k: Tensor, i: int, j: int, head: int) -> Tensor:
    """q·k / sqrt(Dh); q may be followed by a question of its own."""
    return q[: len(k)] @ k / math.sqrt(len(k))


def biased(position: Any, q: Tensor, k: Tensor, r: Tensor, head: int) -> Tensor:
    """((q + u)·k + (q + v)·r) / sqrt(Dh), with r for all heads."""
    u, v = (bias.flatten(0, -2)[head] for bias in (position.content_bias, position.position_bias))
    return ((q + u) @ k + (q + v) @ of_head(r, head, position.num_heads)) / math.sqrt(len(k))


def relative(position: Any, q: Tensor, k: Tensor, i: int, j: int, head: int) -> Tensor:
    r = sinusoid(clip(i - j, position.max_distance), position.projection.in_features)
    return biased(position, q, k, position.projection.weight @ r, head)


def absolute_keys(position: Any, q: Tensor, k: Tensor, i: int, j: int, head: int) -> Tensor:
    r = sinusoid(j, position.projection.in_features)
    return biased(position, q, k, position.projection.weight @ r, head)


def relative_learned(position: Any, q: Tensor, k: Tensor, i: int, j: int, head: int) -> Tensor:
    limit = position.max_distance
    return biased(position, q, k, position.embeddings[clip(i - j, limit) + limit], head)


def shaw_vectors(position: Any, i: int, j: int) -> Tensor:
    """a^K and, with values, a^V behind it."""
    limit = position.embeddings.size(0) // 2
    return position.embeddings[clip(j - i, limit) + limit]


def shaw(position: Any, q: Tensor, k: Tensor, i: int, j: int, head: int) -> Tensor:
    return q @ (k + shaw_vectors(position, i, j)[: len(k)]) / math.sqrt(len(k))


def shaw_value(position: Any, v: Tensor, i: int, j: int, head: int) -> Tensor:
    return v + shaw_vectors(position, i, j)[len(v) :] if position.values else v


def t5_bucket(ahead: int, num_buckets: int, max_distance: int, bidirectional: bool) -> int:
    """Published code's bucket of j-i, in integers.

    It is exact + floor(log(n / exact) / log(max / exact) · (side - exact)), at most side - 1: the
    highest b with (n / exact)^(side - exact) >= (max / exact)^b.
    """
    side, first = num_buckets, 0
    if bidirectional:
        side //= 2
        first = side if ahead > 0 else 0
    n = abs(ahead) if bidirectional else max(0, -ahead)
    exact = side // 2
    if n < exact:
        return first + n
    rest = side - exact
    reached = [b for b in range(rest) if n**rest * exact**b >= max_distance**b * exact**rest]
    return first + exact + reached[-1]


def t5(position: Any, q: Tensor, k: Tensor, i: int, j: int, head: int) -> Tensor:
    num_buckets = position.bias.size(0)
    bucket = t5_bucket(j - i, num_buckets, position.max_distance, position.bidirectional)
    return none(position, q, k, i, j, head) + position.bias[bucket, head]


def alibi(position: Any, q: Tensor, k: Tensor, i: int, j: int, head: int) -> Tensor:
    slope = 2 ** -ALIBI_EXPONENTS[position.num_heads][head]
    return none(position, q, k, i, j, head) - slope * abs(i - j)


def deberta_term(position: Any, projection: Any, x: Tensor, distance: int, head: int) -> Tensor:
    """x · P[δ] W for δ of a distance."""
    k = position.embeddings.size(0) // 2
    delta = 0 if distance <= -k else 2 * k - 1 if distance >= k else distance + k
    return x @ of_head(projection.weight @ position.embeddings[delta], head, position.num_heads)


def deberta(position: Any, q: Tensor, k: Tensor, i: int, j: int, head: int) -> Tensor:
    content_to_position = deberta_term(position, position.key_projection, q, i - j, head)
    position_to_content = deberta_term(position, position.query_projection, k, j - i, head)
    return (q @ k + content_to_position + position_to_content) / math.sqrt(3 * len(k))


def urpe(position: Any, q: Tensor, k: Tensor, i: int, j: int, head: int) -> Tensor:
    return SCORES[kind_of(position.base)](position.base, q, k, i, j, head)


def urpe_value(position: Any, v: Tensor, i: int, j: int, head: int) -> Tensor:
    limit = position.factor.size(0) // 2
    return (1 + position.factor[clip(i - j, limit) + limit, head]) * v


def rotation(position: Any, t: int, size: int) -> Tensor:
    """R_t, Su et al. 2021, equation 15."""
    matrix = torch.eye(size, dtype=torch.float64)
    for m in range(0, position.num_turned, 2):
        angle = t * position.base ** (-m / position.num_turned)
        sine, cosine = math.sin(angle), math.cos(angle)
        matrix[m : m + 2, m : m + 2] = vector([cosine, -sine, sine, cosine]).view(2, 2)
    return matrix


def rotary(position: Any, q: Tensor, k: Tensor, i: int, j: int, head: int) -> Tensor:
    turned_q, turned_k = rotation(position, i, len(q)) @ q, rotation(position, j, len(k)) @ k
    return turned_q @ turned_k / math.sqrt(len(k))


@cache
def compact_vector(distance: int, dim: int, length_factor: float) -> Tensor:
    root = math.sqrt(dim)
    compressed = math.copysign(root * (math.log(abs(distance) + root) - math.log(root)), distance)
    angle = math.atan(compressed / (length_factor * dim / (2 * math.pi)))
    waves = [wave(m * angle) for m in range(1, dim // 2 + 1) for wave in (math.cos, math.sin)]
    return vector([*waves[:-1], 1.0])


def compact(position: Any, q: Tensor, k: Tensor, i: int, j: int, head: int) -> Tensor:
    r = compact_vector(i - j, position.projection.in_features, position.length_factor)
    projected = of_head(position.projection.weight @ r, head, position.num_heads)
    return none(position, q, k, i, j, head) + q[len(k) :] @ projected


SCORES: dict[str, Callable[[Any, Tensor, Tensor, int, int, int], Tensor]] = {
    function.__name__: function
    for function in (
        none, relative, relative_learned, shaw, t5, alibi, deberta, urpe, rotary, compact,
        absolute_keys,
    )
}  # fmt: skip
VALUES: dict[str, Callable[[Any, Tensor, int, int, int], Tensor]] = {
    "shaw": shaw_value,
    "urpe": urpe_value,
}


def attend(
    module: ChunkAttention,
    x: Tensor,
    chunk: int,
    left: int,
    place: Place = lambda i, j, begin: (i, j),
) -> Tensor:
    """(T, D) -> (T, D), each query with the frames of its chunk and the `left` before it.

    `place` says what the encoding takes for i and j; only a control gives a wrong one.
    """
    (frames, dim), heads = x.shape, module.num_heads
    position, kind = module.position, kind_of(module.position)
    q, k, v = (
        part.view(frames, heads, -1)
        for part in module.qkv(x).split([module.queries_width, dim, dim], dim=1)
    )
    rows: list[Tensor] = []
    for i in range(frames):
        begin = i - i % chunk
        visible = range(max(0, begin - left), min(frames, begin + chunk))
        for head in range(heads):
            scores: list[Tensor] = []
            values: list[Tensor] = []
            for j in visible:
                at = place(i, j, begin)
                value = v[j, head]
                scores.append(SCORES[kind](position, q[i, head], k[j, head], *at, head))
                values.append(VALUES[kind](position, value, *at, head) if kind in VALUES else value)
            rows.append(torch.stack(scores).softmax(0) @ torch.stack(values))
    return module.out(torch.stack(rows).view(frames, dim))


def sinusoidal(position: Any, x: Tensor, t: int) -> Tensor:
    s = sinusoid(t, len(x))
    if position.sep:
        s = torch.cat([s[0::2], s[1::2]])
    return position.frame_scale * x + position.scale * s


def learned(position: Any, x: Tensor, t: int) -> Tensor:
    return x + position.embeddings[t % position.embeddings.size(0)]


def flow_slope(position: Any, t: float, p: Tensor) -> Tensor:
    """dp/dt in frames, of a network that counts in periods."""
    entry = torch.cat([p, vector([t / position.period])])
    hidden = torch.tanh(position.expand.weight @ entry + position.expand.bias)
    return (position.project.weight @ hidden + position.project.bias) / position.period


def flow(position: Any, x: Tensor, t: int) -> Tensor:
    """Whole Runge-Kutta steps and a shorter last one, from the start of the path."""
    p, now, end = position.start, 0, t % position.period
    while now < end:
        h = min(position.step, end - now)
        k1 = flow_slope(position, now, p)
        k2 = flow_slope(position, now + h / 2, p + h / 2 * k1)
        k3 = flow_slope(position, now + h / 2, p + h / 2 * k2)
        k4 = flow_slope(position, now + h, p + h * k3)
        p, now = p + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), now + h
    return x + p


def complex_order(position: Any, x: Tensor, t: int) -> Tensor:
    y: list[Tensor] = []
    for m in range(len(x) // 2):
        real, imaginary = x[2 * m], x[2 * m + 1]
        angle = position.frequency[m] * t + position.phase[m]
        cosine, sine = position.amplitude[m] * angle.cos(), position.amplitude[m] * angle.sin()
        y += [real * cosine - imaginary * sine, real * sine + imaginary * cosine]
    return torch.stack(y)


FRAMES: dict[str, Callable[[Any, Tensor, int], Tensor]] = {
    "sinusoidal": sinusoidal,
    "learned": learned,
    "flow": flow,
    "complex": complex_order,
}


def mark(position: Any, x: Tensor, starts: list[int]) -> Tensor:
    """(B, T, D) -> (B, T, D): frame t of row b is frame starts[b] + t of its stream."""
    function = FRAMES[kind_of(position)]
    rows = [
        torch.stack([function(position, frame, start + t) for t, frame in enumerate(row)])
        for row, start in zip(x, starts, strict=True)
    ]
    return torch.stack(rows)
