// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/colossalai/gemini.h"

#include <algorithm>
#include <cstdlib>

#include "sim/lower/lifetime.h"
#include "sim/strategies/colossalai/chunk_search.h"
#include "sim/strategies/colossalai/gemini_chunks.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {
namespace {

/// The embedding that a tied head reads: the first parameter of the stage.
constexpr ParameterAt kTiedTo{0, 0};

/// Parameters whose weights an action reads or whose gradients it writes, each once.
std::vector<std::uint32_t> ParametersOf(const Block& block, const Action& action) {
  std::vector<std::uint32_t> used;
  if (const auto* calculate = std::get_if<Calculate>(&action)) {
    for (const ParameterId parameter : calculate->parameters) {
      used.push_back(parameter.index);
    }
    for (const ParameterId parameter : calculate->gradients) {
      if (block.parameters[parameter.index].trainable &&
          std::find(used.begin(), used.end(), parameter.index) == used.end()) {
        used.push_back(parameter.index);
      }
    }
  }
  return used;
}

class Gemini : public DataParallel {
 public:
  explicit Gemini(Role& role) : role_(role), layout_(PackChunks(role.stage, role.job)), chunks_(role, layout_) {
    DeclareParameters();
    open_.resize(layout_.elements.size());
    complete_.resize(layout_.elements.size());
  }

  /// Gradient hooks of the operator before run first: autograd calls them once its input gradient is there, too. Then
  /// all chunks that this operator does not need go, and those that it needs and that are not there are gathered.
  void BeforeAction(const Microbatch& microbatch, std::int64_t position, std::size_t action) override {
    const Block& block = role_.stage.BlockAt(position);
    std::vector<ParameterAt> parameters;
    for (const std::uint32_t parameter : ParametersOf(block, ActionAt(block, action))) {
      const ParameterAt at{position, parameter};
      parameters.push_back(ParameterOf(role_, at).tied ? kTiedTo : at);
    }
    const bool continues = std::any_of(handed_.begin(), handed_.end(), [&](const ParameterAt& at) {
      return std::find(parameters.begin(), parameters.end(), at) != parameters.end();
    });
    if (!continues) {
      HandOver(microbatch);
    }
    if (parameters.empty() || layout_.keep_gathered) {
      return;
    }
    std::vector<std::int64_t> needed;
    for (const ParameterAt& at : parameters) {
      const std::int64_t chunk = layout_.ChunkOf(at);
      if (chunk >= 0 && std::find(needed.begin(), needed.end(), chunk) == needed.end()) {
        needed.push_back(chunk);
      }
    }
    GiveUpAllBut(needed);
    for (const std::int64_t chunk : needed) {
      if (std::find(gathered_.begin(), gathered_.end(), chunk) == gathered_.end()) {
        chunks_.Gather(chunk);
        gathered_.push_back(chunk);
      }
    }
  }

  void AfterBackward(const Microbatch& microbatch, std::int64_t) override { HandOver(microbatch); }

  void EndBackward(const Microbatch&) override {
    GiveUpAllBut({});
    chunks_.WaitForReductions();
    std::fill(open_.begin(), open_.end(), false);
    std::fill(complete_.begin(), complete_.end(), 0);
  }

  void OptimizerStep() override { chunks_.Update(); }

  /// Nothing frees a gradient chunk but the next window's first gradient.
  void DiscardGradients(const Microbatch&) override {}

  BufferRef Weight(const ParameterAt& at) override {
    const std::int64_t chunk = layout_.ChunkOf(at);
    return chunk < 0 ? FrozenWeight(at) : chunks_.Whole(chunk);
  }

  BufferRef BeginGradient(const Microbatch&, const ParameterAt& at) override {
    const BufferRef gradient = gradients_(role_, at);
    role_.Alloc(gradient);
    return gradient;
  }

  void EndGradient(const Microbatch&, const ParameterAt& at) override { handed_.push_back(at); }

