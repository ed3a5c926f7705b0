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

/// Counts the calls of kernels in the backward passes of one role.
class KernelCalls {
 public:
  struct Call {
    std::int64_t pass =
        0;  ///< earlier passes over the microbatch that called it: one encoder may be run for both sides
    std::int64_t count = 0;  ///< earlier calls in this pass
  };

  void BeginPass() { calls_.clear(); }
  void EndWindow() { passes_.clear(); }
  Call Next(const std::string& kernel, std::int64_t microbatch) {
    const auto [call, first] = calls_.try_emplace(kernel);
    if (first) {
      call->second.pass = passes_[{kernel, microbatch}]++;
    }
    const Call now = call->second;
    ++call->second.count;
    return now;
  }

 private:
  std::map<std::string, Call> calls_;                                    ///< of the pass under way
  std::map<std::pair<std::string, std::int64_t>, std::int64_t> passes_;  ///< over a microbatch of the window
};

}  // namespace tidemark
