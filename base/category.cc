// SPDX-License-Identifier: Apache-2.0
#include "base/category.h"

namespace tidemark {
namespace {

constexpr std::array<std::string_view, kCategories> kNames = {
    "parameter", "gradient", "accumulator",          "optimizer", "activation", "tp_gather",
    "bucket",    "logits",   "representation_cache", "rng",       "workspace",  "input",
    "unknown"};

}  // namespace

std::string_view Name(Category category) { return kNames.at(static_cast<std::size_t>(category)); }

std::optional<Category> ParseCategory(std::string_view name) {
  for (std::size_t i = 0; i < kCategories; ++i) {
    if (kNames[i] == name) {
      return static_cast<Category>(i);
    }
  }
  return std::nullopt;
}

Bytes CategoryBytes::Total() const {
  Bytes total;
  for (const Bytes bytes : bytes_) {
    total += bytes;
  }
  return total;
}

CategoryBytes& CategoryBytes::operator+=(const CategoryBytes& other) {
  for (std::size_t i = 0; i < kCategories; ++i) {
    bytes_[i] += other.bytes_[i];
  }
  return *this;
}

CategoryBytes& CategoryBytes::operator*=(std::int64_t factor) {
  for (Bytes& bytes : bytes_) {
    bytes *= factor;
  }
  return *this;
}

}  // namespace tidemark
