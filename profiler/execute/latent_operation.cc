// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "kernels/latent_heads_cuda.h"
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

  /// Values come along where they are no view.
  Operation Join() const {
    const ConstTensor projected = c_.Read(0), common = c_.Read(1);
    const kernels::LatentHeads heads = Heads();
    const DType dtype = projected.type.dtype;
    Operation operation{{{dtype, heads.key_elements()}}, [=](Writes writes, const Queue& queue) {
                          on::JoinKeys(queue, heads, projected, common, writes[0]);
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
    return {{{dtype, heads.projected_elements()}, {dtype, heads.common_elements()}},
            [=](Writes writes, const Queue& queue) {
              on::SplitKeyGradients(queue, heads, keys, values, writes[0], writes[1]);
            }};
  }
};

}  // namespace

std::optional<Result<Operation>> BindLatentHeads(const RowOperands& operands) { return LatentBinder(operands).Bind(); }

}  // namespace tidemark
