// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <new>
#include <utility>

#include "base/check.h"
#include "kernels/queue.h"

namespace tidemark::kernels {

/// Kernels over elements that become one (multi-tensor apply): while it lives, what its queue is given waits for more
/// of its kind, up to what one launch can take, and is launched with them. Whoever gives them says that none needs what
/// another of them writes: see EachTogether. A kernel of another kind, or one that is not over elements, comes behind
/// them as ever. So do libraries of tensors where many small ones need the same (PyTorch's foreach and fused
/// optimizers, and torch.cat). Only a GPU's kernels wait.
class Together {
 public:
  /// CUDA takes at least 4 KiB of parameters (CUDA C++ Programming Guide, "__global__ functions").
  static constexpr std::size_t kBytes = 4096;
  using LaunchAll = void (*)(const Queue& queue, const void* waiting);

  explicit Together(const Queue& queue) : queue_(queue) {
    TIDEMARK_CHECK(queue.together == nullptr);
    queue_.together = this;
  }
  Together(const Together&) = delete;
  Together& operator=(const Together&) = delete;
  ~Together() { Launch(); }

  /// Where to put the kernels.
  const Queue& queue() const { return queue_; }

  /// Launches what waits.
  void Launch() {
    if (const LaunchAll launch = std::exchange(launch_, nullptr)) {
      launch(queue_, waiting_);
    }
  }
  /// What waits, all of a kind that `launch` launches; what is of another is launched before.
  template <class Waiting>
  Waiting& Of(LaunchAll launch) {
    static_assert(sizeof(Waiting) <= kBytes);
    if (launch_ != launch) {
      Launch();
      new (waiting_) Waiting{};
      launch_ = launch;
    }
    return *std::launder(reinterpret_cast<Waiting*>(waiting_));
  }

 private:
  Queue queue_;
  LaunchAll launch_ = nullptr;
  alignas(std::max_align_t) std::byte waiting_[kBytes];
};

/// What waits in the queue comes before what is given to it now.
inline void LaunchWaiting(const Queue& queue) {
  if (queue.together != nullptr) {
    queue.together->Launch();
  }
}

/// Calls `give(queue, piece)` for each, whose kernels become one; those of the next call come behind.
template <class Pieces, class Give>
void EachTogether(const Queue& queue, const Pieces& pieces, const Give& give) {
  Together together(queue);
  for (const auto& piece : pieces) {
    give(together.queue(), piece);
  }
}

}  // namespace tidemark::kernels
