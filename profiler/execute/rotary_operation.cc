// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope_cuda.h"
#include "kernels/rotary_table_cuda.h"
#include "profiler/execute/rotary_tables.h"
#include "profiler/execute/row_operands.h"

namespace tidemark {
namespace {

class RotaryBinder : RowOperands {
 public:
  explicit RotaryBinder(const RowOperands& operands) : RowOperands(operands) {}

  Operation Rotate(bool backward) const {
    kernels::Rope rope = MakeRope();
    const ConstTensor angles = Angles(rope);
    if (row_.writes.size() == 1) {  // queries or keys alone: heads of which none are keys'
      const ConstTensor from = c_.Read(0);
      if (decoder_.IsLatent()) {  // of queries the last part of each head, of keys what all heads share
        rope.turned = decoder_.latent.rope_head_size;
        rope.shape.head_size = row_.name.starts_with("rope.k.") ? rope.turned : shape_.head_size;
      }
      rope.shape.heads = from.type.elements / (shape_.tokens() * rope.shape.head_size);
      rope.shape.kv_heads = 0;
      const kernels::RopeTypes types = RopeOutputs(rope, from.type.dtype);
      return {{types.q}, [=](Writes writes, const Queue& queue) {
                (backward ? on::RopeBackward : on::RopeForward)(queue, rope, from, {types.k, nullptr}, angles,
                                                                writes[0], {types.k, nullptr});
              }};
    }
    const bool has_rows = rope.angles_from == kernels::Rope::AnglesFrom::rows;
    const ConstTensor q = c_.Read(0), k = c_.Read(tensors() - (has_rows ? 1 : 0) > 1 ? 1 : 0);  // k: of a packed one
    const kernels::RopeTypes types = RopeOutputs(rope, q.type.dtype);
    return {{types.q, types.k}, [=](Writes writes, const Queue& queue) {
              (backward ? on::RopeBackward : on::RopeForward)(queue, rope, q, k, angles, writes[0], writes[1]);
            }};
  }

  Operation TakeRows() const {
    const ConstTensor table = c_.Read(0);
    const kernels::RotaryRows rows{.table = LayersTable(c_.job, decoder_),
                                   .tokens = shape_.tokens(),
                                   .sequence = shape_.sequence,
                                   .places = c_.share.places()};
    return {{RotaryRowsOutput(rows, table.type.dtype)},
            [=](Writes writes, const Queue& queue) { on::TakeRotaryRows(queue, rows, table, writes[0]); }};
  }
};

}  // namespace

Operation BindRotation(const RowOperands& operands, bool backward) { return RotaryBinder(operands).Rotate(backward); }

Operation BindRotaryRows(const RowOperands& operands) { return RotaryBinder(operands).TakeRows(); }

}  // namespace tidemark
