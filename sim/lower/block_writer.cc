// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/block_writer.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "sim/program/layers.h"

namespace tidemark {
namespace {

bool IsBoundary(const Block& block, TensorId tensor) {
  return tensor == block.input || tensor == block.output || tensor == block.input_gradient ||
         tensor == block.output_gradient;
}

bool HasOwnLoss(const Action& action) {
  const auto* kernel = std::get_if<Calculate>(&action);
  return kernel != nullptr && kernel->own_loss;
}

bool AnyTrained(const Block& block, const std::vector<ParameterId>& parameters) {
  return std::any_of(parameters.begin(), parameters.end(),
                     [&](ParameterId parameter) { return block.parameters[parameter.index].trainable; });
}

/// A chunk's own loss counts by the chunk's share of the batch, whatever becomes of the loss over all chunks.
Rational OwnLossScale(const Job& job, const WindowPlace& place) {
  return job.CachesRepresentations() ? Rational(1, job.Microbatches()) : place.loss_scale;
}

}  // namespace

BlockWriter::BlockWriter(Role& role, DataParallel& data_parallel)
    : role_(role),
      data_parallel_(data_parallel),
      sums_in_backward_(data_parallel.SumsReplicated() == ReplicatedGradients::in_backward),
      pool_(role) {
  const Job& job = role.job;
  copy_ = role.builder.AddStream("copy", StreamKind::copy);
  if (job.layout.tp > 1) {
    tp_.stream = role.builder.AddStream("tp", StreamKind::collective);
    tp_.group = role.AddGroup("tp", job.layout.tp, 1);
  }
  if (job.layout.cp > 1) {
    cp_.stream = role.builder.AddStream("cp", StreamKind::collective);
    cp_.group = role.AddGroup("cp", job.layout.cp, job.layout.tp);
  }
  for (std::size_t run = 0; run < role.stage.runs.size(); ++run) {
    DeclareTensors(run);
    for (const Parameter& parameter : role.stage.runs[run].block().parameters) {
      tied_ |= parameter.tied;
    }
  }
  DeclareBoundaries();
  DeclareMask();
  if (tied_) {
    const Block& block = role.stage.BlockAt(kTiedTo.position);
    const Parameter& embedding = block.parameters[kTiedTo.parameter];
    Holding whole;
    whole.of = {{block.name + "." + embedding.name}};
    tied_contribution_ = role.builder.AddBuffer({"embedding's part of tied gradient",
                                                 Category::gradient,
                                                 job.axes.precision.gradients,
                                                 embedding.elements,
                                                 {1, 1},
                                                 role.compute,
                                                 Place::device,
                                                 false,
                                                 false,
                                                 {},
                                                 {std::move(whole)}});
  }
}

BlockWriter::BlockTables BlockWriter::Tabulate(const Block& block, bool first_of_network) {
  BlockTables tables;
  if (role_.program.splits_backward) {
    tables.split = SplitBackward(block, role_.job.axes.precision.gradients);
    tables.split_plans = PlanActions(tables.split.block, first_of_network);
  }
  tables.plans = PlanActions(role_.program.splits_backward ? tables.split.whole : block, first_of_network);
  if (role_.job.CachesRepresentations()) {
    tables.representing = PlanRepresenting(block, first_of_network);
  }
  for (const Action& action : block.backward) {
    ForEachTouch(action,
                 [&](TensorId tensor, bool) { tables.reads_output_gradient |= tensor == block.output_gradient; });
  }
  return tables;
}

void BlockWriter::DeclareTensors(std::size_t number) {
  const StageRun& run = role_.stage.runs[number];
  const Turns& turns = role_.stage.turns[number];
  const bool first_of_network = number == 0 && role_.stage.is_first();
  RunTables tables;
  tables.usual = Tabulate(run.block(), first_of_network);
  if (turns.period > 0) {
    tables.turn = Tabulate(*turns.block, first_of_network);
  }
  // A split backward pass has tensors of its own, and what lies in the pool without it may not with it.
  const BlockTables& fullest = turns.period > 0 ? tables.turn : tables.usual;
  const Block& block = role_.program.splits_backward ? fullest.split.block
                       : turns.period > 0            ? *turns.block
                                                     : run.block();
  const std::int64_t microbatches = role_.MicrobatchBuffers();
  for (std::uint32_t i = 0; i < block.tensors.size(); ++i) {
    const Tensor& tensor = block.tensors[i];
    BufferId id;
    if (IsBoundary(block, TensorId{i})) {
      id = BufferId{};
    } else if (!tensor.pool.empty()) {
      id = pool_.AddView(block.name + "." + tensor.name, tensor, microbatches, run.count);
    } else if (tensor.carried.yes) {
      id = DeclareCarried(tensor);
    } else {
      id = role_.builder.AddBuffer({block.name + "." + tensor.name,
                                    tensor.category,
                                    tensor.dtype,
                                    tensor.elements,
                                    {microbatches, run.count},
                                    role_.compute});
    }
    tables.tensors.push_back(id);
  }
  for (const Constant& constant : block.constants) {
    tables.constants.push_back(role_.builder.AddBuffer({block.name + "." + constant.name,
                                                        Category::input,
                                                        constant.dtype,
                                                        constant.elements,
                                                        {run.count, 1},
                                                        role_.compute,
                                                        Place::device,
                                                        true,
                                                        true}));
  }
  runs_.push_back(std::move(tables));
}

std::vector<BlockWriter::ActionPlan> BlockWriter::PlanActions(const Block& block, bool first_of_network) {
  const std::vector<Lifetime> lifetimes = LifetimesOf(block);
  std::vector<ActionPlan> plans(block.forward.size() + block.backward.size());
  std::vector<TensorId> touched;
  std::string name = block.name + ".";
  const std::size_t prefix = name.size();
  for (std::size_t i = 0; i < plans.size(); ++i) {
    ActionPlan& plan = plans[i];
    touched.clear();
    ForEachTouch(ActionAt(block, i), [&](TensorId tensor, bool) {
      if (std::find(touched.begin(), touched.end(), tensor) == touched.end()) {
        touched.push_back(tensor);
      }
    });
    for (const TensorId tensor : touched) {
      const Tensor& of = block.tensors[tensor.index];
      if (!of.pool.empty()) {
        plan.pooled.push_back(tensor);
      }
      if (lifetimes[tensor.index].birth == i && BornHere(block, tensor)) {
        plan.births.push_back(tensor);
      }
      if (lifetimes[tensor.index].death == i && DiesHere(block, first_of_network, tensor)) {
        plan.deaths.push_back(tensor);
      }
    }
    name.resize(prefix);
    name += std::visit([](const auto& leaf) -> const std::string& { return leaf.name; }, ActionAt(block, i));
    plan.name = role_.builder.Named(name);
  }
  return plans;
}

Index BlockWriter::MicrobatchIndex(const Microbatch& microbatch) const {
  return role_.MicrobatchBuffers() > 1 ? microbatch.index : Index{};
}

std::vector<BufferRef> BlockWriter::Walked::Refs(const std::vector<TensorId>& ids) const {
  std::vector<BufferRef> refs;
  refs.reserve(ids.size() + 2);  // weights or a gradient may follow
  for (const TensorId id : ids) {
    refs.push_back(tensors[id.index]);
  }
  return refs;
}

bool BlockWriter::BornHere(const Block& block, TensorId tensor) const {
  return tensor != block.input && tensor != block.output_gradient && block.tensors[tensor.index].pool.empty() &&
         !block.tensors[tensor.index].carried.born_elsewhere &&
         std::find(block.loaded.begin(), block.loaded.end(), tensor) == block.loaded.end();
}

bool BlockWriter::DiesHere(const Block& block, bool first_of_network, TensorId tensor) const {
  const bool input_of_embedding = tensor == block.input && first_of_network;
  return tensor != block.output && tensor != block.input_gradient && block.tensors[tensor.index].pool.empty() &&
         !block.tensors[tensor.index].carried.dies_elsewhere && !input_of_embedding;
}

void BlockWriter::Forward(const Microbatch& microbatch, std::int64_t position, Forwards kind) {
  kind_ = kind;
  if (position == 0) {
    pool_.BeginForward();
  }
  const Walked walked = Walk(microbatch, position);
  ActAll(walked, walked.block.forward_loops, 0, 0, walked.block.forward.size());
  if (position == role_.stage.blocks - 1 && !keeps_mask_) {
    FreeMask(microbatch);
  }
  kind_ = Forwards::saving;
}

void BlockWriter::Backward(const Microbatch& microbatch, std::int64_t position, Backwards kind) {
  const BlockTables& tables = TablesAt(position);
  split_ = kind != Backwards::all;
  const bool begins = kind != Backwards::of_weights && position == role_.stage.blocks - 1;
  if (begins) {
    pool_.BeginBackward();
  }
  const Walked walked = Walk(microbatch, position);
  const Block& block = walked.block;
  const bool says_where = std::any_of(block.backward.begin(), block.backward.end(), HasOwnLoss);
  if (begins && role_.stage.is_last() && !says_where) {
    loss_scale_ = microbatch.place.loss_scale;  // the first kernel multiplies by the loss's own gradient
  }
  const std::size_t begin = kind == Backwards::of_weights ? tables.split.weights : 0;
  const std::size_t end = kind == Backwards::of_inputs ? tables.split.weights : block.backward.size();
  ActAll(walked, block.backward_loops, block.forward.size(), begin, end);
  // A block whose parameters are frozen and that has nothing below it reads no gradient; somebody has to let go of it.
  if (kind != Backwards::of_weights && block.output_gradient.valid() && !tables.reads_output_gradient) {
    role_.Free(BoundaryGradient(microbatch, position + 1));
  }
  const std::int64_t first_layer = role_.stage.is_first() && role_.stage.blocks > 1 ? 1 : 0;
  if (position == first_layer && keeps_mask_ && kind != Backwards::of_weights) {
    FreeMask(microbatch);
  }
  split_ = false;
}

const BlockWriter::BlockTables& BlockWriter::TablesAt(std::int64_t position) const {
  const std::size_t run = role_.stage.RunOf(position);
  return role_.stage.IsTurn(run, position) ? runs_[run].turn : runs_[run].usual;
}

std::vector<std::int64_t> BlockWriter::Key(std::int64_t position) const {
  const std::size_t run = role_.stage.RunOf(position);
  return {pool_.Key(), InputIsPooled(position) ? 1 : 0, role_.stage.Turn(run, position)};
}

void BlockWriter::ActAll(const Walked& walked, const std::vector<ActionLoop>& loops, std::size_t base,
                         std::size_t begin, std::size_t end) {
  auto loop = loops.begin();
  std::size_t start = 0;
  for (std::size_t action = begin; action < end; ++action) {
    if (loop != loops.end() && loop->begin == action) {
      start = role_.builder.size();
    }
    const bool own_loss = HasOwnLoss(ActionAt(walked.block, base + action));
    if (own_loss && base > 0) {
      loss_scale_ = OwnLossScale(role_.job, walked.microbatch.place);
    }
    if (!own_loss || kind_ != Forwards::representing) {
      Act(walked, base + action);
    }
    if (loop != loops.end() && loop->end == action + 1) {
      if (!action_loop_) {
        action_loop_ = role_.builder.AddLoop(std::string(kPartLoop));
      }
      role_.builder.Fold(start, {*action_loop_, loop->count, 0, 1, 0});
      ++loop;
    }
  }
}

BlockWriter::Walked BlockWriter::Walk(const Microbatch& microbatch, std::int64_t position) const {
  const BlockTables& tables = TablesAt(position);
  const std::vector<ActionPlan>& whole = kind_ == Forwards::representing ? tables.representing : tables.plans;
  Walked walked{microbatch,
                position,
                split_ ? tables.split.block : role_.stage.BlockAt(position),
                split_ ? tables.split_plans : whole,
                {}};
  const std::vector<BufferId>& families = runs_[role_.stage.RunOf(position)].tensors;
  const std::array<Index, 2> own{MicrobatchIndex(microbatch), role_.At(position)};
  walked.tensors.reserve(families.size());
  for (std::uint32_t i = 0; i < families.size(); ++i) {
    walked.tensors.push_back(pool_.InSmall(position, TensorId{i}) ? pool_.small_view() : BufferRef{families[i], own});
  }
  const auto stands_for =
      [&](TensorId tensor, BufferRef (BlockWriter::*boundary)(const Microbatch&, std::int64_t) const, std::int64_t at) {
        if (tensor.valid()) {
          walked.tensors[tensor.index] = (this->*boundary)(microbatch, at);
        }
      };
  stands_for(walked.block.input, &BlockWriter::Boundary, position);
  stands_for(walked.block.output, &BlockWriter::Boundary, position + 1);
  stands_for(walked.block.input_gradient, &BlockWriter::BoundaryGradient, position);
  stands_for(walked.block.output_gradient, &BlockWriter::BoundaryGradient, position + 1);
  return walked;
}

void BlockWriter::Act(const Walked& walked, std::size_t action) {
  const ActionPlan& plan = walked.plans[action];
  data_parallel_.BeforeAction(walked.microbatch, walked.position, action);
  for (const TensorId tensor : plan.pooled) {
    pool_.Request(walked.tensors[tensor.index]);
  }
  for (const TensorId tensor : plan.births) {
    role_.Alloc(walked.tensors[tensor.index]);
  }
  std::visit([&](const auto& leaf) { Act(walked, plan.name, leaf); }, ActionAt(walked.block, action));
  for (const TensorId tensor : plan.deaths) {
    const BufferRef& ref = walked.tensors[tensor.index];
    if (role_.builder.buffer(ref.buffer).is_view()) {
      pool_.DropOutput();
    } else {
      role_.Free(ref);
    }
  }
  if (!in_flight_) {
    for (const MadeGradient& made : unfinished_) {
      EndGradient(walked.microbatch, made);
    }
    unfinished_.clear();
  }
  data_parallel_.AfterAction(walked.microbatch, walked.position, action);
}

void BlockWriter::Act(const Walked& walked, NameId name, const Calculate& action) {
  const Block& block = walked.block;
  if (!action.gradients.empty() && action.writes.empty() && !AnyTrained(block, action.gradients)) {
    return;  // the weight gradient of a frozen parameter: nobody asks for it
  }
  std::vector<BufferRef> reads = walked.Refs(action.reads);
  for (const ParameterId parameter : action.parameters) {
    reads.push_back(data_parallel_.Weight(
        block.parameters[parameter.index].tied ? kTiedTo : ParameterAt{walked.position, parameter.index}));
  }
  for (const ConstantId constant : action.constants) {
    const std::vector<BufferId>& constants = runs_[role_.stage.RunOf(walked.position)].constants;
    reads.push_back({constants[constant.index], {role_.At(walked.position), Index{}}});
  }
  std::vector<BufferRef> writes = walked.Refs(action.writes);
  Operator op = action.op;
  WriteGradients(walked, action.partial_gradients, op, reads, writes);
  if (!made_.empty()) {
    partial_gradient_ = made_.back().gradient;
    made_.clear();
  }
  WriteGradients(walked, action.gradients, op, reads, writes);
  if (!made_.empty()) {
    partial_gradient_.reset();
  }
  const bool again = action.recompute || (kind_ == Forwards::again && !action.own_loss);
  Compute kernel{name,
                 op,
                 role_.compute,
                 again ? Work::recompute : Work::compute,
                 loss_scale_,
                 std::move(reads),
                 std::move(writes)};
  kernel.own_heads = action.own_heads && role_.job.layout.tp > 1;
  role_.builder.Emit(std::move(kernel));
  loss_scale_ = Rational(1);
  for (const MadeGradient& made : made_) {
    if (in_flight_) {
      unfinished_.push_back(made);
    } else {
      EndGradient(walked.microbatch, made);
    }
  }
  made_.clear();
}

void BlockWriter::Act(const Walked& walked, NameId name, const Communicate& action) {
  ProgramBuilder& builder = role_.builder;
  const Way& way = WayAmong(action.among);
  builder.Order(way.stream, role_.compute, way.ready);
  builder.Emit(Collective{name, action.kind, action.reduction, Rational(1), way.group, action.dtype,
                          action.payload_elements, way.stream, walked.Refs(action.reads), walked.Refs(action.writes)});
  in_flight_ = action.asynchronous;
  if (!action.asynchronous) {
    builder.Order(role_.compute, way.stream, way.done);
  }
}

void BlockWriter::Act(const Walked&, NameId, const Await& action) {
  const Way& way = WayAmong(action.among);
  role_.builder.Order(role_.compute, way.stream, way.done);
  in_flight_ = false;
}

}  // namespace tidemark
