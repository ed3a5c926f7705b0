// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace tidemark {

/// How many rows each of a layer's experts has, by the tensor that says so on the device: the host, which gives the
/// product of each to the device, must know. Where a router has decided, it has waited for that tensor once, as
/// Megatron-LM's host does (token_dispatcher.py).
class ExpertCounts {
 public:
  void Put(const void* tensor, std::vector<std::int64_t> counts) { known_[tensor] = std::move(counts); }
  std::span<const std::int64_t> Of(const void* tensor) const { return known_.at(tensor); }

 private:
  std::map<const void*, std::vector<std::int64_t>> known_;
};

}  // namespace tidemark
