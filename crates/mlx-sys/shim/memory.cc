#include "memory.h"

#include <stdexcept>
#include <variant>

#include "mlx/mlx.h"

#ifdef __APPLE__
#include "mlx/backend/common/buffer_cache.h"
#include "mlx/backend/metal/metal.h"
#endif

namespace mlx_shim {
namespace {

#ifdef __APPLE__
// The members of MLX's MetalAllocator, in the order of mlx/backend/metal/allocator.h. MLX counts its buffers and offers no
// function that says how many there are. Never constructed.
struct MetalAllocator : mx::allocator::Allocator {
  void* device;
  void* heap;
  void* residency_sets;
  mx::BufferCache<void> cache;
  size_t block_limit, gc_limit, active_memory, peak_memory, max_pool_size, wired_limit, num_resources, resource_limit;
};

size_t resource_limit() {
  auto& info = mx::device_info(mx::Device::gpu);
  auto found = info.find("resource_limit");
  auto number = found == info.end() ? nullptr : std::get_if<size_t>(&found->second);
  return number ? *number : 0;
}

// Null unless the members that MLX reports have the values that it reports.
const MetalAllocator* metal_allocator() {
  if (!mx::metal::is_available()) return nullptr;
  auto allocator = static_cast<const MetalAllocator*>(&mx::allocator::allocator());
  auto known = allocator->block_limit == mx::get_memory_limit() && allocator->resource_limit == resource_limit() &&
      allocator->num_resources <= allocator->resource_limit;
  return known ? allocator : nullptr;
}
#endif

} // namespace

size_t active_memory() { return mx::get_active_memory(); }
size_t peak_memory() { return mx::get_peak_memory(); }
size_t cache_memory() { return mx::get_cache_memory(); }
size_t memory_limit() { return mx::get_memory_limit(); }
size_t array_buffer_size(const Arrays& v) {
  for (auto& a : v) {
    if (!a.is_available()) throw std::invalid_argument("an array is not evaluated yet");
  }
  return mx::get_array_buffer_size(v);
}
void reset_peak_memory() { mx::reset_peak_memory(); }
size_t set_memory_limit(size_t bytes) { return mx::set_memory_limit(bytes); }
size_t set_cache_limit(size_t bytes) { return mx::set_cache_limit(bytes); }
size_t set_wired_limit(size_t bytes) { return mx::set_wired_limit(bytes); }
void clear_cache() { mx::clear_cache(); }

#ifdef __APPLE__
size_t buffer_count() {
  auto allocator = metal_allocator();
  return allocator ? allocator->num_resources : 0;
}
size_t buffer_limit() {
  auto allocator = metal_allocator();
  return allocator ? allocator->resource_limit : 0;
}
#else
size_t buffer_count() { return 0; }
size_t buffer_limit() { return 0; }
#endif

} // namespace mlx_shim
