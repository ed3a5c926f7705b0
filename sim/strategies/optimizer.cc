// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "sim/strategies/host_optimizer.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {
namespace {

/// Whether the state is there when the role's program has come to its end: not if this is the first step and a loop
/// that drops an incomplete window never updates.
bool ExistsAtEnd(const Role& role) {
  if (role.step != StepKind::first) {
    return true;
  }
  const Result<std::vector<WindowRun>> windows = WindowsOf(role.job);
  return windows.ok() &&
         std::any_of(windows->begin(), windows->end(), [](const WindowRun& run) { return run.place.last; });
}

/// By position, elements of the tensor of this number; 0 where a block has no such tensor.
std::vector<std::int64_t> SizesOf(const std::vector<TensorSizes>& sizes, std::size_t tensor) {
  std::vector<std::int64_t> elements;
  for (const TensorSizes& block : sizes) {
    elements.push_back(tensor < block.size() ? block[tensor] : 0);
  }
  return elements;
}

std::int64_t SumOf(const TensorSizes& sizes) { return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}); }

std::size_t TrainedCount(const Block& block) {
  return static_cast<std::size_t>(std::count_if(block.parameters.begin(), block.parameters.end(), IsTrained));
}

/// Of what a block trains, the name of this number, as a name of a buffer has it behind the block's: ".wq".
std::string TrainedName(const Block& block, std::size_t number) {
  for (const Parameter& parameter : block.parameters) {
    if (IsTrained(parameter) && number-- == 0) {
      return "." + parameter.name;
    }
  }
  TIDEMARK_CHECK(false && "a block trains fewer");
}

void CheckParameters(const Role& role, const std::vector<TensorSizes>& sizes) {
  for (std::int64_t position = 0; position < role.stage.blocks; ++position) {
    TIDEMARK_CHECK(sizes[static_cast<std::size_t>(position)].size() == TrainedCount(role.stage.BlockAt(position)));
  }
}

/// Of what a block holds, be it by its own name or by its parameters', the one of this name behind the block's.
std::vector<Holding> Only(std::vector<Holding> holds, const Block& block, const std::string& part) {
  for (Holding& holding : holds) {
    for (HeldRun& run : holding.of) {
      run.name += run.name == block.name ? part : "";
    }
    std::erase_if(holding.of, [&](const HeldRun& run) { return run.name != block.name + part; });
  }
  std::erase_if(holds, [](const Holding& holding) { return holding.of.empty(); });
  return holds;
}

/// "first moment of" and "second moment of", of "moments of".
std::vector<std::string> MomentNames(const std::string& moments) {
  const std::string plural = "moments";
  TIDEMARK_CHECK(moments.starts_with(plural));
  const std::string rest = moments.substr(plural.size());
  return {"first moment" + rest, "second moment" + rest};
}

}  // namespace

TensorSizes TrainedSizes(const Role& role, std::int64_t position) {
  TensorSizes sizes;
  ForEachTrained(role, position, [&](const ParameterAt& at) { sizes.push_back(ParameterOf(role, at).elements); });
  return sizes;
}

void OptimizerState::Declare(Role& role, const SizesAt& sizes, Tensors tensors, const PartTable::HoldsAt& holds,
                             Place gradients) {
  joined_ = tensors == Tensors::joined;
  Slot slot{"moments of", {}, holds, tensors};
  for (std::int64_t position = 0; position < role.stage.blocks; ++position) {
    slot.sizes.push_back(sizes(position));
  }
  Declare(role, std::vector<Slot>{std::move(slot)}, gradients);
}

void OptimizerState::Declare(Role& role, const std::vector<Slot>& slots, Place gradients) {
  moments_ = MomentsOf(role.job.optimizer);
  std::int64_t tensors = 0;
  for (const Slot& slot : slots) {
    for (const TensorSizes& sizes : slot.sizes) {
      tensors += static_cast<std::int64_t>(sizes.size()) - std::count(sizes.begin(), sizes.end(), 0);
    }
    DeclareStates(role, slot, states_.emplace_back());
  }
  clip_.emplace(role, tensors, gradients);
  if (UpdateKernels::MakesRoots(role.job)) {
    DeclareTemporaries(role, slots);
  }
}

