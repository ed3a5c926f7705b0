// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/lower.h"

#include <fmt/format.h>

#include <array>

#include "base/text.h"
#include "sim/lower/block_writer.h"
#include "sim/lower/mark_overlap.h"
#include "sim/lower/stage.h"
#include "sim/lower/write_role.h"
#include "sim/program/text.h"
#include "sim/program/verify.h"
#include "sim/strategies/strategy.h"

namespace tidemark {
namespace {

/// What the passes hand on: the stages first, then the program that is made of them.
struct Lowering {
  const Job& job;
  StepKind step;
  std::int64_t rank;
  const Strategy& strategy;
  std::vector<WindowRun> windows;
  std::vector<Stage> stages;
  std::vector<std::vector<Stage>> ranks;  ///< of the pipeline: the stages that each holds
  StepProgram program;
};

Status FindWindows(Lowering& lowering) {
  TIDEMARK_ASSIGN(lowering.windows, WindowsOf(lowering.job));
  return Done{};
}

Status Cut(Lowering& lowering) {
  TIDEMARK_ASSIGN(lowering.stages, CutIntoStages(lowering.job));
  return Done{};
}

Status DealOutStages(Lowering& lowering) {
  lowering.ranks = DealOut(lowering.job, lowering.stages);
  return Done{};
}

Status Write(Lowering& lowering) {
  for (const std::vector<Stage>& chunks : lowering.ranks) {
    lowering.program.roles.push_back(
        WriteRole(lowering.job, chunks, lowering.step, lowering.strategy, lowering.windows, lowering.rank));
  }
  return Done{};
}

Status Mark(Lowering& lowering) {
  for (Program& role : lowering.program.roles) {
    MarkOverlap(role);
  }
  return Done{};
}

std::string TextOf(const std::vector<WindowRun>& windows) {
  std::string text;
  for (const WindowRun& run : windows) {
    const WindowPlace& place = run.place;
    text += fmt::format("{:>4} microbatches: loss times {}/{}{}{}{}{}\n", run.count, place.loss_scale.numerator(),
                        place.loss_scale.denominator(), place.pending ? ", gradients pending" : "",
                        place.reduced ? ", gradients reduced before" : "", place.synchronises ? ", synchronise" : "",
                        place.last ? ", optimizer step" : "");
  }
  return text;
}

std::string TextOf(const std::vector<Stage>& stages) {
  std::string text;
  for (const Stage& stage : stages) {
    text += fmt::format("stage {} of {}\n", stage.index, stage.count);
    for (const StageRun& run : stage.runs) {
      text +=
          fmt::format("  {:>4} x {:<12} {:>15} parameters, {:>15} bytes saved per microbatch, each\n", run.count,
                      run.block().name, Grouped(StoredElements(run.block())), Grouped(SavedBytes(run.block()).count()));
    }
  }
  return text;
}

std::string TextOf(const std::vector<std::vector<Stage>>& ranks) {
  std::string text;
  for (const std::vector<Stage>& chunks : ranks) {
    text += fmt::format("pipeline rank {}:", chunks.front().place.rank);
    for (const Stage& chunk : chunks) {
      text += fmt::format(" stage {}{}", chunk.index, chunk.place.direction > 0 ? " upwards" : "");
    }
    text += "\n";
  }
  return text;
}

std::string TextOf(const StepProgram& program) {
  std::string text;
  for (const Program& role : program.roles) {
    text += (text.empty() ? "" : "\n") + Print(role);
  }
  return text;
}

/// The latest of what the passes have made.
std::string TextOf(const Lowering& lowering) {
  if (!lowering.program.roles.empty()) {
    return TextOf(lowering.program);
  }
  if (!lowering.ranks.empty()) {
    return TextOf(lowering.ranks);
  }
  return lowering.stages.empty() ? TextOf(lowering.windows) : TextOf(lowering.stages);
}

struct LoweringPass {
  const char* name;
  Status (*run)(Lowering&);
};

constexpr std::array kPasses = {LoweringPass{"find-windows", FindWindows}, LoweringPass{"cut-into-stages", Cut},
                                LoweringPass{"deal-out-stages", DealOutStages}, LoweringPass{"write-roles", Write},
                                LoweringPass{"mark-overlap", Mark}};

#ifdef TIDEMARK_VERIFY_LOWERED  // in debug builds, and by tests of the library: CMakeLists.txt
/// By the kernels of the optimizer, of all roles.
std::int64_t UpdatedElements(const StepProgram& step) {
  std::int64_t elements = 0;
  for (const Program& role : step.roles) {
    for (const Node& node : role.nodes) {
      const auto* compute = std::get_if<Compute>(&node);
      const auto* update = compute == nullptr ? nullptr : std::get_if<OptimizerUpdate>(&compute->op);
      elements += update == nullptr ? 0 : update->elements;
    }
  }
  return elements;
}
#endif

}  // namespace

std::vector<std::string> LoweringPasses() {
  std::vector<std::string> names;
  for (const LoweringPass& pass : kPasses) {
    names.emplace_back(pass.name);
  }
  return names;
}

Result<StepProgram> Lower(const Job& job, StepKind step, const PassDump& dump, std::int64_t rank) {
  TIDEMARK_ASSIGN(const Strategy strategy, FindStrategy(job.strategy));
  TIDEMARK_TRY(strategy.Accept(job));
  Lowering lowering{job, step, strategy.ranks_differ ? rank : 0, strategy, {}, {}, {}, {}};
  for (const LoweringPass& pass : kPasses) {
    TIDEMARK_TRY(pass.run(lowering));
    if (dump) {
      dump(pass.name, TextOf(lowering));
    }
  }
#ifdef TIDEMARK_VERIFY_LOWERED
  const bool declared_wrong = strategy.DeclaredWrong(job).has_value();
  for (const Finding& finding : Verify(lowering.program)) {
    // Where a later rank's part is padding alone, it updates nothing: those before it do.
    const bool on_another = rank > 0 && finding.rule == Finding::Rule::lost_gradient &&
                            UpdatedElements(lowering.program) < UpdatedElements(*Lower(job, step));
    TIDEMARK_CHECK(on_another || (declared_wrong && IsWrongResult(finding.rule)));
  }
#endif
  return std::move(lowering.program);
}

}  // namespace tidemark
