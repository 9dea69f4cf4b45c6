// The functions of CUDA's driver that this shim calls, found in the libcuda that libmlx has loaded: nothing here needs
// CUDA's headers or a library at build time.
#pragma once
#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace mlx_shim::driver {

// A function of a library that libmlx has loaded; throws if there is none.
template <typename F> F loaded(const char* name) {
  auto found = reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
  if (!found) throw std::runtime_error(std::string("there is no ") + name);
  return found;
}

// Calls a function of the driver; throws if it fails.
template <typename... Parameters, typename... Arguments> void call(const char* name, Arguments... arguments) {
  int failed = loaded<int (*)(Parameters...)>(name)(static_cast<Parameters>(arguments)...);
  if (failed) throw std::runtime_error(std::string(name) + " failed with CUDA's error " + std::to_string(failed));
}

using Address = unsigned long long;
using Stream = void*;
using Module = void*;
using Function = void*;
using Graph = void*;
using GraphNode = void*;
using GraphExec = void*;
using Event = void*;

// CUDA_KERNEL_NODE_PARAMS_v2 of cuda.h.
struct KernelNode {
  Function function;
  unsigned int grid[3], block[3], shared_bytes;
  void** arguments;
  void** extra;
  void* kernel;
  void* context;
};

// CUgraphEdgeData of cuda.h.
struct Edge {
  unsigned char from_port, to_port, type, reserved[5];
};

} // namespace mlx_shim::driver
