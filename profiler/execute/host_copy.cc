// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/host_copy.h"

#include <fmt/format.h>

#include "profiler/execute/operation.h"
#include "sim/program/stages.h"

namespace tidemark {

bool IsUsedParameters(std::string_view copy) { return WithoutStage(copy) == "copy used parameters"; }

bool IsAttentionMask(std::string_view copy) { return WithoutStage(copy) == "load.attention_mask"; }

Result<kernels::TensorType> HostCopyType(const Job& job, const Model& model, std::string_view copy, const Buffer& to) {
  if (IsUsedParameters(copy)) {
    return kernels::TensorType{DType::int32, model.TrainedOf(to.name)};
  }
  if (IsAttentionMask(copy)) {
    return kernels::TensorType{DType::u8, model.samples() * job.sequence_length * job.sequence_length};
  }
  if (WithoutStage(copy) != "load.ids" && WithoutStage(copy) != "load.labels") {
    return NotExecuted(fmt::format("'{}', a copy between host and device", copy));
  }
  const Block& block = model.BlockOfAction(WithoutStage(to.name));
  return kernels::TensorType{DType::int64, model.SequencesOf(block) * job.TokensOnRank()};
}

}  // namespace tidemark
