#include "memory.h"

#include <stdexcept>

#include "mlx/mlx.h"

namespace mlx_shim {

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

} // namespace mlx_shim
