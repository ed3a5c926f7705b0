// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/queue.h"

namespace tidemark {

/// How many rows each of a layer's experts has, by the tensor that says so on the device: the host, which gives the
/// product of each to the device, must know. Where a router has decided, it has waited for that tensor once, as
/// Megatron-LM's host does (token_dispatcher.py).
class ExpertCounts {
 public:
  void Put(const void* tensor, std::vector<std::int64_t> counts) { known_[tensor] = std::move(counts); }
  /// Where the device's memory is the host's, the tensor must still say so.
  std::span<const std::int64_t> Of(const void* tensor, kernels::Queue::Kind kind) const {
    const auto found = known_.find(tensor);
    TIDEMARK_CHECK(found != known_.end());
    TIDEMARK_CHECK(kind == kernels::Queue::Kind::gpu ||
                   std::equal(found->second.begin(), found->second.end(), static_cast<const std::int64_t*>(tensor)));
    return found->second;
  }

 private:
  std::map<const void*, std::vector<std::int64_t>> known_;
};

}  // namespace tidemark
