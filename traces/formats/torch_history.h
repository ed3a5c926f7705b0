// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/category.h"
#include "base/dtype.h"
#include "base/result.h"
#include "traces/formats/torch_snapshot.h"

namespace tidemark {

/// The life of one allocation.
struct TorchLife {
  std::int64_t n_requested = 0;
  std::int64_t n_block = 0;  ///< what the allocator's totals count for it
  std::uint64_t address = 0;
  std::uint32_t place = 0;
  std::int64_t stream = 0;
  Category category = Category::unknown;
  DType dtype = DType::u8;
  bool before = false;  ///< alive before the recording began
};

/// One birth or death, in the order of the recording.
struct TorchMoment {
  bool alloc = true;
  bool waits = false;      ///< a free that other streams held up
  std::uint32_t life = 0;  ///< index into TorchHistory::lives
  std::int64_t time_us = 0, ready_us = 0;
  std::int64_t n_reserved = 0;  ///< right after it
};

/// What happened on one device, with what was alive before the recording began.
struct TorchHistory {
  std::vector<TorchLife> lives;
  std::vector<TorchMoment> moments;  ///< without the births of what was alive before
  std::int64_t n_reserved_before = 0;
  std::vector<std::size_t> out_of_memory;  ///< moments that lead to each failure
  std::int64_t first_us = 0, last_us = 0;
};

/// PyTorch's recording is a ring buffer: it has lost what came first. But the snapshot has the state at the end, and so
/// what was alive, and how much was reserved, follows backwards from there. A free without its allocation, and a
/// block that is alive at the end and was never allocated, were alive before. Fails where bytes add up to more than
/// 2^60.
Result<TorchHistory> FollowDevice(const TorchSnapshot& snapshot, std::size_t device);

}  // namespace tidemark
