// Evaluation and compiled closures.
#pragma once
#include <functional>

#include "shim.h"

namespace mlx_shim {

void eval(const Arrays& v);
void async_eval(const Arrays& v);
// The values of `v`, which exist only once `on` is computed; memory is shared.
ArraysPtr depends(const Arrays& v, const Arrays& on);
// Waits for the calling thread's default streams, of the CPU and of the GPU.
void synchronize();
// After a failed eval: the first op that had all its inputs and yet did not run, or nothing.
rust::String stuck_at(const Arrays& v);

// A compiled Rust closure. Owned by the thread that made it: MLX's compile cache is thread-local.
struct CompiledFn {
  std::function<Arrays(const Arrays&)> fn;
  ArraysPtr call(const Arrays& inputs) const;
};
std::unique_ptr<CompiledFn> compile(rust::Box<Closure> f, bool shapeless);
void set_compile_enabled(bool on);

} // namespace mlx_shim
