// Which backends this libmlx has, and what the device is.
#pragma once
#include "shim.h"

namespace mlx_shim {

rust::String version();
bool metal_available();
bool gpu_available();
int32_t gpu_count();
bool default_is_gpu();
void set_default_gpu(bool gpu);
rust::Vec<Property> device_info(bool gpu);

} // namespace mlx_shim
