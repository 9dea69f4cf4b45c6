#include "random.h"

#include "mlx/mlx.h"

namespace mlx_shim {

ArrayPtr random_key(uint64_t seed) { return own(mx::random::key(seed)); }
ArrayPtr random_split(const Array& key, int32_t count) { return own(mx::random::split(key, count)); }
ArrayPtr random_uniform(float low, float high, Ints shape, DtypeVal dtype, const Array& key) {
  auto d = dtype_of(dtype);
  return own(mx::random::uniform(mx::array(low), mx::array(high), shape_of(shape), d, key));
}
ArrayPtr random_normal(Ints shape, DtypeVal dtype, float scale, const Array& key) {
  return own(mx::random::normal(shape_of(shape), dtype_of(dtype), 0.0f, scale, key));
}
ArrayPtr random_integers(int32_t low, int32_t high, Ints shape, DtypeVal dtype, const Array& key) {
  return own(mx::random::randint(low, high, shape_of(shape), dtype_of(dtype), key));
}

} // namespace mlx_shim
