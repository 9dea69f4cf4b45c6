// MLX's allocator: counters and limits, in bytes.
#pragma once
#include "shim.h"

namespace mlx_shim {

size_t active_memory();
size_t peak_memory();
size_t cache_memory();
size_t memory_limit();
size_t array_buffer_size(const Arrays& v); // throws unless all are evaluated
void reset_peak_memory();
size_t set_memory_limit(size_t bytes);
size_t set_cache_limit(size_t bytes);
size_t set_wired_limit(size_t bytes);
void clear_cache();
// Buffers of Metal's allocator, those kept for reuse included, and the most that the system allows; zero without Metal, and
// where MLX's members are not where this release has them.
size_t buffer_count();
size_t buffer_limit();

} // namespace mlx_shim
