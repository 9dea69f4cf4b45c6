// Safetensors files.
#pragma once
#include <string>
#include <utility>

#include "shim.h"

namespace mlx_shim {

// What is in one file, sorted by name.
struct Tensors {
  std::vector<std::pair<std::string, Array>> arrays;
  std::vector<std::pair<std::string, std::string>> metadata;

  size_t len() const { return arrays.size(); }
  rust::String name(size_t i) const { return arrays.at(i).first; }
  ArrayPtr get(size_t i) const { return own(arrays.at(i).second); }
  void put(Str name, const Array& a) { arrays.emplace_back(std::string(name), a); }

  size_t metadata_len() const { return metadata.size(); }
  rust::String metadata_key(size_t i) const { return metadata.at(i).first; }
  rust::String metadata_value(size_t i) const { return metadata.at(i).second; }
  void put_metadata(Str key, Str value) { metadata.emplace_back(std::string(key), std::string(value)); }
};

std::unique_ptr<Tensors> tensors_new();
std::unique_ptr<Tensors> load_safetensors(Str path);
void save_safetensors(Str path, const Tensors& tensors);

} // namespace mlx_shim
