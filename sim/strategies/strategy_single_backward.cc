// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/ddp/ddp_preset.h"
#include "sim/strategies/requirement.h"
#include "sim/strategies/strategy.h"

namespace tidemark {
namespace {

/// What DistributedDataParallel insists on, and what follows from there being one backward pass.
Status Refuse(const Job& job) {
  const Axes& axes = job.axes;
  const bool runs_backward =
      job.Microbatches() == job.accumulation_steps || job.last_window.policy != LastWindow::Policy::drop;
  const Requirement requirements[] = {
      {job.layout.pp == 1, "layout.pp", "one backward pass over all graphs needs them all on one stage",
       "set layout.pp to 1"},
      {axes.sync.when == Sync::When::last, "sync.when",
       "one backward pass completes each gradient once, so it is reduced once, at the end of the window",
       "leave sync.when at last"},
      {axes.gradient_flow == GradientFlow::single_backward, "gradient_flow.kind",
       "this strategy is the single backward pass", "use ddp-last for a backward pass per microbatch"},
      {runs_backward, "last_window.policy", "a window that is dropped never reaches its backward pass",
       "set last_window.policy to carry-over, rescaled or not-rescaled"},
      {axes.buffers.set_to_none, "buffers.set_to_none",
       "autograd adds up the graphs' gradients beside gradients that were zeroed in place; that is not modelled",
       "leave buffers.set_to_none at true"},
  };
  TIDEMARK_TRY(Check(requirements));
  return RefuseAsDdpModule(job);
}

}  // namespace

/// The question that comes up wherever accumulation is explained: why not keep all graphs and call backward once, on
/// the sum of the losses? It communicates as little as no_sync does, and holds the activations of one big batch.
///
/// Autograd runs the youngest graph first and adds each weight's gradient up over the graphs; DDP's hook sees it once
/// it is complete, in the oldest graph.
std::vector<Strategy> StrategySingleBackward() {
  Strategy strategy = DdpPreset("single-backward",
                                "PyTorch DDP, all forward passes first, then one backward pass of the summed loss: "
                                "keeps every microbatch's graph",
                                Sync::When::last);
  strategy.defaults.axes.gradient_flow = GradientFlow::single_backward;
  strategy.defaults.keys = {"optimizer_step.kernel",
                            "optimizer_step.clip_norm",
                            "sync.bucket_bytes",
                            "sync.first_bucket_bytes",
                            "sync.overlap",
                            "sync.static_graph",
                            "sync.find_unused_parameters",
                            "buffers.gradient_as_bucket_view"};
  strategy.refuse = Refuse;
  return {strategy};
}

}  // namespace tidemark
