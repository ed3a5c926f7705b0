// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/cache_passes.h"

namespace tidemark {
namespace {

/// torch.get_rng_state, and torch.cuda.get_rng_state of one device.
constexpr std::int64_t kRandomStateBytes = 5056 + 16;
constexpr Index kWholeStep{LoopId{}, -1, 0};

}  // namespace

CachePasses::CachePasses(Role& role, BlockPasses& passes, BlockWriter& blocks)
    : role_(role), passes_(passes), blocks_(blocks) {
  if (!role.job.CachesRepresentations()) {
    return;
  }
  chunks_ = role.job.Microbatches();
  chunk_loop_ = role.builder.AddLoop("chunk");
  random_ = role.builder.AddBuffer({"random state",
                                    Category::rng,
                                    DType::u8,
                                    kRandomStateBytes,
                                    {role.MicrobatchBuffers(), 1},
                                    role.compute,
                                    Place::host});
  surrogate_ = role.builder.AddBuffer({"surrogate", Category::activation, DType::fp32, 1, {1, 1}, role.compute});
}

void CachePasses::Load(const Microbatch& microbatch, std::int64_t side) {
  role_.builder.Emit(BeginChunk(Phase::load, microbatch, side));
  blocks_.Load(microbatch, role_.stage.RunsOfSide(side));
  role_.builder.Emit(End{Phase::load});
}

void CachePasses::Represent(const Microbatch& microbatch, std::int64_t side) {
  role_.builder.Emit(BeginChunk(Phase::represent, microbatch, side));
  role_.Alloc({random_, {microbatch.index, Index{}}});
  passes_.Forward(microbatch, role_.stage.RunsOfSide(side), BlockWriter::Forwards::representing);
  role_.builder.Emit(End{Phase::represent});
}

void CachePasses::Join(std::int64_t side) {
  const Microbatch any{{chunk_loop_, side * chunks_, 0}, {}};
  const BufferRef chunk = Chunk(any, side, "representation");
  const BufferRef whole = Whole(side, "representations");
  const Buffer& part = role_.builder.buffer(chunk.buffer);
  role_.builder.Emit(Begin{Phase::represent, kWholeStep});
  role_.Alloc(whole);
  EachChunk(chunks_, Compute{role_.builder.Named("join representations"),
                             Pointwise{part.elements, part.bytes().count() * 2, 1},
                             role_.compute,
                             Work::compute,
                             Rational(1),
                             {chunk},
                             {whole}});
  EachChunk(chunks_, tidemark::Free{chunk});
  role_.builder.Emit(End{Phase::represent});
}

void CachePasses::Loss(const Microbatch& microbatch) {
  const std::size_t last = role_.stage.runs.size() - 1;
  const Microbatch all{{}, microbatch.place};
  role_.builder.Emit(Begin{Phase::loss, kWholeStep});
  passes_.Forward(all, {last, last + 1});
  passes_.Backward(all, {last, last + 1});
  role_.builder.Emit(End{Phase::loss});
}

void CachePasses::Forward(const Microbatch& microbatch, std::int64_t side) {
  role_.builder.Emit(BeginChunk(Phase::chunk_forward, microbatch, side));
  passes_.data_parallel().BeginMicrobatch(microbatch);
  passes_.Forward(microbatch, role_.stage.RunsOfSide(side), BlockWriter::Forwards::again);
  passes_.data_parallel().EndForward(microbatch);
  const BufferRef representation = Chunk(microbatch, side, "representation");
  const Buffer& buffer = role_.builder.buffer(representation.buffer);
  role_.Alloc({surrogate_, {}});
  role_.MemoryKernel("surrogate.forward", role_.compute, Work::compute, {representation, Whole(side, "cache")},
                     {{surrogate_, {}}}, buffer.elements, buffer.bytes() * 2);
  role_.builder.Emit(End{Phase::chunk_forward});
}

void CachePasses::Backward(const Microbatch& microbatch, std::int64_t side) {
  const BufferRef representation = Chunk(microbatch, side, "representation");
  const BufferRef gradient = Chunk(microbatch, side, "representation gradient");
  const Buffer& buffer = role_.builder.buffer(gradient.buffer);
  role_.builder.Emit(BeginChunk(Phase::chunk_backward, microbatch, side));
  role_.Alloc(gradient);
  role_.MemoryKernel("surrogate.backward", role_.compute, Work::compute, {Whole(side, "cache"), {surrogate_, {}}},
                     {gradient}, buffer.elements, buffer.bytes() * 2);
  role_.Free({surrogate_, {}});
  passes_.Backward(microbatch, role_.stage.RunsOfSide(side));
  role_.Free(representation);
  role_.builder.Emit(End{Phase::chunk_backward});
}

void CachePasses::Drop() {
  for (const std::int64_t side : {0, 1}) {
    role_.Free(Whole(side, "representations"));
    role_.Free(Whole(side, "cache"));
  }
  EachChunk(role_.MicrobatchBuffers(), tidemark::Free{{random_, {Index{chunk_loop_, 0, 0}, Index{}}}});
}

Begin CachePasses::BeginChunk(Phase phase, const Microbatch& microbatch, std::int64_t side) const {
  return {phase,
          {microbatch.index.loop, microbatch.index.offset - side * chunks_, 0},
          side == 0 ? Side::query : Side::passage};
}

/// A tensor between a chunk of one side and the loss, which is named after the encoder that makes it.
BufferRef CachePasses::Chunk(const Microbatch& microbatch, std::int64_t side, const std::string& name) const {
  const Block& block = role_.stage.runs[role_.stage.RunsOfSide(side).begin].block();
  return blocks_.Carried(microbatch, TowerPrefix(block) + name);
}

BufferRef CachePasses::Whole(std::int64_t side, const std::string& name) const {
  return blocks_.Carried({}, (side == 0 ? "first." : "second.") + name);
}

void CachePasses::EachChunk(std::int64_t count, const Node& node) {
  const std::size_t start = role_.builder.size();
  role_.builder.Emit(node);
  role_.builder.Fold(start, {chunk_loop_, count, 0, 1, 0});
}

}  // namespace tidemark
