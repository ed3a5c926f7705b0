// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/lower/block_writer.h"
#include "sim/lower/data_parallel.h"
#include "sim/lower/role.h"

namespace tidemark {

/// Walks the blocks of some runs, forwards or backwards, with the data-parallel system's hooks around each of them.
class BlockPasses {
 public:
  BlockPasses(Role& role, DataParallel& data_parallel, BlockWriter& blocks)
      : role_(role), data_parallel_(data_parallel), blocks_(blocks) {}

  void Forward(const Microbatch& microbatch, const RunRange& runs,
               BlockWriter::Forwards kind = BlockWriter::Forwards::saving);
  void Backward(const Microbatch& microbatch, const RunRange& runs,
                BlockWriter::Backwards kind = BlockWriter::Backwards::all);

  DataParallel& data_parallel() { return data_parallel_; }

 private:
  Role& role_;
  DataParallel& data_parallel_;
  BlockWriter& blocks_;
};

}  // namespace tidemark
