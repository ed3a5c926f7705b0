// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/expert_permutation_cuda.h"
#include "kernels/glu_cuda.h"
#include "kernels/pointwise_cuda.h"
#include "kernels/row_weights_cuda.h"
#include "models/job/validate.h"
#include "profiler/execute/row_operands.h"

namespace tidemark {
namespace {

/// Rows of experts with three weights, and of outputs that are weighted.
class TorchtitanExpertBinder : RowOperands {
 public:
  explicit TorchtitanExpertBinder(const RowOperands& operands) : RowOperands(operands) {}

  std::optional<Result<Operation>> Bind() const {
    struct Row {
      std::string_view name;
      Operation (TorchtitanExpertBinder::*bind)() const;
    };
    using B = TorchtitanExpertBinder;
    static constexpr std::array kRows = {
        Row{"experts_silu.forward", &B::SiluForward},
        Row{"experts_silu.backward", &B::SiluBackward},
        Row{"experts_product.forward", &B::ProductForward},
        Row{"experts_product.backward", &B::ProductBackward},
        Row{"experts_fused_glu.forward", &B::GluForward},
        Row{"experts_fused_glu.backward", &B::GluBackward},
        Row{"experts.order", &B::Order},
        Row{"experts.gather", &B::Gather},
        Row{"experts.gather_backward", &B::Scatter},
        Row{"experts.scatter", &B::Scatter},
        Row{"experts.scatter_backward", &B::Gather},
        Row{"combine.zero", &B::Zero},
        Row{"combine.weigh", &B::Weigh},
        Row{"combine.weigh_backward", &B::WeighBackward},
    };
    for (const Row& row : kRows) {
      if (row_.name == row.name) {
        return (this->*row.bind)();
      }
    }
    return std::nullopt;
  }

 private:
  const Experts& experts() const { return decoder_.experts; }

  kernels::Glu GluOf() const { return {c_.Read(0).type.elements / experts().ffn, experts().ffn}; }
  TensorType Dense() const { return GluOutput(GluOf(), c_.Read(0).type.dtype); }

  Operation SiluForward() const {
    return {{Dense()}, [glu = GluOf(), gate = c_.Read(0)](Writes writes, const Queue& queue) {
              on::SiluForward(queue, glu, gate, writes[0]);
            }};
  }
  Operation SiluBackward() const {
    return {{Dense()}, [glu = GluOf(), gradient = c_.Read(0), gate = c_.Read(1)](Writes writes, const Queue& queue) {
              on::SiluBackward(queue, glu, gradient, gate, writes[0]);
            }};
  }
  Operation ProductForward() const {
    return {{Dense()}, [glu = GluOf(), silu = c_.Read(0), up = c_.Read(1)](Writes writes, const Queue& queue) {
              on::ProductForward(queue, glu, silu, up, writes[0]);
            }};
  }
  Operation ProductBackward() const {
    const ConstTensor gradient = c_.Read(0), silu = c_.Read(1), up = c_.Read(2);
    return {{Dense(), Dense()}, [=, glu = GluOf()](Writes writes, const Queue& queue) {
              on::ProductBackward(queue, glu, gradient, silu, up, writes[0], writes[1]);
            }};
  }
  Operation GluForward() const {
    return {{Dense()}, [glu = GluOf(), gate = c_.Read(0), up = c_.Read(1)](Writes writes, const Queue& queue) {
              on::GluForward(queue, glu, gate, up, writes[0]);
            }};
  }
  Operation GluBackward() const {
    const ConstTensor gate = c_.Read(0), up = c_.Read(1), gradient = c_.Read(2);
    return {{Dense(), Dense()}, [=, glu = GluOf()](Writes writes, const Queue& queue) {
              on::GluBackward(queue, glu, gate, up, gradient, writes[0], writes[1]);
            }};
  }

  std::int64_t Tokens() const { return shape_.tokens() / (c_.job.layout.sp ? c_.model.place().size : 1); }

  /// As many rows come as are sent (model.cc).
  Operation Order() const {
    const std::int64_t ranks = c_.model.expert_place().groups, experts_of_rank = experts().count / ranks;
    const kernels::RowSort sort{ranks, experts_of_rank, Tokens() * experts().per_token / experts().count, 1};
    return {{{DType::int64, sort.all_rows()}},
            [=](Writes writes, const Queue& queue) { on::SortOrder(queue, sort, writes[0]); }};
  }

  Operation Gather() const {
    const ConstTensor rows = c_.Read(0), order = c_.Read(1);
    return {{rows.type}, [=](Writes writes, const Queue& queue) { on::GatherRows(queue, rows, order, writes[0]); }};
  }
  Operation Scatter() const {
    const ConstTensor rows = c_.Read(0), order = c_.Read(1);
    return {{rows.type}, [=](Writes writes, const Queue& queue) { on::ScatterRows(queue, rows, order, writes[0]); }};
  }

  Operation Zero() const {
    return {{{c_.Stored(PartitionOf(c_.job).compute), Tokens() * decoder_.hidden}},
            [=](Writes writes, const Queue& queue) { on::Zero(queue, writes[0]); }};
  }

  Operation Weigh() const {
    const ConstTensor rows = c_.Read(0), weights = c_.Read(1);
    return {{rows.type}, [=](Writes writes, const Queue& queue) { on::WeighRows(queue, rows, weights, writes[0]); }};
  }

  Operation WeighBackward() const {
    const ConstTensor rows = c_.Read(0), weights = c_.Read(1), gradient = c_.Read(2);
    return {{rows.type, rows.type, weights.type}, [=](Writes writes, const Queue& queue) {
              on::RowWeightGradients(queue, rows, gradient, writes[0], writes[2]);
              on::WeighRows(queue, gradient, weights, writes[1]);
            }};
  }
};

}  // namespace

std::optional<Result<Operation>> BindTorchtitanExperts(const RowOperands& operands) {
  return TorchtitanExpertBinder(operands).Bind();
}

}  // namespace tidemark
