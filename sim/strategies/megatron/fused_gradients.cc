// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/megatron/fused_gradients.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

namespace tidemark {
namespace {

/// Parameters whose gradient is made by a GEMM of a linear layer.
std::set<std::uint32_t> LinearsOf(const Block& block) {
  std::set<std::uint32_t> linears;
  for (const Action& action : block.backward) {
    const auto* kernel = std::get_if<Calculate>(&action);
    if (kernel != nullptr &&
        (std::holds_alternative<Gemm>(kernel->op) || std::holds_alternative<Tabulated>(kernel->op))) {
      for (const ParameterId parameter : kernel->gradients) {
        if (!block.parameters[parameter.index].added_by_hook) {
          linears.insert(parameter.index);
        }
      }
    }
  }
  return linears;
}

/// Rows and columns; of several experts' weights those of one.
std::pair<std::int64_t, std::int64_t> ShapeOf(const Parameter& parameter) {
  const std::int64_t weights = std::max<std::int64_t>(parameter.experts, 1);
  return {parameter.rows / weights, parameter.elements / parameter.rows};
}

}  // namespace

FusedGradients::FusedGradients(Role& role) : role_(role) {
  const bool fuses = role.job.axes.buffers.fused_accumulation;
  for (const StageRun& run : role.stage.runs) {
    fused_.push_back(fuses ? LinearsOf(run.block()) : std::set<std::uint32_t>());
    for (const std::uint32_t index : fused_.back()) {
      tied_here_ |= run.block().parameters[index].tied;
    }
  }
  if (tied_here_) {
    fused_[role.stage.RunOf(kEmbedding.position)].insert(kEmbedding.parameter);
  }
  DeclareDummies();
}

void FusedGradients::DeclareDummies() {
  const bool exist = role_.step != StepKind::first;
  for (std::size_t run = 0; run < fused_.size(); ++run) {
    for (const std::uint32_t index : fused_[run]) {
      const Parameter& parameter = role_.stage.runs[run].block().parameters[index];
      if (!IsTrained(parameter)) {
        continue;
      }
      auto& dummies = role_.program.dummy_gradients;
      const auto [found, added] = dummies.try_emplace(ShapeOf(parameter));
      if (added) {
        const auto [rows, columns] = found->first;
        found->second = {role_.program.builder.AddBuffer({"dummy gradient " + std::to_string(dummies.size()),
                                                          Category::workspace,
                                                          role_.job.axes.precision.gradients,
                                                          rows * columns,
                                                          {1, 1},
                                                          role_.compute,
                                                          Place::device,
                                                          exist,
                                                          true}),
                         exist};
      }
    }
  }
}

BufferRef FusedGradients::Dummy(const ParameterAt& at) {
  auto& [buffer, exists] = role_.program.dummy_gradients.at(ShapeOf(ParameterOf(role_, at)));
  if (!std::exchange(exists, true)) {
    role_.Alloc({buffer, {}});
  }
  return {buffer, {}};
}

std::int64_t FusedGradients::DummiesMade() const {
  return std::ranges::count_if(role_.program.dummy_gradients, [](const auto& dummy) { return dummy.second.exists; });
}

}  // namespace tidemark
