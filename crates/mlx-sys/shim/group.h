// Process groups (mlx::core::distributed).
#pragma once
#include "mlx/distributed/distributed.h"
#include "shim.h"

namespace mlx_shim {

struct Group {
  mx::distributed::Group group;

  int32_t rank() const { return group.rank(); }
  int32_t size() const { return group.size(); }
  ArrayPtr all_sum(const Array& a) const;
  ArrayPtr all_gather(const Array& a) const;
  ArrayPtr send(const Array& a, int32_t to) const;
  ArrayPtr recv(Ints shape, DtypeVal dtype, int32_t from) const;
};

bool group_available(Str backend);
// Waits for all peers, for ever; throws if the environment does not describe a group.
std::unique_ptr<Group> group_init(Str backend);

} // namespace mlx_shim