void OptimizerState::DeclareStates(Role& role, const Slot& slot, std::vector<PartTable>& states) {
  const auto declare = [&](const std::string& name, const std::vector<std::int64_t>& elements,
                           const PartTable::HoldsAt& holds, const PartTable::PartOf& part) {
    states.emplace_back().Declare(role, name, Category::optimizer, role.job.axes.precision.optimizer, elements,
                                  role.step != StepKind::first, ExistsAtEnd(role), StatePlace(role.job), holds, part);
  };
  if (moments_ < 2 || UpdateKernels::MakesRoots(role.job)) {
    std::vector<std::int64_t> elements;
    for (const TensorSizes& sizes : slot.sizes) {
      elements.push_back(SumOf(sizes) * moments_);
    }
    declare(slot.name, elements, slot.holds, {});
    return;
  }
  if (slot.tensors != Tensors::parameters) {
    std::vector<std::int64_t> elements;
    for (const TensorSizes& sizes : slot.sizes) {
      elements.push_back(SumOf(sizes));
    }
    for (const std::string& name : MomentNames(slot.name)) {
      declare(name, elements, slot.holds, {});
    }
    return;
  }
  CheckParameters(role, slot.sizes);
  std::size_t most = 0;
  for (const TensorSizes& sizes : slot.sizes) {
    most = std::max(most, sizes.size());
  }
  for (std::size_t tensor = 0; tensor < most; ++tensor) {
    const auto part = [tensor](const Block& block) { return TrainedName(block, tensor); };
    const auto holds = [&, part](std::int64_t position) {
      const Block& block = role.stage.BlockAt(position);
      return tensor < TrainedCount(block) ? Only(slot.holds(position), block, part(block)) : std::vector<Holding>();
    };
    for (const std::string& name : MomentNames(slot.name)) {
      declare(name, SizesOf(slot.sizes, tensor), slot.holds ? PartTable::HoldsAt(holds) : PartTable::HoldsAt(), part);
    }
  }
}

bool OptimizerState::TakesOneByOne(const Job& job) const {
  return !joined_ && UpdateKernels::MakesRoots(job) &&
         job.axes.optimizer_step.kernel == OptimizerStep::Kernel::for_loop;
}

/// Operations over lists see a block's tensors together.
void OptimizerState::DeclareTemporaries(Role& role, const std::vector<Slot>& slots) {
  for (const Slot& slot : slots) {
    std::vector<TensorSizes>& sizes = sizes_.emplace_back(slot.sizes);
    std::size_t most = 0;
    for (TensorSizes& block : sizes) {
      std::erase(block, 0);
      if (!TakesOneByOne(role.job) && !block.empty()) {
        block = {std::accumulate(block.begin(), block.end(), std::int64_t{0})};
      }
      most = std::max(most, block.size());
    }
    const auto declare = [&](const char* what, std::vector<PartTable>& tables) {
      for (std::size_t tensor = 0; tensor < most; ++tensor) {
        const std::string number = most > 1 ? fmt::format(" {}", tensor) : "";
        tables.emplace_back().Declare(role, fmt::format("{}{} for {}", what, number, slot.name), Category::workspace,
                                      role.job.axes.precision.optimizer, SizesOf(sizes, tensor), false, false,
                                      StatePlace(role.job));
      }
    };
    declare("root", roots_.emplace_back());
    declare("denominator", denominators_.emplace_back());
  }
}

UpdatePiece OptimizerState::PieceOf(const Role& role, std::int64_t position, TensorUpdate update) const {
  UpdatePiece piece{std::move(update), {}, {}, {}};
  const std::size_t slot = piece.update.slot;
  for (const PartTable& state : states_[slot]) {
    if (state.Has(position)) {
      piece.states.push_back(state(role, position));
    }
  }
  if (UpdateKernels::MakesRoots(role.job)) {
    piece.root = roots_[slot].front()(role, position);
    piece.denominator = denominators_[slot].front()(role, position);
  }
  return piece;
}

EachPiece OptimizerState::Pieces(Role& role, const Updates& updates) const {
  return [this, &role, &updates](const PieceVisitor& visit) {
    EachBlockAlike(
        role, updates.key,
        [&](std::int64_t position) {
          for (TensorUpdate& update : updates.at(position)) {
            visit(PieceOf(role, position, std::move(update)));
          }
        },
        updates.order);
  };
}

void OptimizerState::MakeStates(const Role& role, const EachPiece& each, const UpdateKernels& write) {
  if (role.step != StepKind::first || moments_ == 0) {
    return;
  }
  each([&](const UpdatePiece& piece) {
    if (made_.insert({piece.update.slot, role.current()}).second) {
      write.MakeState(piece);
    }
  });
}

