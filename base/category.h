// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/quantity.h"

namespace tidemark {

/// What a buffer is for. Every allocated byte belongs to exactly one category.
enum class Category : std::uint8_t {
  parameter,             ///< weights: sharded, or gathered for use
  gradient,              ///< gradients as the backward pass writes them, or their shards
  accumulator,           ///< gradients summed in a buffer and dtype of their own
  optimizer,             ///< master weights and moments
  activation,            ///< saved for backward, or transient inside a block
  tp_gather,             ///< a tensor-parallel input gathered over its group
  bucket,                ///< communication buffers of data parallelism
  logits,                ///< the head's output and what the loss makes of it
  representation_cache,  ///< GradCache's representations and their gradients
  rng,                   ///< saved generator states
  workspace,             ///< scratch of math libraries and optimizers
  input,                 ///< token ids, labels; tables that layers have of their own
  unknown,               ///< in traces of other tools only: no buffer of a program has it
};

inline constexpr std::size_t kCategories = 13;
inline constexpr std::size_t kProgramCategories = 12;  ///< all but unknown, the last

std::string_view Name(Category category);
std::optional<Category> ParseCategory(std::string_view name);

/// Bytes by category.
class CategoryBytes {
 public:
  Bytes& operator[](Category category) { return bytes_.at(static_cast<std::size_t>(category)); }
  Bytes operator[](Category category) const { return bytes_.at(static_cast<std::size_t>(category)); }

  Bytes Total() const;
  CategoryBytes& operator+=(const CategoryBytes& other);
  CategoryBytes& operator*=(std::int64_t factor);
  friend CategoryBytes operator+(CategoryBytes a, const CategoryBytes& b) { return a += b; }
  friend CategoryBytes operator*(CategoryBytes a, std::int64_t factor) { return a *= factor; }
  friend bool operator==(const CategoryBytes&, const CategoryBytes&) = default;

 private:
  std::array<Bytes, kCategories> bytes_{};
};

}  // namespace tidemark
