// Programs for a GPU that is not there: arrays of them can be traced, and not evaluated.
#pragma once
#include <array>
#include <stdexcept>
#include <string>

#include "mlx/mlx.h"

#include "shim.h"

namespace mlx_shim {

// One launch of a program.
class PlannedProgram : public mx::Primitive {
 public:
  PlannedProgram(std::string program, std::array<int, 3> grid, int threads, int shared_bytes)
      : mx::Primitive(mx::Stream(0, mx::Device::gpu)),
        program(std::move(program)),
        grid(grid),
        threads(threads),
        shared_bytes(shared_bytes) {}
  void eval_cpu(const Arrays&, Arrays&) override { refuse(); }
  void eval_gpu(const Arrays&, Arrays&) override { refuse(); }
  const char* name() const override { return "PlannedProgram"; }

  const std::string program;
  const std::array<int, 3> grid; // threads in all
  const int threads;             // of a group
  const int shared_bytes;        // of a group, beside what the program declares

 private:
  [[noreturn]] static void refuse() { throw std::runtime_error("a planned program cannot be evaluated"); }
};

} // namespace mlx_shim
