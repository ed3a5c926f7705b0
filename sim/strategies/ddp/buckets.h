// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "sim/strategies/ddp/bucket_layout.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {

/// The reducer's buckets as they lie in memory: one buffer each, of which every gradient has a slice, its slot, one
/// behind the other without padding (Reducer::initialize_buckets, torch/csrc/distributed/c10d/reducer.cpp).
class Buckets {
 public:
  /// Those of `layout` between two passes, in the order in which it launches them. Names them "bucket 0" and slots
  /// "bucket slot of layer.wq"; `prefix` stands before both.
  void Declare(Role& role, const std::string& prefix, DType dtype, BucketLayout& layout, bool resident, bool kept);

  BufferRef Slot(const Role& role, const ParameterAt& at) const { return slots_(role, at); }
  void Alloc(Role& role) const;
  void Free(Role& role) const;

 private:
  std::vector<BufferId> buckets_;
  ParameterTable slots_;
};

}  // namespace tidemark
