// SPDX-License-Identifier: Apache-2.0
#include "models/job/step_totals.h"

#include <cstddef>
#include <variant>

#include "models/network/operator.h"

namespace tidemark {
namespace {

/// Tensor units work on full tiles of the output; in the last wave processors without a tile wait for the others: at
/// most one tile's time each.
long double FlopsInTiles(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch, const Machine& machine) {
  const auto tiles = static_cast<long double>(CeilDiv(m, machine.tile_m)) *
                         static_cast<long double>(CeilDiv(n, machine.tile_n)) * static_cast<long double>(batch) +
                     static_cast<long double>(machine.processors);
  return tiles * 2 * static_cast<long double>(machine.tile_m) * static_cast<long double>(machine.tile_n) *
         static_cast<long double>(k);
}

/// Arithmetic that takes as long as the operator does, or less where it streams.
long double FlopsBound(const Operator& op, const Machine& machine) {
  if (const auto* gemm = std::get_if<Gemm>(&op)) {
    return FlopsInTiles(gemm->m, gemm->n, gemm->k, gemm->batch, machine);
  }
  if (const auto* attention = std::get_if<Attention>(&op)) {
    const std::int64_t blocks = CeilDiv(attention->sequence, machine.tile_m);
    return static_cast<long double>(FlopsOf(attention->Full()).count()) *  // a window leaves less to do
           static_cast<long double>(blocks * machine.tile_m) / static_cast<long double>(attention->sequence) *
           static_cast<long double>(1 + CeilDiv(machine.processors, blocks));
  }
  if (const auto* loss = std::get_if<InfoNce>(&op)) {
    return FlopsInTiles(loss->rows, loss->columns, loss->width, 1, machine) +
           FlopsInTiles(loss->rows, loss->width, loss->columns, 1, machine) +
           FlopsInTiles(loss->columns, loss->width, loss->rows, 1, machine);
  }
  return static_cast<long double>(FlopsOf(op).count());
}

void Add(StepTotals& totals, const std::vector<Action>& actions, const std::vector<ActionLoop>& loops,
         long double blocks, const Machine& machine) {
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    const long double count = blocks * static_cast<long double>(TimesRun(loops, i));
    totals.actions += count;
    if (const auto* calculate = std::get_if<Calculate>(&action)) {
      totals.flops += count * FlopsBound(calculate->op, machine);
      totals.moved_bytes += count * static_cast<long double>(BytesMovedBy(calculate->op).count());
      if (const auto* row = std::get_if<Tabulated>(&calculate->op)) {
        totals.measured_ns += count * static_cast<long double>(row->nanoseconds);
      }
    } else if (const auto* communicate = std::get_if<Communicate>(&action)) {
      totals.payload_bytes += count * static_cast<long double>(communicate->payload_elements) *
                              static_cast<long double>(SizeOf(communicate->dtype).count());
    }
  }
}

StepTotals Sum(const std::vector<BlockRun>& runs, const Machine& machine, bool recomputes) {
  StepTotals totals;
  const long double forwards = recomputes ? 2 : 1;
  for (const BlockRun& run : runs) {
    const auto count = static_cast<long double>(run.count);
    for (const Parameter& parameter : run.block.parameters) {
      totals.parameters += count * static_cast<long double>(parameter.elements_full);
    }
    for (const Tensor& tensor : run.block.tensors) {
      totals.tensor_bytes += forwards * count * static_cast<long double>(tensor.elements) *
                             static_cast<long double>(SizeOf(tensor.dtype).count());
    }
    for (const TensorId loaded : run.block.loaded) {
      const Tensor& tensor = run.block.tensors[loaded.index];
      totals.loaded_bytes +=
          count * static_cast<long double>(tensor.elements) * static_cast<long double>(SizeOf(tensor.dtype).count());
    }
    Add(totals, run.block.forward, run.block.forward_loops, forwards * count, machine);
    Add(totals, run.block.backward, run.block.backward_loops, count, machine);
  }
  return totals;
}

}  // namespace

StepTotals TotalsOf(const Job& job, const std::vector<BlockRun>& blocks) {
  StepTotals totals = Sum(blocks, job.machine, job.axes.recompute.policy != Recompute::Policy::none);
  if (job.axes.buffers.attention_mask) {
    const long double mask = static_cast<long double>(job.micro_batch_size * job.sequence_length) * job.sequence_length;
    totals.tensor_bytes += 2 * mask;  // and the rows of it that a rank keeps
    totals.loaded_bytes += mask;
  }
  return totals;
}

}  // namespace tidemark
