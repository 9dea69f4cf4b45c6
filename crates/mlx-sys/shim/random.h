// Random numbers, always with an explicit key.
#pragma once
#include "shim.h"

namespace mlx_shim {

ArrayPtr random_key(uint64_t seed);
ArrayPtr random_split(const Array& key, int32_t count);
ArrayPtr random_uniform(float low, float high, Ints shape, DtypeVal dtype, const Array& key);
ArrayPtr random_normal(Ints shape, DtypeVal dtype, float scale, const Array& key);
ArrayPtr random_integers(int32_t low, int32_t high, Ints shape, DtypeVal dtype, const Array& key);

} // namespace mlx_shim
