// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/kernels/cuda_cases/place.h"

namespace tidemark::kernels::cuda {

/// The host's memory as a place: kernels that it runs, for itself or as a GPU would.
class HostMemory : public Place {
 public:
  bool runs_threads() const override { return false; }
  void* Take(std::size_t bytes) const override { return std::malloc(bytes); }
  void GiveBack(void* data) const override { std::free(data); }
  void Put(const void* from, void* to, std::size_t bytes) const override { Move(from, to, bytes); }
  void Fetch(const void* from, void* to, std::size_t bytes) const override { Move(from, to, bytes); }

 protected:
  explicit HostMemory(std::size_t workspace_bytes) : workspace_(workspace_bytes) {}

  /// With what kernels write beside their tensors; whose it is, is left to say.
  Queue QueueBeside() const {
    return {.scratch = scratch_.data(),
            .workspace = workspace_.data(),
            .workspace_bytes = static_cast<std::int64_t>(workspace_.size())};
  }

 private:
  static void Move(const void* from, void* to, std::size_t bytes) {
    if (bytes > 0) {
      std::memcpy(to, from, bytes);
    }
  }

  mutable std::vector<char> workspace_;
  mutable std::vector<double> scratch_ = std::vector<double>(Queue::kPartialSums);
};

}  // namespace tidemark::kernels::cuda