void OptimizerState::Step(Role& role, const Updates& updates) {
  const EachPiece each = Pieces(role, updates);
  const bool measures = !clip_->measured();
  if (measures) {
    clip_->Measure(each, role.job.axes.shard.optimizer, updates.host_reads_norm);
  }
  clip_->Scale(each, StateStream(role));
  if (measures || role.program.chunks.size() > 1) {
    clip_->Forget();
  }
  MakeStates(role, each, UpdateKernels(role, StateStream(role)));
  if (TakesOneByOne(role.job)) {
    UpdateOneByOne(role, updates);
  } else {
    UpdateInLists(role, each, role.job.axes.optimizer_step.kernel == OptimizerStep::Kernel::for_loop);
  }
}

void OptimizerState::UpdateInBackward(Role& role, std::int64_t position, TensorUpdate update, StreamId stream) {
  const UpdateKernels write(role, stream);
  const UpdatePiece piece = PieceOf(role, position, std::move(update));
  if (role.step == StepKind::first && moments_ > 0) {
    write.MakeState(piece);
  }
  write.UpdateAtOnce(piece);
}

void OptimizerState::MeasureNorm(Role& role, const Updates& updates) {
  clip_->Measure(Pieces(role, updates), role.job.axes.shard.optimizer, updates.host_reads_norm);
}

/// By position: the last tensor that the loop took before it came to the block.
std::vector<std::optional<OptimizerState::Tensor>> OptimizerState::TensorsBefore(BlockOrder order) const {
  const auto blocks = static_cast<std::int64_t>(sizes_.front().size());
  std::vector<std::optional<Tensor>> before(static_cast<std::size_t>(blocks) + 1);
  std::optional<Tensor> last;
  for (std::int64_t walked = 0; walked < blocks; ++walked) {
    const std::int64_t position = order == BlockOrder::first_to_last ? walked : blocks - 1 - walked;
    before[static_cast<std::size_t>(position)] = last;
    for (std::size_t slot = 0; slot < sizes_.size(); ++slot) {
      const TensorSizes& sizes = sizes_[slot][static_cast<std::size_t>(position)];
      if (!sizes.empty()) {
        last = Tensor{position, slot, sizes.size() - 1};
      }
    }
  }
  before.back() = last;  // of all
  return before;
}

/// `before`: whose denominator is bound to the loop's variable until this one is.
void OptimizerState::UpdateTensor(Role& role, const UpdatePiece& piece, const Tensor& tensor,
                                  const std::optional<Tensor>& before) const {
  const UpdateKernels write(role, StateStream(role));
  const BufferRef root = roots_[tensor.slot][tensor.index](role, tensor.position);
  const BufferRef denominator = DenominatorOf(role, tensor);
  role.Alloc(root);
  write.TakeRoot(piece.states.front(), root);
  role.Alloc(denominator);
  write.Divide(root, denominator);
  role.Free(root);
  write.AddEpsilon(denominator);
  if (before) {
    role.Free(DenominatorOf(role, *before));
  }
  write.Apply(piece, denominator, role.builder.buffer(denominator.buffer).elements);
}

void OptimizerState::UpdateOneByOne(Role& role, const Updates& updates) {
  const UpdateKernels write(role, StateStream(role));
  const std::vector<std::optional<Tensor>> before = TensorsBefore(updates.order);
  const auto key = [&](std::int64_t position) {
    std::vector<std::int64_t> all = updates.key(position);
    const std::optional<Tensor>& other = before[static_cast<std::size_t>(position)];
    all.push_back(role.KeyOf(other ? std::optional(other->position) : std::nullopt, position));
    return all;
  };
  EachBlockAlike(
      role, key,
      [&](std::int64_t position) {
        std::optional<Tensor> last = before[static_cast<std::size_t>(position)];
        for (TensorUpdate& update : updates.at(position)) {
          const UpdatePiece piece = PieceOf(role, position, std::move(update));
          write.UpdateMoments(piece);
          const std::size_t slot = piece.update.slot;
          for (std::size_t index = 0; index < sizes_[slot][static_cast<std::size_t>(position)].size(); ++index) {
            const Tensor tensor{position, slot, index};
            UpdateTensor(role, piece, tensor, std::exchange(last, tensor));
          }
        }
      },
      updates.order);
  if (before.back()) {
    role.Free(DenominatorOf(role, *before.back()));
  }
}

}  // namespace tidemark
