#include "io.h"

#include <algorithm>
#include <unordered_map>

#include "mlx/mlx.h"

namespace mlx_shim {
namespace {
constexpr auto by_name = [](const auto& a, const auto& b) { return a.first < b.first; };
} // namespace

std::unique_ptr<Tensors> tensors_new() { return std::make_unique<Tensors>(); }

std::unique_ptr<Tensors> load_safetensors(Str path) {
  // Load has no GPU implementation: it is always placed on a CPU stream.
  auto [arrays, metadata] = mx::load_safetensors(std::string(path), mx::Device::cpu);
  auto t = std::make_unique<Tensors>();
  for (auto& [name, a] : arrays) t->arrays.emplace_back(name, a);
  for (auto& [key, value] : metadata) t->metadata.emplace_back(key, value);
  std::sort(t->arrays.begin(), t->arrays.end(), by_name);
  std::sort(t->metadata.begin(), t->metadata.end(), by_name);
  return t;
}

void save_safetensors(Str path, const Tensors& t) {
  std::unordered_map<std::string, mx::array> arrays;
  for (auto& [name, a] : t.arrays) arrays.insert_or_assign(name, a);
  std::unordered_map<std::string, std::string> metadata(t.metadata.begin(), t.metadata.end());
  mx::save_safetensors(std::string(path), std::move(arrays), std::move(metadata));
}

} // namespace mlx_shim
