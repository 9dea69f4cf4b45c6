// CUDA programs that are compiled by us and launched by MLX, without their text in each call.
#pragma once
#include <string>

#include "shim.h"

namespace mlx_shim {

// What programs are compiled for: `sm_90a`. Throws without CUDA.
rust::String cuda_architecture();
// Compiles a program with the NVRTC that MLX has loaded, for GPU 0, and puts it where MLX looks for the module `name`.
// Nothing is compiled if it is there. Throws without CUDA, or with what the compiler says.
void cuda_program(Str name, Str source);
// Where the compiled program `name` is.
std::string cuda_program_file(const std::string& name);
// Launches the function `name` of the module `name`: inputs, outputs and then scalars are its arguments.
ArraysPtr cuda_program_call(Str name, const Arrays& inputs, Ints shapes, Ints ranks,
    rust::Slice<const DtypeVal> dtypes, Ints scalars, const Launch& launch);
// What `cuda_program_call` gives, without a GPU: arrays that cannot be evaluated, for a trace of them.
ArraysPtr planned_program_call(Str name, const Arrays& inputs, Ints shapes, Ints ranks,
    rust::Slice<const DtypeVal> dtypes, const Launch& launch);
// The first input of the program `kernel` that is to make an array; null for an array that exists or that is made otherwise.
ArrayPtr program_input(const Array& made, Str kernel);

} // namespace mlx_shim
