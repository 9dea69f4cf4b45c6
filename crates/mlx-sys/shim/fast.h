// Fused kernels of mlx::core::fast, and kernels whose source the caller brings.
#pragma once
#include "mlx/fast.h"
#include "shim.h"

namespace mlx_shim {

ArrayPtr rms_norm(const Array& x, const Array* weight, float eps);
ArrayPtr layer_norm(const Array& x, const Array* weight, const Array* bias, float eps);
// `base` is read only without `freqs`.
ArrayPtr rope(const Array& x, int32_t dims, bool traditional, float base, float scale,
    int32_t offset, const Array* freqs);
ArrayPtr rope_rows(const Array& x, int32_t dims, bool traditional, float base, float scale,
    const Array& offsets, const Array* freqs);
ArrayPtr sdpa(const Array& q, const Array& k, const Array& v, float scale, MaskKind kind,
    const Array* mask, const Array* sinks);
ArraysPtr gated_delta_update(const Array& q, const Array& k, const Array& v, const Array& gates,
    const Array& beta, const Array* state, const Array* mask);

struct CustomKernel {
  mx::fast::CustomKernelFunction fn;
  // `shapes` holds the output shapes end to end, `ranks` their lengths.
  ArraysPtr call(const Arrays& inputs, Ints shapes, Ints ranks, rust::Slice<const DtypeVal> dtypes,
      rust::Slice<const Template> templates, const Launch& launch) const;
};
std::unique_ptr<CustomKernel> custom_kernel(KernelLanguage language, Str name,
    rust::Slice<const rust::String> inputs, rust::Slice<const rust::String> outputs, Str source, Str header);

} // namespace mlx_shim
