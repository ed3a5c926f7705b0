// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "profiler/comm/communicator.h"

namespace tidemark {

/// One call of NCCL, as one rank makes it. `count` is NCCL's own: of a reduce-scatter and an all-gather that of one
/// rank's part, of a message its own, of the others that of the buffer.
struct NcclCall {
  enum class Kind : std::uint8_t { all_reduce, reduce_scatter, all_gather, reduce, broadcast, send, receive };
  Kind kind = Kind::all_reduce;
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::fp32;
  bool maximum = false;   ///< of those that reduce; else a sum
  std::int64_t root = 0;  ///< of reduce and broadcast; of a message the other rank

  friend bool operator==(const NcclCall&, const NcclCall&) = default;
};

/// The calls that an exchange is to one rank of `ranks`; several go into one group. NCCL's reduce-scatter and
/// all-gather want parts of one length: where the last ones are shorter, each part is a reduce to its rank, or a
/// broadcast from it. That is exact as well, but other traffic than the real system's, which pads its buffers: its time
/// says nothing. All-to-all is a message to each rank and one from each, as PyTorch puts it (ProcessGroupNCCL). Parts
/// of nothing are left out, so there may be no call. Fails on what Exchange does not know.
Result<std::vector<NcclCall>> NcclCallsOf(const Exchange& exchange, std::int64_t rank, std::int64_t ranks);

}  // namespace tidemark
