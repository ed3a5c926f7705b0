// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/role.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/program/layers.h"

namespace tidemark {
namespace {

/// On how many nodes a group lies of which each rank is `stride` behind the last; of all such groups the one on most,
/// for which the others wait: groups that do not divide a node lie across its border here and there.
std::int64_t MostNodes(const Job& job, std::int64_t size, std::int64_t stride) {
  const std::int64_t per_node = job.machine.devices_per_node, block = size * stride;
  if (stride >= per_node) {
    return size;
  }
  std::int64_t most = 1;
  for (std::int64_t i = 0; i < std::min(CeilDiv(job.Ranks(), block), per_node); ++i) {
    for (std::int64_t first = i * block; first < i * block + stride; ++first) {
      most = std::max(most, (first % per_node + (size - 1) * stride) / per_node + 1);
    }
  }
  return most;
}

std::int64_t RanksPerNode(const Job& job, std::int64_t size, std::int64_t stride) {
  const std::int64_t fit = std::clamp<std::int64_t>(job.machine.devices_per_node / stride, 1, size);
  const std::int64_t nodes = MostNodes(job, size, stride);
  return nodes > CeilDiv(size, fit) ? CeilDiv(size, nodes) : fit;
}

}  // namespace

RoleProgram::RoleProgram(const Job& job, const std::vector<Stage>& the_chunks, std::vector<SlotRun> order,
                         std::int64_t the_rank)
    : chunks(the_chunks),
      rank(the_rank),
      builder(fmt::format("stage {}", chunks.front().place.rank), chunks.front().place.rank,
              job.Ranks() / job.layout.pp),
      compute(builder.AddStream("compute", StreamKind::compute)),
      block_loop(builder.AddLoop("block")),
      microbatch_loop(builder.AddLoop("microbatch")),
      slots(std::move(order)) {
  is_mirrored = chunks.back().place.direction > 0;
  for (const SlotRun& run : slots) {
    splits_backward |= std::any_of(run.slots.begin(), run.slots.end(),
                                   [](const Slot& slot) { return slot.pass == Pass::backward_weight; });
  }
}

Role::Role(const Job& the_job, const Stage& the_stage, StepKind the_step, RoleProgram& the_program)
    : job(the_job),
      stage(the_stage),
      step(the_step),
      program(the_program),
      builder(program.chunks.size() == 1 ? program.builder
                                         : program.builder.Under(fmt::format("{}{} ", kStagePrefix, stage.index))),
      compute(program.compute),
      block_loop(program.block_loop),
      microbatch_loop(program.microbatch_loop) {
  std::int64_t layer = stage.layers_before, tower = stage.runs.front().block().tower;
  for (const StageRun& run : stage.runs) {
    layer = run.block().tower == tower ? layer : 0;  // each tower counts its own
    tower = run.block().tower;
    if (LayerBlockOf(run.block().name) != run.block().name) {
      continue;
    }
    if (layer > 0) {
      builder.AddLayers({run.block().name, layer});
    }
    layer += run.count;
  }
}

Index Role::At(std::int64_t position) const {
  const std::size_t run = stage.RunOf(position);
  if (stage.runs[run].count == 1) {
    return {};
  }
  if (current_ >= 0 && stage.RunOf(current_) == run) {
    return {block_loop, position - current_, 0};
  }
  return {LoopId{}, position - stage.first[run], 0};
}

Index Role::AtStage(std::int64_t position, std::int64_t base) const {
  if (current_ < 0) {
    return {LoopId{}, position - base, 0};
  }
  // The loop variable counts within the run: the run's first position turns it into a position of the stage.
  return {block_loop, position - current_ + stage.first[stage.RunOf(current_)] - base, 0};
}

std::int64_t Role::KeyOf(const std::optional<std::int64_t>& remembered, std::int64_t position) const {
  constexpr std::int64_t kNothing = INT64_MIN, kElsewhere = std::int64_t{1} << 40;
  if (!remembered) {
    return kNothing;
  }
  const bool same_run = stage.RunOf(*remembered) == stage.RunOf(position);
  return same_run ? *remembered - position : kElsewhere + *remembered;
}

RunBuffers Role::PerBlock(const std::string& name, Category category, DType dtype, StreamId stream,
                          const std::vector<std::int64_t>& elements, bool resident, bool kept,
                          const std::vector<Holding>& holds) {
  RunBuffers buffers;
  for (std::size_t run = 0; run < stage.runs.size(); ++run) {
    buffers.push_back(elements[run] == 0 ? BufferId{}
                                         : builder.AddBuffer({name + " " + stage.runs[run].block().name,
                                                              category,
                                                              dtype,
                                                              elements[run],
                                                              {stage.runs[run].count, 1},
                                                              stream,
                                                              Place::device,
                                                              resident,
                                                              kept,
                                                              {},
                                                              holds.empty() ? std::vector<Holding>()
                                                                            : std::vector<Holding>{holds[run]}}));
  }
  return buffers;
}

/// Ranks are numbered tensor parallel first, then context parallel, then data parallel, then by stage.
GroupId Role::AddGroup(const char* name, std::int64_t size, std::int64_t stride) {
  if (const auto found = program.groups.find(name); found != program.groups.end()) {
    return found->second;
  }
  return program.groups[name] = builder.AddGroup({name, size, RanksPerNode(job, size, stride)});
}

void Role::MemoryKernel(std::string_view name, StreamId stream, Work work, std::vector<BufferRef> reads,
                        std::vector<BufferRef> writes, std::int64_t elements, Bytes moved, Rational scale) {
  builder.Emit(Compute{builder.Named(name), Pointwise{elements, moved.count(), 1}, stream, work, scale,
                       std::move(reads), std::move(writes)});
}

void Role::CopyKernel(std::string_view name, StreamId stream, const BufferRef& from, const BufferRef& to,
                      Rational scale) {
  const std::int64_t elements = std::min(builder.buffer(from.buffer).elements, builder.buffer(to.buffer).elements);
  const Bytes moved = (SizeOf(builder.buffer(from.buffer).dtype) + SizeOf(builder.buffer(to.buffer).dtype)) * elements;
  MemoryKernel(name, stream, Work::compute, {from}, {to}, elements, moved, scale);
}

void Role::AddKernel(std::string_view name, StreamId stream, const BufferRef& addend, const BufferRef& sum) {
  const Buffer& to = builder.buffer(sum.buffer);
  MemoryKernel(name, stream, Work::compute, {addend, sum}, {sum}, to.elements,
               to.bytes() * 2 + SizeOf(builder.buffer(addend.buffer).dtype) * to.elements);
}

void Role::ZeroKernel(std::string_view name, StreamId stream, Work work, const BufferRef& ref) {
  const Buffer& buffer = builder.buffer(ref.buffer);
  MemoryKernel(name, stream, work, {}, {ref}, buffer.elements, buffer.bytes());
}

}  // namespace tidemark
