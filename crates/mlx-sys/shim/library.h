// Whether libmlx is in this process, and what a libmlx in a file is. All that may be called without libmlx.
#pragma once
#include "shim.h"

namespace mlx_shim {

// Whether this process has libmlx.
bool library_is_loaded();
// The file of this process's libmlx; empty if it is unknown.
rust::String library_path();
// The version of the libmlx in a file, which is loaded for it. Throws what the loader says where that fails.
rust::String library_version(rust::Str path);
// The version that the shim was compiled for.
rust::String header_version();

} // namespace mlx_shim
