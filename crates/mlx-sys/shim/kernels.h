// The primitive that runs Rust kernels on a CPU stream.
#pragma once
#include "shim.h"

namespace mlx_shim {

struct Kernel; // defined by Rust

// Outputs of a kernel on the CPU stream of the calling thread; see src/kernels.rs for the arguments.
ArraysPtr kernel_arrays(rust::Box<Kernel> kernel, const Arrays& inputs, Ints shapes, Ints ranks,
    rust::Slice<const uint8_t> dtypes, Ints shares);

} // namespace mlx_shim
