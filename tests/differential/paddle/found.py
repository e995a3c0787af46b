"""Calls that were wrong once: the random cases that found them, made small. They are repeated in every run of the tests."""

from __future__ import annotations

from .row import CLOSE, EXACT, SUM, Tolerance

# The call, whether its gradients are compared, and how.
FOUND: tuple[tuple[str, bool, Tolerance], ...] = (
    # Indices and shapes.
    ('changed(T([5.0, -2.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 7.0], [3, 3], "float32")[1:3], lambda x: operator.setitem(x, INDEX[..., [-1]], -5.0))', False, EXACT),
    ('changed(T(np.arange(21), [7, 3], "float64")[1:7:3], lambda x: operator.setitem(x, INDEX[..., [-1]], -5.0))', False, EXACT),
    ('changed(T(np.arange(21), [3, 7], "int64")[:, 1:7:2], lambda x: operator.setitem(x, INDEX[T([2, 0], [2], "int64")], 9))', False, EXACT),
    ('changed(T([1, -4, 0, 9, -7], [5], "int32"), lambda x: operator.setitem(x, INDEX[..., -2], 2))', False, EXACT),
    ('changed(T([2.0, 1.0], [2], "float32") * 1, lambda x: operator.setitem(x, INDEX[T([1], [], "int64")], T([-1.5], [1], "float32")))', True, EXACT),
    ('paddle.gather(T([1.0, 2.0], [1, 2], "float32"), T([-2, 0], [2], "int64"), axis=0)', False, EXACT),
    ('paddle.gather_nd(T([1.0, 2.0], [2], "float32"), T([5], [1, 1], "int64"))', False, EXACT),
    ('paddle.index_select(T([1.0, 2.0, 3.0], [3], "float32"), T([0, 103], [2], "int64"))', False, EXACT),
    ('paddle.take_along_axis(T([-4.0], [1], "float32"), T([-2], [1], "int64"), 0)', False, EXACT),
    ('paddle.put_along_axis(T([1.0, 2.0], [2], "float32"), T([-6], [1], "int64"), T([5.0], [1], "float32"), 0)', False, EXACT),
    ('paddle.scatter_nd_add(T([1.0, 2.0], [2], "float32"), T([-100], [1, 1], "int64"), T([5.0], [1], "float32"))', False, EXACT),
    ('F.embedding(T([0, 1], [2], "int64"), T([1.0, 2.0], [1, 2], "float32"))', False, EXACT),
    ('F.cross_entropy(T([0.5, 0.25], [1, 2], "float32"), T([-100], [1], "int64"), label_smoothing=0.1)', False, SUM),
    ('paddle.put_along_axis(T([4], [1], "int64"), T([0], [1], "int64"), T([-5], [1], "int64"), 0, reduce="mean")', False, EXACT),
    ('paddle.full_like(T([1], [1], "uint8"), -2)', False, EXACT),
    ('changed(T([], [0, 5], "float32"), lambda x: operator.setitem(x, INDEX[...], x[...] + x[...]))', False, EXACT),
    ('paddle.masked_select(T([1.0, 2.0], [2], "float32"), T([True, False, True], [3], "bool"))', False, EXACT),
    ('paddle.put_along_axis(T([5], [1], "int64"), T([0], [1], "int64"), T([9223372036854775807], [1], "int64"), 0, reduce="mean")', False, EXACT),
    ('F.pad(T([1.0, 2.0], [1, 1, 2], "float32"), [3, 3], mode="circular", data_format="NCL")', True, EXACT),
    ('changed(T(np.arange(24), [2, 3, 4], "float32").transpose([2, 0, 1]), lambda x: operator.setitem(x, INDEX[[-1, 0], :, -1], -5.0))', False, EXACT),
    ('paddle.arange(0.485, 7.735, 0.25)', False, SUM),
    ('paddle.arange(-0.32, 1.08, 0.1)', False, SUM),
    # Dimensions: none, empty.
    ('T([0.4236], [], "bfloat16").cast_("float16")', False, EXACT),
    ('T([1.0, 2.0], [2], "float32")[2:].logical_and_(T([], [0], "float32"))', False, EXACT),
    *((f'paddle.{name}(T([2.0], [], "float32"), axis=-1, keepdim=True)', False, EXACT) for name in ("sum", "mean", "max", "min", "any", "logsumexp", "std")),
    ('paddle.mean(T([], [5, 0], "float32"))', True, EXACT),
    ('paddle.divide(T([], [3, 0], "float32"), T([-0.5], [], "float32"))', True, EXACT),
    ('paddle.pow(T([], [4, 0, 7], "float32"), T([0.5, 1.0, 2.0, 3.0, 1.5, 0.25, 2.5], [1, 1, 7], "float32"))', True, EXACT),
    ('paddle.scatter_nd_add(T([0.5, 1.0], [2], "float32"), T([], [0, 1], "int64"), T([], [0], "float32"))', True, EXACT),
    ('paddle.linalg.norm(T([], [2, 0], "float64"), p=inf, axis=1)', False, EXACT),
    ('paddle.norm(T([inf, 1.0, 2.0, 3.0], [2, 2], "float64"), p=2, axis=[0, 1])', False, EXACT),
    ('paddle.linalg.svdvals(T([nan, 1.0, 2.0, 3.0], [2, 2], "float32"))', False, EXACT),
    # Products that overflow in one order only.
    ('paddle.square(T([1.2e308, -1.5e308, 1e308, 1.7e308, 1.1e308], [5], "float64"))', True, CLOSE),
    # In place.
    ('T([0.0, -0.25, 1.25, 0.5, 7.0], [5], "float32").cast_("float64")', False, EXACT),
    ('T([1, -2, 3, 4, 5, 6, 7], [7], "int32").cast_("int64")', False, EXACT),
    # Numbers.
    ('F.batch_norm(T([-0.84], [1, 1, 1], "float32"), T([-1.5], [1], "float32").detach(), T([0.7], [1], "float32").detach(), T([3.2], [1], "float32"), T([0.4], [1], "float32"), training=True)', True, CLOSE),
    ('paddle.scale(T([-0.128, 0.5], [2], "float32"), scale=1.25, bias=0.125, bias_after_scale=False)', True, CLOSE),
    ('paddle.add_n([T([1.5, -0.547], [2], "bfloat16"), T([-2.6042, 0.4815], [2], "bfloat16"), T([1.2161, -0.1475], [2], "bfloat16")])', False, CLOSE),
    ('F.leaky_relu(T([-5.25, 0.0, 1.5], [3], "float64"), 0.998)', True, CLOSE),
    ('F.mish(T([-5.0, -4.0, 0.001, 30.0], [4], "float64"))', True, CLOSE),
    ('F.selu(T([nan, 0.5, -2.0], [3], "float32"))', True, CLOSE),
    ('paddle.linalg.norm(T([0.0, -0.0, 0.0, 0.0], [2, 2], "float32"), p="fro", axis=[-2, -1])', True, SUM),
    ('paddle.linalg.norm(T([inf, nan, 2.0], [3], "float64"), p=0, axis=0)', True, SUM),
    ('paddle.atan2(T([1e-30, 0.5], [2], "float32"), T([1e-30, 2.0], [2], "float32"))', True, CLOSE),
    ('F.selu(T([-0.75, 2.0, 0.0], [3], "float64"))', True, CLOSE),
    ('F.hardshrink(T([0.5, -0.5, 0.75, 0.25], [4], "float32"))', True, EXACT),
    ('paddle.clip(T([0.5, 0.75, 1.0], [3], "float32"), 0.5, 0.75)', True, EXACT),
    ('paddle.max(T([1.0, 1.0, 0.5], [3], "float32"))', True, EXACT),
    ('paddle.min(T([1.0, 1.0, 0.5, 0.5], [2, 2], "float32"), axis=1)', True, EXACT),
    ('paddle.fmax(T([1.0, nan, 0.5], [3], "float32"), T([1.0, 2.0, nan], [3], "float32"))', True, EXACT),
    ('paddle.max(T([1.0, nan], [2], "float32"))', True, EXACT),
    ('paddle.abs(T([nan, 2.5, 0.0], [3], "float32"))', True, EXACT),
    ('paddle.floor_divide(T([1.0, inf, -2.5], [3], "float32"), T([0.1, 2.0, 0.5], [3], "float32"))', False, EXACT),
    ('paddle.remainder(T([4, 5], [2], "int32"), T([3, 0], [2], "int32"))', False, EXACT),
    ('paddle.pow(T([7, 2], [2], "int32"), T([-6, 3], [2], "int32"))', False, EXACT),
    ('paddle.prod(T([3, 4], [2], "int32"))', False, EXACT),
    ('paddle.sum(T([0.6, 0.6, 1.5], [3], "float32"), dtype="int64")', False, EXACT),
    ('paddle.less_than(T([True, False], [2], "bool"), T([False, True], [2], "bool"))', False, EXACT),
    ('paddle.isfinite(T([1, 2], [2], "int64"))', False, EXACT),
)
