// Quantized weights in all of MLX's formats.
#pragma once
#include "shim.h"

namespace mlx_shim {

// {weight, scales} and, for the affine format, biases.
ArraysPtr quantize(const Array& w, int32_t group, int32_t bits, QuantKind kind);
ArrayPtr dequantize(const Array& w, const Array& scales, const Array* biases, int32_t group,
    int32_t bits, QuantKind kind, DtypeVal dtype);
ArrayPtr quantized_matmul(const Array& x, const Array& w, const Array& scales, const Array* biases,
    bool transpose, int32_t group, int32_t bits, QuantKind kind);
ArrayPtr gather_qmm(const Array& x, const Array& w, const Array& scales, const Array* biases,
    const Array* lhs, const Array* rhs, bool transpose, int32_t group, int32_t bits, QuantKind kind,
    bool sorted);
// E4M3 bytes (uint8).
ArrayPtr from_fp8(const Array& a, DtypeVal dtype);
ArrayPtr to_fp8(const Array& a);

} // namespace mlx_shim
