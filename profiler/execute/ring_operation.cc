// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <optional>
#include <string_view>

#include "kernels/attention_merge_cuda.h"
#include "kernels/pointwise_cuda.h"
#include "profiler/execute/row_operands.h"

namespace tidemark {
namespace {

/// Rows of a ring's tables. Keys and values lie one behind the other in one tensor.
class RingBinder : RowOperands {
 public:
  explicit RingBinder(const RowOperands& operands) : RowOperands(operands) {}

  std::optional<Result<Operation>> Bind() const {
    struct Row {
      std::string_view begin;
      Operation (RingBinder::*bind)() const;
    };
    static constexpr std::array kRows = {
        Row{"attention.stack", &RingBinder::Stack},     Row{"attention.merge_0", &RingBinder::BeginMerge},
        Row{"attention.merge_", &RingBinder::Merge},    Row{"attention.kv_back", &RingBinder::Stack},
        Row{"attention.sum_dq_", &RingBinder::Sum},     Row{"attention.sum_dkv_", &RingBinder::Sum},
        Row{"attention.unstack", &RingBinder::Unstack}, Row{"attention.side_by_side", &RingBinder::Stack},
    };
    for (const Row& row : kRows) {
      if (row_.name.starts_with(row.begin)) {
        return (this->*row.bind)();
      }
    }
    return std::nullopt;
  }

 private:
  /// All that is read one behind the other.
  Operation Stack() const {
    const std::vector<ConstTensor> parts = Reads(0);
    return {{{parts.front().type.dtype, Elements(parts)}}, [=](Writes writes, const Queue& queue) {
              std::int64_t begin = 0;
              for (const ConstTensor& part : parts) {
                on::Copy(queue, part, kernels::Slice(writes[0], begin, part.type.elements));
                begin += part.type.elements;
              }
            }};
  }

  Operation Unstack() const {
    const ConstTensor both = c_.Read(0);
    const std::int64_t keys = shape_.key_elements(), values = both.type.elements - keys;
    return {{{both.type.dtype, keys}, {both.type.dtype, values}}, [=](Writes writes, const Queue& queue) {
              on::Copy(queue, kernels::Slice(both, 0, keys), writes[0]);
              on::Copy(queue, kernels::Slice(both, keys, values), writes[1]);
            }};
  }

  Operation BeginMerge() const {
    const ConstTensor output = c_.Read(0), lse = c_.Read(1);
    return {{output.type, lse.type}, [=](Writes writes, const Queue& queue) {
              on::Copy(queue, output, writes[0]);
              on::Copy(queue, lse, writes[1]);
            }};
  }

  Operation Merge() const {
    const ConstTensor part = c_.Read(0), part_lse = c_.Read(1);
    const kernels::AttentionMerge merge{part_lse.type.elements, shape_.value_size()};
    return {{part.type, part_lse.type}, [=](Writes writes, const Queue& queue) {
              on::MergeAttention(queue, merge, part, part_lse, writes[0], writes[1]);
            }};
  }

  /// What one step has made begins the sum, or is added to it: the last of what is read, where it is read.
  Operation Sum() const {
    const bool adds = row_.reads.back() == row_.writes.front();
    std::vector<ConstTensor> parts = Reads(0);
    parts.resize(parts.size() - (adds ? 1 : 0));
    return {{{parts.front().type.dtype, Elements(parts)}}, [=](Writes writes, const Queue& queue) {
              std::int64_t begin = 0;
              for (const ConstTensor& part : parts) {
                const kernels::Tensor to = kernels::Slice(writes[0], begin, part.type.elements);
                adds ? on::Accumulate(queue, part, to) : on::Copy(queue, part, to);
                begin += part.type.elements;
              }
            }};
  }
};

}  // namespace

std::optional<Result<Operation>> BindRingAttention(const RowOperands& operands) { return RingBinder(operands).Bind(); }

}  // namespace tidemark
