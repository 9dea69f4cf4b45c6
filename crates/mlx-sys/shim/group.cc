#include "group.h"

#include <string>

#include "mlx/mlx.h"

namespace mlx_shim {

ArrayPtr Group::all_sum(const Array& a) const { return own(mx::distributed::all_sum(a, group)); }
ArrayPtr Group::all_gather(const Array& a) const { return own(mx::distributed::all_gather(a, group)); }
ArrayPtr Group::send(const Array& a, int32_t to) const { return own(mx::distributed::send(a, to, group)); }
ArrayPtr Group::recv(Ints shape, DtypeVal dtype, int32_t from) const {
  return own(mx::distributed::recv(shape_of(shape), dtype_of(dtype), from, group));
}

bool group_available(Str backend) { return mx::distributed::is_available(std::string(backend)); }
std::unique_ptr<Group> group_init(Str backend) {
  return std::make_unique<Group>(Group{mx::distributed::init(true, std::string(backend))});
}

} // namespace mlx_shim
