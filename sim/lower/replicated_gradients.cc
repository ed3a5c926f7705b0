// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/replicated_gradients.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "sim/program/stages.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {
namespace {

using Chunk = ReplicatedGradientSum::Chunk;

/// Calls `visit(gradient)` for those final gradients of one block that are summed.
template <class Visit>
void ForEachSummed(const Chunk& chunk, std::int64_t position, Visit visit) {
  ForEachTrained(chunk.role, position, [&](const ParameterAt& at) {
    if (IsSummedOverParts(chunk.role, at)) {
      visit(chunk.data_parallel.FinalGradient(at));
    }
  });
}

/// Writes `body(role, gradient)` for each of them, as one loop per run of blocks.
template <class Body>
void Each(const std::vector<Chunk>& chunks, Body body) {
  for (const Chunk& chunk : chunks) {
    chunk.role.EachBlock([&](std::int64_t position) {
      ForEachSummed(chunk, position, [&](const BufferRef& gradient) { body(chunk.role, gradient); });
    });
  }
}

/// All of them, named absolutely.
std::vector<BufferRef> AllOf(const std::vector<Chunk>& chunks) {
  std::vector<BufferRef> all;
  for (const Chunk& chunk : chunks) {
    for (std::int64_t position = 0; position < chunk.role.stage.blocks; ++position) {
      ForEachSummed(chunk, position, [&](const BufferRef& gradient) { all.push_back(gradient); });
    }
  }
  return all;
}

/// Which tensors of a block hold gradients of own rows when an action of its backward pass has run.
class RowFollower {
 public:
  RowFollower(const Layout& layout, const Block& block)
      : exchanges_rows_(layout.ExpertTp() == 1 && layout.tp > 1), own_rows_(block.tensors.size(), false) {
    if (block.output_gradient.valid()) {
      own_rows_[block.output_gradient.index] = true;
    }
  }

  /// Whether the kernel reads one.
  bool Reads(const Calculate& action) const {
    return !action.recompute && std::any_of(action.reads.begin(), action.reads.end(),
                                            [&](TensorId tensor) { return own_rows_[tensor.index]; });
  }
  void Follow(const Action& action) {
    if (const auto* kernel = std::get_if<Calculate>(&action); kernel != nullptr) {
      Write(kernel->writes, Reads(*kernel));
    } else if (const auto* collective = std::get_if<Communicate>(&action);
               collective != nullptr && collective->kind == CollectiveKind::all_to_all) {
      // To experts that are whole on one rank go the rows of all tensor-parallel ranks; from there each gets its own.
      const bool own = own_rows_[collective->reads.front().index];
      Write(collective->writes, !collective->recompute && own != exchanges_rows_);
    } else if (collective != nullptr && collective->kind != CollectiveKind::all_reduce) {
      Write(collective->writes, !collective->recompute && collective->kind == CollectiveKind::reduce_scatter);
    }
  }

 private:
  void Write(const std::vector<TensorId>& tensors, bool own_rows) {
    for (const TensorId tensor : tensors) {
      own_rows_[tensor.index] = own_rows;
    }
  }

  bool exchanges_rows_;
  std::vector<bool> own_rows_;
};

bool IsOfOwnRows(const Layout& layout, const Block& block, ParameterId parameter) {
  RowFollower rows(layout, block);
  for (const Action& action : block.backward) {
    if (const auto* kernel = std::get_if<Calculate>(&action)) {
      const std::vector<ParameterId>& made = kernel->gradients;
      if (std::find(made.begin(), made.end(), parameter) != made.end()) {
        return rows.Reads(*kernel);
      }
    }
    rows.Follow(action);
  }
  return false;
}

}  // namespace

bool IsSummedOverParts(const Role& role, const ParameterAt& at) {
  if (role.job.layout.tp == 1) {
    return false;
  }
  const Block& block = role.stage.BlockAt(at.position);
  return block.parameters[at.parameter].shared_by_heads ||
         (role.job.GathersRows() && IsOfOwnRows(role.job.layout, block, ParameterId{at.parameter}));
}

void SumOverTensorParallelRanks(Role& role, const std::vector<BufferRef>& gradients) {
  if (gradients.empty()) {
    return;
  }
  const std::int64_t ranks = role.job.layout.tp;
  const StreamId stream = role.builder.AddStream("tp", StreamKind::collective);
  const std::int64_t elements = std::accumulate(
      gradients.begin(), gradients.end(), std::int64_t{0},
      [&](std::int64_t sum, const BufferRef& ref) { return sum + role.builder.buffer(ref.buffer).elements; });
  role.builder.Order(stream, role.compute, "replicated gradients ready");
  role.builder.Emit(Collective{role.builder.Named("sum replicated gradients"), CollectiveKind::all_reduce,
                               Reduction::sum, Rational(1), role.AddGroup("tp", ranks, 1),
                               role.builder.buffer(gradients.front().buffer).dtype, elements, stream, gradients,
                               gradients});
  role.builder.Order(role.compute, stream, "replicated gradients summed");
}

/// Its copy in the flat tensor: of a family like its own.
BufferRef ReplicatedGradientSum::Flat(const Role& role, const BufferRef& gradient) {
  const auto [found, is_new] = flat_.try_emplace(gradient.buffer.index);
  if (is_new) {
    ProgramBuilder builder = role.program.builder;  // whose name says already which stage it belongs to
    Buffer copy = builder.buffer(gradient.buffer);
    copy.name.insert(copy.name.size() - WithoutStage(copy.name).size(), "flat ");
    copy.category = Category::bucket;
    copy.stream = role.compute;
    copy.resident = copy.kept = false;
    copy.slices.clear();
    found->second = builder.AddBuffer(std::move(copy));
  }
  return {found->second, gradient.index};
}

void ReplicatedGradientSum::BeforeStep(const std::vector<Chunk>& chunks) {
  const ReplicatedGradients when = chunks.front().data_parallel.SumsReplicated();
  if (when != ReplicatedGradients::before_step && when != ReplicatedGradients::before_step_flat) {
    return;
  }
  std::vector<BufferRef> gradients = AllOf(chunks);
  if (gradients.empty()) {
    return;
  }
  Role& role = chunks.front().role;
  role.builder.Emit(Begin{Phase::reduce, {LoopId{}, -1, 0}});
  if (when == ReplicatedGradients::before_step) {
    SumOverTensorParallelRanks(role, gradients);
  } else {
    Each(chunks, [&](Role& of, const BufferRef& gradient) { of.Alloc(Flat(of, gradient)); });
    Each(chunks, [&](Role& of, const BufferRef& gradient) {
      of.CopyKernel("gradient to bucket", of.compute, gradient, Flat(of, gradient));
    });
    for (BufferRef& gradient : gradients) {
      gradient = Flat(role, gradient);
    }
    SumOverTensorParallelRanks(role, gradients);
    Each(chunks, [&](Role& of, const BufferRef& gradient) {
      of.CopyKernel("gradient from bucket", of.compute, Flat(of, gradient), gradient);
    });
    Each(chunks, [&](Role& of, const BufferRef& gradient) { of.Free(Flat(of, gradient)); });
  }
  role.builder.Emit(End{Phase::reduce});
}

}  // namespace tidemark
