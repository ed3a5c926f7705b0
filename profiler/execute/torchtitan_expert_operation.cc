// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/expert_routing_cuda.h"
#include "kernels/glu_cuda.h"
#include "kernels/linear_cuda.h"
#include "kernels/pointwise_cuda.h"
#include "kernels/row_weights_cuda.h"
#include "models/job/validate.h"
#include "profiler/execute/row_operands.h"

namespace tidemark {
namespace {

/// Rows of a gate whose input is cast, of experts with three weights, and of outputs that are weighted.
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
        Row{"router_gate.widen", &B::Widen},
        Row{"router_gate.forward", &B::GateForward},
        Row{"router_gate.input_gradient", &B::GateInputGradient},
        Row{"router_gate.weight_gradient", &B::GateWeightGradient},
        Row{"route_scores.backward", &B::RouteBackward},
        Row{"experts_silu.forward", &B::SiluForward},
        Row{"experts_silu.backward", &B::SiluBackward},
        Row{"experts_product.forward", &B::ProductForward},
        Row{"experts_product.backward", &B::ProductBackward},
        Row{"experts_fused_glu.forward", &B::GluForward},
        Row{"experts_fused_glu.backward", &B::GluBackward},
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

  Operation Widen() const {
    const ConstTensor input = c_.Read(0), weight = WeightRead(0);
    const DType wide = kernels::StatisticsOf(input.type.dtype);
    return {{{wide, input.type.elements}, {wide, weight.type.elements}}, [=](Writes writes, const Queue& queue) {
              on::Copy(queue, input, writes[0]);
              on::Copy(queue, weight, writes[1]);
            }};
  }

  kernels::Linear GateOf(std::int64_t rows) const { return {rows, decoder_.hidden, experts().count}; }

  Operation GateForward() const {
    const ConstTensor input = c_.Read(0), weight = c_.Read(1);
    const kernels::Linear gate = GateOf(input.type.elements / decoder_.hidden);
    return {{LinearOutput(gate, input.type.dtype, gate.out)}, [=](Writes writes, const Queue& queue) {
              on::LinearForward(queue, gate, input, weight, std::nullopt, writes);
            }};
  }

  Operation GateInputGradient() const {
    const ConstTensor gradient = c_.Read(0), weight = c_.Read(1);
    const kernels::Linear gate = GateOf(gradient.type.elements / experts().count);
    return {{LinearInputGradientOutput(gate, gradient.type.dtype)}, [=](Writes writes, const Queue& queue) {
              on::LinearInputGradient(queue, gate, {&gradient, 1}, weight, writes[0]);
            }};
  }

  Operation GateWeightGradient() const {
    const ConstTensor input = c_.Read(0), gradient = c_.Read(1);
    kernels::Linear gate = GateOf(gradient.type.elements / experts().count);
    gate.accumulate = c_.Adds(0);
    return {{LinearWeightGradientOutput(gate, GradientType(0))}, [=](Writes writes, const Queue& queue) {
              on::LinearWeightGradient(queue, gate, input, {&gradient, 1}, writes[0]);
            }};
  }

  Operation RouteBackward() const {
    const ConstTensor gradient = c_.Read(0), scores = c_.Read(2), chosen = c_.Read(3);
    const kernels::Routing routing{gradient.type.elements / experts().count, experts().count, experts().per_token};
    return {{gradient.type}, [=](Writes writes, const Queue& queue) {
              on::RoutingBackward(queue, routing, gradient, scores, chosen, writes[0]);
            }};
  }

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

  Operation Zero() const {
    const std::int64_t tokens = shape_.tokens() / (c_.job.layout.sp ? c_.model.place().size : 1);
    return {{{c_.Stored(PartitionOf(c_.job).compute), tokens * decoder_.hidden}},
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
