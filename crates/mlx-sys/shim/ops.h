// Graph-building ops: shapes, indexing, arithmetic, reductions, products.
#pragma once
#include "shim.h"

namespace mlx_shim {

ArrayPtr astype(const Array& a, DtypeVal dtype);
ArrayPtr view(const Array& a, DtypeVal dtype);
ArrayPtr reshape(const Array& a, Ints shape);
ArrayPtr flatten(const Array& a, int32_t start, int32_t end);
ArrayPtr transpose(const Array& a, Ints axes); // no axes: all, reversed
ArrayPtr swapaxes(const Array& a, int32_t first, int32_t second);
ArrayPtr expand_dims(const Array& a, Ints axes);
ArrayPtr squeeze(const Array& a, Ints axes); // no axes: all of size 1
ArrayPtr broadcast_to(const Array& a, Ints shape);
ArrayPtr contiguous(const Array& a);
ArrayPtr tile(const Array& a, Ints reps);
ArrayPtr pad(const Array& a, Ints low, Ints high, float value);
ArraysPtr split(const Array& a, Ints indices, int32_t axis);
ArrayPtr concatenate(const Arrays& parts, int32_t axis);
ArrayPtr stack(const Arrays& parts, int32_t axis);
ArrayPtr tril(const Array& a, int32_t diagonal);

ArrayPtr slice(const Array& a, Ints start, Ints stop, Ints strides); // no strides: all 1
ArrayPtr slice_update(const Array& a, const Array& update, Ints start, Ints stop);
ArrayPtr take(const Array& a, const Array& indices, int32_t axis);
ArrayPtr take_along_axis(const Array& a, const Array& indices, int32_t axis);
ArrayPtr put_along_axis(const Array& a, const Array& indices, const Array& values, int32_t axis);
ArrayPtr scatter_rows(ScatterKind kind, const Array& a, const Array& indices, const Array& updates);

ArrayPtr unary(Unary op, const Array& a);
ArrayPtr binary(Binary op, const Array& a, const Array& b);
// Weak scalars as in Python: a float takes the array's dtype, or float32 if the array is of integers;
// an integer takes the array's dtype, or int32 if the array is of booleans. Flipped: `b op a`.
ArrayPtr binary_float(Binary op, const Array& a, float b, bool flipped);
ArrayPtr binary_int(Binary op, const Array& a, int32_t b, bool flipped);
ArrayPtr reduce(Reduce op, const Array& a, Ints axes, bool keepdims); // no axes: all
ArrayPtr along(Along op, const Array& a, int32_t axis);
ArrayPtr counted(Counted op, const Array& a, int32_t count, int32_t axis);
ArrayPtr where_(const Array& condition, const Array& yes, const Array& no);
ArrayPtr clip(const Array& a, const Array* low, const Array* high);

ArrayPtr matmul(const Array& a, const Array& b);
ArrayPtr gather_mm(const Array& a, const Array& b, const Array* lhs, const Array* rhs, bool sorted);
ArrayPtr conv(const Array& a, const Array& weight, const ConvShape& shape);
ArrayPtr hadamard(const Array& a, float scale);

} // namespace mlx_shim
