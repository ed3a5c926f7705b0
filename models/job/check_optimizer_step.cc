// SPDX-License-Identifier: Apache-2.0
#include "models/job/check_optimizer_step.h"

#include <span>
#include <variant>

namespace tidemark {
namespace {

struct Rule {
  bool holds;
  const char* message;
  const char* hint;
};

bool IsTied(const Network& network) {
  const auto* decoder = std::get_if<Decoder>(&network.shape);
  return decoder != nullptr && decoder->tied_embeddings;
}

Status Check(const char* key, bool is_set, std::span<const Rule> rules) {
  for (const Rule& rule : rules) {
    if (is_set && !rule.holds) {
      return Error{ErrorCode::bad_input, key, rule.message, rule.hint};
    }
  }
  return Done{};
}

}  // namespace

Status CheckOptimizerStep(const Job& job) {
  const OptimizerStep& step = job.axes.optimizer_step;
  const Rule clipping[] = {
      {job.layout.pp == 1 || job.schedule != Schedule::dualpipe,
       "two ranks hold each stage, and one of them takes its norm, which is not modelled yet",
       "set schedule to 1f1b, or optimizer_step.clip_norm to null"},
      {job.layout.pp == 1 || job.network.trainable.empty(),
       "in a pipeline whose parameters are partly frozen a stage may have no gradients, which is not modelled yet",
       "set layout.pp to 1, or optimizer_step.clip_norm to null"},
  };
  TIDEMARK_TRY(Check("optimizer_step.clip_norm", step.clip_norm > 0, clipping));
  const Rule in_backward[] = {
      {job.accumulation_steps == 1, "every backward pass updates: a second microbatch would find weights changed",
       "set accumulation_steps to 1, and raise micro_batch_size"},
      {step.clip_norm == 0,
       "the norm is known only when all gradients are, and by then they are gone: what torchtitan and LOMO say, too",
       "set optimizer_step.clip_norm to null"},
      {step.kernel == OptimizerStep::Kernel::fused,
       "each parameter has an optimizer of its own, which is modelled with fused kernels only",
       "set optimizer_step.kernel to fused"},
      {job.layout.pp == 1, "Optimizers in backward is not supported with Pipeline Parallel. (torchtitan)",
       "set layout.pp to 1"},
      {job.axes.sync.when != Sync::When::custom, "there is one microbatch, which is reduced and stepped behind",
       "set sync.when to every or last"},
      {!IsTied(job.network), "the gradient of a tied embedding is complete only at the end, which is not modelled yet",
       "untie the embedding (network.tied_embeddings: false)"},
  };
  return Check("optimizer_step.in_backward", step.in_backward, in_backward);
}

}  // namespace tidemark
