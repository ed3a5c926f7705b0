// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tidemark {

/// Numbers the backward kernels that make weight gradients, for all roles of a step together.
class GradientSources {
 public:
  /// That of a kernel and of which of its calls within a backward pass. Backward passes walk the network alike, so the
  /// count of calls says which block's it is.
  std::int64_t Number(const std::string& kernel, std::int64_t call) {
    const auto [found, added] = numbers_.try_emplace({kernel, call}, static_cast<std::int64_t>(names_.size()));
    if (added) {
      names_.push_back(fmt::format("{}, block {} of its backward pass", kernel, call));
    }
    return found->second;
  }
  const std::string& Name(std::int64_t source) const { return names_[static_cast<std::size_t>(source)]; }

 private:
  std::map<std::pair<std::string, std::int64_t>, std::int64_t> numbers_;
  std::vector<std::string> names_;
};

}  // namespace tidemark
