// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/tensor.h"
#include "models/job/job.h"
#include "profiler/execute/model.h"
#include "sim/program/program.h"

namespace tidemark {

/// A stretch of one parameter's numbers, and where it lies in a buffer. In elements. It may be empty: a rank whose part
/// of a parameter has none of its numbers.
struct Stretch {
  Model::Weight weight;
  std::int64_t block = 0;  ///< the model's number of it among equal blocks
  std::int64_t begin = 0, elements = 0;
  std::int64_t offset = 0;
  bool joined = false;  ///< one tensor of the optimizer with the stretch before it

  std::int64_t end() const { return begin + elements; }
  bool IsWhole() const { return begin == 0 && elements == weight.parameter->elements; }
};

/// What a buffer of weights, gradients or optimizer state holds. Moments stand one after the other, each like this.
struct Contents {
  std::vector<Stretch> stretches;
  std::int64_t elements = 0;  ///< with padding
  std::int64_t begin = 0;     ///< of what lies in a larger buffer; offsets count from that buffer's beginning
};

/// By what the buffer `holds`, and where it says nothing by the end of its name: "of layer.wq" that parameter, "of
/// layer" all parameters of the block, in the order of their definition, trained ones alone where it is not a copy of
/// weights. Sizes are the model's, divided and rounded up as Holding says. Empty: nothing of the model's, not as
/// many numbers, or divided between other ranks than the job divides it between.
std::optional<Contents> ContentsOf(const Model& model, const Buffer& buffer, std::int64_t index);

/// The same of one program's buffers, which stay where they are: each is worked out once. A buffer of the whole model
/// names all of its parameters, and operations of one parameter each ask for it as often as there are such.
class ContentsTable {
 public:
  /// nullptr: none.
  std::shared_ptr<const Contents> Of(const Model& model, const Buffer& buffer, std::int64_t index);

 private:
  std::map<std::pair<const Buffer*, std::int64_t>, std::shared_ptr<const Contents>> known_;
};

/// Numbers that two buffers share.
struct Shared {
  Stretch stretch;          ///< with its offset in the first
  std::int64_t offset = 0;  ///< in the second
};
std::vector<Shared> SharedBy(const Contents& first, const Contents& second);

bool IsMoments(const Buffer& buffer);
/// Numbers that an optimizer keeps for each weight.
std::int64_t StatesPerWeight(OptimizerKind kind);

/// What such a buffer is as the job says: the precision of what it is for, and as many numbers for each weight as its
/// optimizer keeps. Of communication buffers the dtype is the program's own; collectives are compared with it.
kernels::TensorType StateType(const Job& job, const Buffer& buffer, const Contents& contents);

}  // namespace tidemark
