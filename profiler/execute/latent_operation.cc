// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "kernels/latent_heads_cuda.h"
#include "kernels/rope_cuda.h"
#include "models/job/validate.h"
#include "profiler/execute/row_operands.h"

namespace tidemark {
namespace {

class LatentBinder : RowOperands {
 public:
  explicit LatentBinder(const RowOperands& operands) : RowOperands(operands) {}

  std::optional<Result<Operation>> Bind() const {
    if (row_.name == "latent_heads.forward") {
      return Join();
    }
    if (row_.name == "latent_heads.backward") {
      return Split();
    }
    return std::nullopt;
  }

 private:
  kernels::LatentHeads Heads() const {
    const std::int64_t shared = decoder_.latent.rope_head_size;
    return {.tokens = shape_.tokens(),
            .heads = shape_.heads,
            .own = shape_.head_size - shared,
            .shared = shared,
            .values = decoder_.latent.value_head_size};
  }

  /// Where rotation is fused, what it does to `heads` heads of `size`, of which the last part is turned: those of keys,
  /// or what they share by itself.
  std::optional<kernels::Rope> Rotation(std::int64_t heads, std::int64_t size) const {
    if (!PartitionOf(c_.job).fused_rope) {
      return std::nullopt;
    }
    kernels::Rope rope = MakeRope();
    rope.turned = decoder_.latent.rope_head_size;
    rope.shape.heads = heads;
    rope.shape.kv_heads = 0;
    rope.shape.head_size = size;
    return rope;
  }

  /// Values come along where they are no view.
  Operation Join() const {
    const ConstTensor projected = c_.Read(0), common = c_.Read(1);
    const kernels::LatentHeads heads = Heads();
    const DType dtype = projected.type.dtype;
    const std::optional<kernels::Rope> rope = Rotation(shape_.heads, shape_.head_size);
    const ConstTensor angles = rope ? Angles(*rope) : ConstTensor{};
    Operation operation{{{dtype, heads.key_elements()}}, [=](Writes writes, const Queue& queue) {
                          on::JoinKeys(queue, heads, projected, common, writes[0]);
                          if (rope) {
                            const kernels::Tensor none{{dtype, 0}, nullptr};
                            on::RopeForward(queue, *rope, writes[0], none, angles, writes[0], none);
                          }
                          if (writes.size() > 1) {
                            on::CopyValues(queue, heads, projected, writes[1]);
                          }
                        }};
    if (row_.writes.size() > 1) {
      operation.outputs.push_back({dtype, heads.value_elements()});
    }
    return operation;
  }

  Operation Split() const {
    const ConstTensor keys = c_.Read(0), values = c_.Read(1);
    const kernels::LatentHeads heads = Heads();
    const DType dtype = keys.type.dtype;
    const std::optional<kernels::Rope> rope = Rotation(1, heads.shared);
    const ConstTensor angles = rope ? Angles(*rope) : ConstTensor{};
    return {{{dtype, heads.projected_elements()}, {dtype, heads.common_elements()}},
            [=](Writes writes, const Queue& queue) {
              on::SplitKeyGradients(queue, heads, keys, values, writes[0], writes[1]);
              if (rope) {
                const kernels::Tensor none{{dtype, 0}, nullptr};
                on::RopeBackward(queue, *rope, writes[1], none, angles, writes[1], none);
              }
            }};
  }
};

}  // namespace

std::optional<Result<Operation>> BindLatentHeads(const RowOperands& operands) { return LatentBinder(operands).Bind(); }

}  // namespace tidemark