  /// Chunks are named absolutely: no two blocks are alike, unless they all lie in the one chunk that is always there.
  std::vector<std::int64_t> Key(std::int64_t position) const override {
    const bool opened = std::find(open_.begin(), open_.end(), true) != open_.end();
    return {layout_.keep_gathered ? -1 : position, opened ? 1 : 0};
  }
  void Shift(std::int64_t blocks) override {
    TIDEMARK_CHECK(layout_.keep_gathered);
    if (open_.front()) {
      const std::vector<std::int32_t>& of_block = layout_.chunk[static_cast<std::size_t>(role_.current())];
      complete_.front() += std::abs(blocks) * std::count(of_block.begin(), of_block.end(), 0);
    }
  }

  BufferRef FinalGradient(const ParameterAt& at) override { return chunks_.FinalGradient(layout_.ChunkOf(at)); }

 private:
  void DeclareParameters() {
    const Precision& precision = role_.job.axes.precision;
    for (const StageRun& run : role_.stage.runs) {
      std::vector<BufferId>& weights = frozen_.emplace_back();
      for (const Parameter& parameter : run.block().parameters) {
        const bool frozen = !parameter.trainable && !parameter.tied;
        weights.push_back(!frozen ? BufferId{}
                                  : role_.builder.AddBuffer({"weight of " + run.block().name + "." + parameter.name,
                                                             Category::parameter,
                                                             precision.params,
                                                             parameter.elements,
                                                             {run.count, 1},
                                                             role_.compute,
                                                             Place::device,
                                                             true,
                                                             true}));
      }
    }
    gradients_.Declare(role_, "gradient of", Category::gradient, precision.gradients, ParameterTable::Of::trained,
                       false);
    emptied_.Declare(role_, "emptied gradient of", Category::gradient, precision.gradients, ParameterTable::Of::trained,
                     false);
  }

  /// Parameters without a gradient are ignored by the chunks: every rank has them.
  BufferRef FrozenWeight(const ParameterAt& at) const {
    return {frozen_[role_.stage.RunOf(at.position)][at.parameter], {role_.At(at.position), Index{}}};
  }

  void GiveUpAllBut(const std::vector<std::int64_t>& needed) {
    const auto stays = [&](std::int64_t chunk) {
      return std::find(needed.begin(), needed.end(), chunk) != needed.end();
    };
    std::sort(gathered_.begin(), gathered_.end());
    for (const std::int64_t chunk : gathered_) {
      if (!stays(chunk)) {
        chunks_.GiveUp(chunk, role_.compute);
      }
    }
    std::erase_if(gathered_, [&](std::int64_t chunk) { return !stays(chunk); });
  }

  /// What the hook on each finished gradient does.
  void HandOver(const Microbatch& microbatch) {
    for (const ParameterAt& at : handed_) {
      const auto chunk = static_cast<std::size_t>(layout_.ChunkOf(at));
      const BufferRef gradient = gradients_(role_, at);
      const BufferRef emptied = emptied_(role_, at);  // torch.empty_like(grad), whose storage is freed at once
      role_.Alloc(emptied);
      role_.Free(emptied);
      const bool opens = !open_[chunk];
      if (opens) {
        chunks_.OpenGradient(layout_.ChunkOf(at), microbatch.first());
        open_[chunk] = true;
      }
      chunks_.PutGradient(layout_.ChunkOf(at), gradient, microbatch.first(), opens);
      if (++complete_[chunk] == layout_.parameters[chunk]) {
        chunks_.Reduce(layout_.ChunkOf(at));
        std::erase(gathered_, layout_.ChunkOf(at));
      }
      role_.Free(gradient);
    }
    handed_.clear();
  }

  Role& role_;
  ChunkLayout layout_;
  GeminiChunks chunks_;
  ParameterTable gradients_, emptied_;
  std::vector<std::vector<BufferId>> frozen_;  ///< weights, per run and parameter

  // Under way:
  std::vector<std::int64_t> gathered_;  ///< chunks whose parameters are there
  std::vector<ParameterAt> handed_;     ///< gradients of the operator that ran last
  std::vector<bool> open_;              ///< by chunk: its gradient chunk is there
  std::vector<std::int64_t> complete_;  ///< by chunk: gradients that it has got
};

}  // namespace

std::unique_ptr<DataParallel> MakeGemini(Role& role) { return std::make_unique<Gemini>(role); }

}  // namespace tidemark
