// SPDX-License-Identifier: Apache-2.0
#include "models/job/fields.h"

namespace tidemark {
namespace {

using Loss = Partition::Loss;

struct NamedLoss {
  const char* name;
  Loss loss;
  const char* summary;
};

/// Peaks are of bytes of logits, of n tokens over a vocabulary of V, or of a chunk of c tokens (models/network).
constexpr NamedLoss kLosses[] = {
    {"upcast-logits", Loss::upcast_logits, "F.cross_entropy(logits.float(), labels): 12 nV at its peak (fp32 too)"},
    {"upcast-returned", Loss::upcast_returned, "the same, in a model that returns its 16-bit logits: 14 nV"},
    {"upcast-fp32-returned", Loss::upcast_fp32_returned, "the same, in a model that returns logits.float(): 16 nV"},
    {"low-precision", Loss::low_precision, "F.cross_entropy(logits, labels) on 16-bit logits: 6 nV"},
    {"softmax-saving", Loss::softmax_saving,
     "nanotron's, and Megatron's with --cross-entropy-loss-fusion; gradient in place: 10 nV"},
    {"softmax-in-place", Loss::softmax_in_place, "Megatron's, softmax and gradient in place: 6 nV"},
    {"chunked", Loss::chunked,
     "torchtitan's ChunkedLossWrapper: head and loss for c tokens at a time (loss_chunk_tokens): 14 cV"},
    {"fused", Loss::fused, "Liger-Kernel's fused linear cross-entropy, gradients made in the forward pass: 2 cV"},
};

}  // namespace

std::vector<std::pair<std::string, std::string>> LossSummaries() {
  std::vector<std::pair<std::string, std::string>> summaries;
  for (const NamedLoss& of : kLosses) {
    summaries.emplace_back(of.name, of.summary);
  }
  return summaries;
}

std::vector<Field<Job>> LossFields() {
  using J = Job;
  Choice<Loss> losses;
  for (const NamedLoss& of : kLosses) {
    losses.choices.emplace_back(of.name, of.loss);
  }
  return {FieldAt<J>(
              "loss", [](J & j) -> auto& { return j.axes.loss; }, losses),
          FieldAt<J>(
              "loss_chunk_tokens", [](J & j) -> auto& { return j.axes.loss_chunk_tokens; }, WholeNumber{0, 1 << 24})};
}

}  // namespace tidemark
