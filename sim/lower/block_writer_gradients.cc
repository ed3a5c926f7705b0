// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <vector>

#include "sim/lower/block_writer.h"

namespace tidemark {

void BlockWriter::WriteGradients(const Walked& walked, const std::vector<ParameterId>& gradients, Operator& op,
                                 std::vector<BufferRef>& reads, std::vector<BufferRef>& writes) {
  for (const ParameterId parameter : gradients) {
    const Parameter& of = walked.block.parameters[parameter.index];
    if (!of.trainable) {
      continue;
    }
    const ParameterAt at = of.tied ? kTiedTo : ParameterAt{walked.position, parameter.index};
    const bool adds = partial_gradient_.has_value();
    const BufferRef gradient = adds ? *partial_gradient_ : BeginGradient(walked.microbatch, at);
    writes.push_back(gradient);
    made_.push_back({at, gradient});
    if (adds || (gradient.buffer != tied_contribution_ && data_parallel_.AddsInKernel(walked.microbatch, at))) {
      reads.push_back(gradient);
      if (Gemm* gemm = std::get_if<Gemm>(&op)) {
        gemm->accumulate = true;
        gemm->output = role_.builder.buffer(gradient.buffer).dtype;
      }
    }
  }
}

/// A tied gradient is begun by the head, which comes first in the backward pass, and completed by the embedding, whose
/// own part is written beside it and added.
BufferRef BlockWriter::BeginGradient(const Microbatch& microbatch, const ParameterAt& at) {
  if (!tied_ || at != kTiedTo) {
    return data_parallel_.BeginGradient(microbatch, at);
  }
  if (!tied_gradient_) {
    tied_gradient_ = data_parallel_.BeginGradient(microbatch, at);
    return *tied_gradient_;
  }
  const BufferRef contribution{tied_contribution_, {}};
  role_.Alloc(contribution);
  return contribution;
}

void BlockWriter::EndGradient(const Microbatch& microbatch, const MadeGradient& made) {
  const ParameterAt& at = made.at;
  if (tied_ && at == kTiedTo) {
    if (role_.current() != kTiedTo.position) {
      return;
    }
    const BufferRef contribution{tied_contribution_, {}};
    const Buffer& buffer = role_.builder.buffer(tied_contribution_);
    role_.MemoryKernel("embedding.add_tied_gradient", role_.compute, Work::compute, {contribution, *tied_gradient_},
                       {*tied_gradient_}, buffer.elements, buffer.bytes() * 3);
    role_.Free(contribution);
    tied_gradient_.reset();
  }
  if (sums_in_backward_ && IsSummedOverParts(role_, at)) {
    SumOverTensorParallelRanks(role_, {made.gradient});
  }
  data_parallel_.EndGradient(microbatch, at);
}

}  // namespace tidemark
