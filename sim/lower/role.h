// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/job/job.h"
#include "sim/lower/stage.h"
#include "sim/lower/window.h"
#include "sim/program/builder.h"

namespace tidemark {

enum class StepKind : std::uint8_t { first, second, steady };

/// Which microbatch a stretch of program belongs to, and where it stands in its accumulation window.
struct Microbatch {
  Index index;  ///< constant, or relative to the microbatch loop
  WindowPlace place;

  /// No gradient exists yet.
  bool first() const { return !place.pending && !place.reduced; }
};

/// What the chunks of one rank write together: a program, and in which order.
struct RoleProgram {
  RoleProgram(const Job& job, const std::vector<Stage>& chunks, std::vector<SlotRun> order, std::int64_t rank);

  /// What all chunks use: made once, and kept.
  struct Shared {
    BufferId id;
    bool exists = false;
  };

  /// One norm of the gradients of all chunks, which each of them is clipped to.
  struct Norm {
    BufferRef numbers, total;  ///< one a tensor, and their sum; invalid: nothing is clipped
    std::int64_t tensors = 0;
    std::int64_t declared = 0, measured = 0, clipped = 0;  ///< chunks
  };

  const std::vector<Stage>& chunks;
  const std::int64_t rank;  ///< in the group "dp", where ranks differ (Strategy::ranks_differ), else 0

  ProgramBuilder builder;
  StreamId compute;
  LoopId block_loop, microbatch_loop;
  std::vector<SlotRun> slots;
  bool splits_backward = false;  ///< some backward passes leave weight gradients for later
  bool is_mirrored = false;      ///< another rank holds the same stages, for other microbatches
  std::map<std::string, GroupId> groups;
  Norm norm;
  Shared pool;  ///< the block that pooled tensors are views of
  /// What autograd gets for gradients that kernels add elsewhere, by rows and columns.
  std::map<std::pair<std::int64_t, std::int64_t>, Shared> dummy_gradients;
};

/// One buffer family per run of the stage; invalid where the run has none.
using RunBuffers = std::vector<BufferId>;

/// What all passes that write one chunk of a role's program share: its stage, the program under construction, and the
/// position of the block that is being written. A position is turned into an index here and nowhere else: while a run
/// of equal blocks is written, relative to the loop variable, so that bodies of equal blocks come out equal.
class Role {
 public:
  Role(const Job& job, const Stage& stage, StepKind step, RoleProgram& program);

  /// Buffers that a tensor of one microbatch needs: one, or one per microbatch where several are in flight; with
  /// GradCache for both sides.
  std::int64_t MicrobatchBuffers() const {
    const bool one = stage.count == 1 && job.axes.gradient_flow == GradientFlow::microbatch;
    return one ? 1 : job.Microbatches() * (job.CachesRepresentations() ? 2 : 1);
  }

  const Job& job;
  const Stage& stage;
  const StepKind step;
  RoleProgram& program;    ///< of all chunks of the rank
  ProgramBuilder builder;  ///< names what chunks make after their stage, where there are several
  StreamId compute;
  LoopId block_loop, microbatch_loop;

  /// Blocks being written: `position`, as the value of the block loop.
  void StandAt(std::int64_t position) { current_ = position; }
  void LeaveBlocks() { current_ = -1; }
  std::int64_t current() const { return current_; }
  /// Positions within the run of `position`, which is what the block loop counts.
  std::int64_t InRun(std::int64_t position) const { return position - stage.first[stage.RunOf(position)]; }

  /// Index of `position` in a family that has one buffer per block of its run.
  Index At(std::int64_t position) const;
  /// Index of `position` in a family that has one buffer per block of the stage, starting with position `base`.
  Index AtStage(std::int64_t position, std::int64_t base) const;

  /// A remembered position as part of a DataParallel::Key: relative to `position` within its run, absolute elsewhere.
  std::int64_t KeyOf(const std::optional<std::int64_t>& remembered, std::int64_t position) const;

  BufferRef Ref(const RunBuffers& buffers, std::int64_t position) const {
    return {buffers[stage.RunOf(position)], {At(position), Index{}}};
  }

  /// Declares one family per run with one buffer per block; none where `elements` of that run is 0. `holds`, by run:
  /// where not empty, what its first buffer holds.
  RunBuffers PerBlock(const std::string& name, Category category, DType dtype, StreamId stream,
                      const std::vector<std::int64_t>& elements, bool resident = false, bool kept = false,
                      const std::vector<Holding>& holds = {});

  /// Writes `body(position)` for every block of the stage, as one loop per run. The body must not depend on neighbours.
  template <class Body>
  void EachBlock(Body body) {
    for (std::size_t run = 0; run < stage.runs.size(); ++run) {
      const std::size_t start = builder.size();
      StandAt(stage.first[run]);
      body(stage.first[run]);
      LeaveBlocks();
      if (stage.runs[run].count > 1 && builder.size() > start) {
        builder.Fold(start, {block_loop, stage.runs[run].count, 0, 1, 0});
      }
    }
  }

  /// A group of `size` ranks, neighbours of which are `stride` ranks apart; the one of this name if there is one.
  GroupId AddGroup(const char* name, std::int64_t size, std::int64_t stride);

  void Alloc(const BufferRef& ref) { builder.Emit(tidemark::Alloc{ref}); }
  void Free(const BufferRef& ref) { builder.Emit(tidemark::Free{ref}); }

  /// A memory-bound kernel: reads and writes so many bytes.
  void MemoryKernel(std::string_view name, StreamId stream, Work work, std::vector<BufferRef> reads,
                    std::vector<BufferRef> writes, std::int64_t elements, Bytes moved, Rational scale = Rational(1));
  /// `to` = `from` * scale, cast on the way where dtypes differ.
  void CopyKernel(std::string_view name, StreamId stream, const BufferRef& from, const BufferRef& to,
                  Rational scale = Rational(1));
  /// `sum` += `addend`, in place.
  void AddKernel(std::string_view name, StreamId stream, const BufferRef& addend, const BufferRef& sum);
  /// Writes zeros.
  void ZeroKernel(std::string_view name, StreamId stream, Work work, const BufferRef& ref);

 private:
  std::int64_t current_ = -1;
};

}  // namespace tidemark
