// Memory of a GPU that other processes of this machine write to, for exchanges between ranks.
#pragma once
#include "shim.h"

namespace mlx_shim {

// Memory of GPU 0, which holds zeros at first. MLX's own allocations cannot be shared.
class PeerMemory {
 public:
  explicit PeerMemory(size_t bytes);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  uint64_t address() const { return own; }
  // What another process opens it with.
  rust::Vec<uint8_t> handle() const;
  // Where the memory of another process is for this GPU's kernels, until this is dropped.
  uint64_t open(rust::Slice<const uint8_t> handle);

 private:
  unsigned long long own = 0;
  std::vector<unsigned long long> opened;
};

// Throws without CUDA, or without room.
std::unique_ptr<PeerMemory> peer_memory(size_t bytes);

} // namespace mlx_shim
