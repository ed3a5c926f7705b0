// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/activation_cuda.h"
#include "kernels/expert_linear_cuda.h"
#include "kernels/expert_permutation_cuda.h"
#include "kernels/glu_cuda.h"
#include "kernels/pointwise_cuda.h"
#include "kernels/row_gate_cuda.h"
#include "kernels/row_weights_cuda.h"
#include "models/job/validate.h"
#include "profiler/execute/row_operands.h"

namespace tidemark {
namespace {

/// Rows of a layer's experts. Of those on several ranks each has as many rows of each rank (router_operation.cc).
class ExpertBinder : RowOperands {
 public:
  explicit ExpertBinder(const RowOperands& operands) : RowOperands(operands) {}

  std::optional<Result<Operation>> Bind() const {
    struct Row {
      std::string_view name;
      Operation (ExpertBinder::*bind)() const;
    };
    using B = ExpertBinder;
    static constexpr std::array kRows = {
        Row{"permute.forward", &B::PermuteForward},
        Row{"permute.backward", &B::PermuteBackward},
        Row{"unpermute.forward", &B::UnpermuteForward},
        Row{"unpermute.backward", &B::UnpermuteBackward},
        Row{"experts.sort", &B::SortByExpert},
        Row{"experts.sort_backward", &B::SortBySender},
        Row{"experts.unsort", &B::SortBySender},
        Row{"experts.unsort_backward", &B::SortByExpert},
        Row{"router.narrow", &B::Narrow},
        Row{"combine.widen", &B::Widen},
        Row{"combine.widen_backward", &B::Narrow},
        Row{"combine.narrow", &B::Narrow},
        Row{"combine.narrow_backward", &B::Widen},
        Row{"experts.join", &B::CopyEach},
        Row{"experts.join_backward", &B::CopyEach},
        Row{"experts_up.forward", &B::ProductForward},
        Row{"experts_up.input_gradient", &B::ProductInputGradient},
        Row{"experts_up.weight_gradient", &B::ProductWeightGradient},
        Row{"experts_w1.forward", &B::ProductForward},
        Row{"experts_w1.input_gradient", &B::ProductInputGradient},
        Row{"experts_w1.weight_gradient", &B::ProductWeightGradient},
        Row{"experts_w2.forward", &B::ProductForward},
        Row{"experts_w2.input_gradient", &B::ProductInputGradient},
        Row{"experts_w2.weight_gradient", &B::ProductWeightGradient},
        Row{"experts_w3.forward", &B::ProductForward},
        Row{"experts_w3.input_gradient", &B::ProductInputGradient},
        Row{"experts_w3.weight_gradient", &B::ProductWeightGradient},
        Row{"experts_down.forward", &B::ProductForward},
        Row{"experts_down.input_gradient", &B::ProductInputGradient},
        Row{"experts_down.weight_gradient", &B::ProductWeightGradient},
        Row{"experts_glu.forward", &B::GluForward},
        Row{"experts_glu.backward", &B::GluBackward},
        Row{"experts_activation.forward", &B::ActivationForward},
        Row{"experts_activation.backward", &B::ActivationBackward},
        Row{"experts_weights.forward", &B::WeightsForward},
        Row{"experts_weights.backward", &B::WeightsBackward},
        Row{"shared_gate.forward", &B::GateForward},
        Row{"shared_gate.backward", &B::GateBackward},
        Row{"shared_experts.sum", &B::Sum},
    };
    if (decoder_.experts.count == 0) {
      return std::nullopt;
    }
    for (const Row& row : kRows) {
      if (row_.name == row.name) {
        return (this->*row.bind)();
      }
    }
    if (std::optional<Result<Operation>> torchtitans = BindTorchtitanExperts(*this)) {
      return torchtitans;
    }
    return BindRouter(*this);
  }

 private:
  const Experts& experts() const { return decoder_.experts; }
  bool IsGlu() const { return decoder_.ffn_kind == Decoder::Ffn::glu; }
  kernels::Activation ActivationKind() const {
    return decoder_.relu ? kernels::Activation::relu : kernels::Activation::gelu_tanh;
  }
  const ExpertPlace& place() const { return c_.model.expert_place(); }
  bool SendsRows() const { return experts().dispatcher == Experts::Dispatcher::all_to_all; }
  std::int64_t width() const { return experts().ffn / place().parts; }

  /// Of rows that are sent to all experts' ranks, or of those for this rank's experts among all that are gathered.
  kernels::Permutation PermutationOf(std::int64_t tokens) const {
    return {.tokens = tokens,
            .experts = experts().count,
            .per_token = experts().per_token,
            .width = decoder_.hidden,
            .groups = SendsRows() ? 1 : place().groups,
            .group = SendsRows() ? 0 : place().group,
            .ones_only = experts().layer == Experts::Layer::torchtitan};
  }

  /// By the order of its rows.
  kernels::Permutation PermutationFrom(const ConstTensor& order) const {
    return PermutationOf(order.type.elements * PermutationOf(0).groups / experts().per_token);
  }

  Operation PermuteForward() const {
    const ConstTensor tokens = c_.Read(0), weights = c_.Read(1), mask = c_.Read(2);
    const kernels::Permutation permutation = PermutationOf(tokens.type.elements / decoder_.hidden);
    const DType places = SendsRows() ? DType::int64 : DType::u8;
    const auto types = PermutationOutputs(permutation, tokens.type.dtype, weights.type.dtype, places);
    const std::int64_t own = experts().count / place().groups;
    const TensorType counts{DType::int64, own};
    if (place().ranks() == 1) {
      const auto run = [=, known = c_.expert_counts, device = c_.device, stream = c_.stream](Writes writes,
                                                                                             const Queue& queue) {
        on::Permute(queue, permutation, tokens, weights, mask, {writes[0], writes[1], writes[2], writes[3], writes[4]});
        std::vector<std::int64_t> rows(static_cast<std::size_t>(own));
        device->Fetch(stream, writes[4].data, rows.data(), SizeOf(counts.dtype) * own);
        known->Put(writes[4].data, std::move(rows));
      };
      return {{types.rows, types.row_weights, types.token_order, types.places, counts}, run};
    }
    // Every rank sends as many to each; what this one sends is nobody's count.
    const std::int64_t rows = permutation.rows() * (SendsRows() ? place().parts : 1);
    const auto sent =
        c_.rooms != nullptr ? c_.rooms->Lend(SizeOf(counts.dtype) * types.counts.elements, c_.stream) : nullptr;
    const auto run = [=, known = c_.expert_counts](Writes writes, const Queue& queue) {
      on::Permute(queue, permutation, tokens, weights, mask,
                  {writes[0], writes[1], writes[2], writes[3], {types.counts, sent->data()}});
      on::CountEvenly(queue, rows, writes[4]);
      known->Put(writes[4].data, std::vector<std::int64_t>(static_cast<std::size_t>(own), rows / own));
    };
    return {{types.rows, types.row_weights, types.token_order, types.places, counts}, run};
  }

  Operation PermuteBackward() const {
    const ConstTensor rows = c_.Read(0), weights = c_.Read(1), order = c_.Read(2), places = c_.Read(3);
    const kernels::Permutation permutation = PermutationFrom(order);
    const TensorType tokens{rows.type.dtype, permutation.tokens * permutation.width};
    return {{tokens, {weights.type.dtype, permutation.tokens * permutation.experts}},
            [=](Writes writes, const Queue& queue) {
              on::PermuteBackward(queue, permutation, rows, weights, order, places, writes[0], writes[1]);
            }};
  }

  Operation UnpermuteForward() const {
    const ConstTensor rows = c_.Read(0), order = c_.Read(1);
    const kernels::Permutation permutation = PermutationFrom(order);
    return {{{rows.type.dtype, permutation.tokens * permutation.width}},
            [=](Writes writes, const Queue& queue) { on::Unpermute(queue, permutation, rows, order, writes[0]); }};
  }

  Operation UnpermuteBackward() const {
    const ConstTensor gradient = c_.Read(0), order = c_.Read(1);
    const kernels::Permutation permutation = PermutationOf(gradient.type.elements / decoder_.hidden);
    return {{{gradient.type.dtype, permutation.rows() * permutation.width}}, [=](Writes writes, const Queue& queue) {
              on::UnpermuteBackward(queue, permutation, gradient, order, writes[0]);
            }};
  }

  static std::vector<TensorType> TypesOf(const std::vector<ConstTensor>& tensors) {
    std::vector<TensorType> types;
    for (const ConstTensor& tensor : tensors) {
      types.push_back(tensor.type);
    }
    return types;
  }

  Operation CopyEach() const {
    const std::vector<ConstTensor> reads = Reads(0);
    return {TypesOf(reads), [=](Writes writes, const Queue& queue) {
              for (std::size_t i = 0; i < reads.size(); ++i) {
                on::Copy(queue, reads[i], writes[i]);
              }
            }};
  }

  /// Rows come from each sender expert by expert.
  Operation SortByExpert() const { return Sort(place().ranks(), experts().count / place().groups); }
  Operation SortBySender() const { return Sort(experts().count / place().groups, place().ranks()); }

  /// Of one sender, who may send any number of them to each expert, rows stay in their order. Several send as many.
  Operation Sort(std::int64_t outer, std::int64_t inner) const {
    if (place().ranks() == 1) {
      return CopyEach();
    }
    const std::vector<ConstTensor> reads = Reads(0);
    const std::int64_t rows = reads.front().type.elements / decoder_.hidden;
    return {TypesOf(reads), [=](Writes writes, const Queue& queue) {
              for (std::size_t i = 0; i < reads.size(); ++i) {
                const std::int64_t width = reads[i].type.elements / rows;
                on::SortRows(queue, {outer, inner, rows / (outer * inner), width}, reads[i], writes[i]);
              }
            }};
  }

  /// Sums over ranks are made in the weights' dtype.
  Operation Widen() const { return Cast(kernels::StatisticsOf(c_.Read(0).type.dtype)); }
  Operation Narrow() const { return Cast(c_.Stored(PartitionOf(c_.job).compute)); }
  Operation Cast(DType to) const {
    const ConstTensor from = c_.Read(0);
    return {{{to, from.type.elements}}, [=](Writes writes, const Queue& queue) { on::Copy(queue, from, writes[0]); }};
  }

  Operation Sum() const {
    const std::vector<ConstTensor> addends = Reads(0);
    return {{addends.front().type}, [=](Writes writes, const Queue& queue) { on::Add(queue, addends, writes[0]); }};
  }

  static kernels::ExpertLinear LinearOf(const Parameter& weight) {
    return {
        .experts = weight.experts, .rows = 0, .in = weight.elements / weight.rows, .out = weight.rows / weight.experts};
  }

  /// What the tensor that is read says, when the operation runs.
  auto Counts(std::size_t read) const {
    return [known = c_.expert_counts, tensor = c_.Read(read).data](const Queue& queue) {
      return known->Of(tensor, queue.kind);
    };
  }

  Operation ProductForward() const {
    kernels::ExpertLinear linear = LinearOf(Weight(0));
    const ConstTensor input = c_.Read(0), weight = WeightRead(0);
    linear.rows = input.type.elements / linear.in;
    return {{ExpertLinearOutput(linear, input.type.dtype)}, [=, rows = Counts(1)](Writes writes, const Queue& queue) {
              on::ExpertLinearForward(queue, linear, input, rows(queue), weight, writes[0]);
            }};
  }

  Operation ProductInputGradient() const {
    kernels::ExpertLinear linear = LinearOf(Weight(0));
    const ConstTensor gradient = c_.Read(0), weight = WeightRead(0);
    linear.rows = gradient.type.elements / linear.out;
    return {{ExpertLinearInputGradientOutput(linear, gradient.type.dtype)},
            [=, rows = Counts(1)](Writes writes, const Queue& queue) {
              on::ExpertLinearInputGradient(queue, linear, gradient, rows(queue), weight, writes[0]);
            }};
  }

  Operation ProductWeightGradient() const {
    kernels::ExpertLinear linear = LinearOf(Gradient(0));
    const ConstTensor input = c_.Read(0), gradient = c_.Read(1);
    linear.rows = gradient.type.elements / linear.out;
    linear.accumulate = c_.Adds(0);
    return {{ExpertLinearWeightGradientOutput(linear, GradientType(0))},
            [=, rows = Counts(2)](Writes writes, const Queue& queue) {
              on::ExpertLinearWeightGradient(queue, linear, input, gradient, rows(queue), writes[0]);
            }};
  }

  Operation GluForward() const {
    const ConstTensor packed = c_.Read(0), weights = c_.Read(1);
    const kernels::Glu glu{weights.type.elements, width()};
    return {{GluOutput(glu, packed.type.dtype)},
            [=](Writes writes, const Queue& queue) { on::WeightedGluForward(queue, glu, packed, weights, writes[0]); }};
  }

  Operation GluBackward() const {
    const ConstTensor packed = c_.Read(0), weights = c_.Read(1), gradient = c_.Read(2);
    const kernels::Glu glu{weights.type.elements, width()};
    return {{packed.type, weights.type}, [=](Writes writes, const Queue& queue) {
              on::WeightedGluBackward(queue, glu, packed, weights, gradient, writes[0], writes[1]);
            }};
  }

  Operation ActivationForward() const {
    const ConstTensor input = c_.Read(0);
    if (!IsGlu()) {
      return {{ActivationOutput(input.type)}, [=, kind = ActivationKind()](Writes writes, const Queue& queue) {
                on::ActivationForward(queue, kind, input, writes[0]);
              }};
    }
    const kernels::Glu glu{input.type.elements / (2 * width()), width()};
    const TensorType type = GluOutput(glu, input.type.dtype);
    return {{type, type}, [=](Writes writes, const Queue& queue) {
              on::SiluForward(queue, glu, input, writes[1]);
              on::ProductForward(queue, glu, writes[1], input, writes[0]);
            }};
  }

  Operation ActivationBackward() const {
    const ConstTensor saved = c_.Read(0), gradient = c_.Read(tensors() - 1);
    if (!IsGlu()) {
      return {{ActivationOutput(saved.type)}, [=, kind = ActivationKind()](Writes writes, const Queue& queue) {
                on::ActivationBackward(queue, kind, saved, gradient, writes[0]);
              }};
    }
    const ConstTensor silu = c_.Read(1);
    const kernels::Glu glu{saved.type.elements / (2 * width()), width()};
    const TensorType type = GluOutput(glu, saved.type.dtype);
    return {{saved.type, type, type, type}, [=](Writes writes, const Queue& queue) {
              on::ProductBackward(queue, glu, gradient, silu, saved, writes[1], writes[3]);
              on::SiluBackward(queue, glu, writes[1], saved, writes[2]);
              on::JoinHalves(queue, glu, writes[2], writes[3], writes[0]);
            }};
  }

  /// In the weights' dtype, and cast where that is another.
  Operation WeightsForward() const {
    const ConstTensor activated = c_.Read(0), weights = c_.Read(1);
    std::vector<TensorType> types = {activated.type};
    if (RoutesWide()) {
      types.push_back({weights.type.dtype, activated.type.elements});
    }
    return {std::move(types), [=](Writes writes, const Queue& queue) {
              on::WeighRows(queue, activated, weights, writes.back());
              if (writes.size() > 1) {
                on::Copy(queue, writes.back(), writes.front());
              }
            }};
  }

  Operation WeightsBackward() const {
    const ConstTensor activated = c_.Read(0), weights = c_.Read(1), gradient = c_.Read(2);
    const TensorType wide{weights.type.dtype, activated.type.elements};
    std::vector<TensorType> types = {activated.type, weights.type, wide};
    if (RoutesWide()) {
      types.insert(types.end(), {wide, wide});
    }
    return {std::move(types), [=](Writes writes, const Queue& queue) {
              ConstTensor from = gradient;
              if (writes.size() > 3) {
                on::Copy(queue, gradient, writes[2]);
                from = writes[2];
                on::WeighRows(queue, from, weights, writes[3]);
                on::Copy(queue, writes[3], writes[0]);
              } else {
                on::WeighRows(queue, from, weights, writes[0]);
              }
              on::RowWeightGradients(queue, activated, from, writes.back(), writes[1]);
            }};
  }

  kernels::RowGate GateOf(const ConstTensor& gate_input) const {
    return {gate_input.type.elements / decoder_.hidden, decoder_.hidden, decoder_.hidden};
  }

  Operation GateForward() const {
    const ConstTensor gate_input = c_.Read(0), input = c_.Read(1), vector = WeightRead(0);
    const kernels::RowGate gate = GateOf(gate_input);
    const kernels::RowGateTypes types = RowGateOutputs(gate, input.type.dtype);
    return {{types.output, types.gate}, [=](Writes writes, const Queue& queue) {
              on::RowGateForward(queue, gate, gate_input, vector, input, writes[0], writes[1]);
            }};
  }

  Operation GateBackward() const {
    const ConstTensor gradient = c_.Read(0);
    const kernels::RowGateSaved saved{c_.Read(1), WeightRead(0), c_.Read(2), c_.Read(3)};
    kernels::RowGate gate = GateOf(saved.gate_input);
    const kernels::RowGateGradientTypes made = RowGateGradients(gate, gradient.type.dtype);
    std::vector<TensorType> types = {made.input, made.gate_input, made.products, made.scores};
    if (!row_.gradients.empty()) {
      gate.accumulate = c_.Adds(4);
      types.push_back({GradientType(4), Gradient(0).elements});
    }
    return {std::move(types), [=](Writes writes, const Queue& queue) {
              kernels::RowGateGradientTensors to{writes[0], writes[1], writes[2], writes[3]};
              if (writes.size() > 4) {
                to.vector = writes[4];
              }
              on::RowGateBackward(queue, gate, gradient, saved, to);
            }};
  }
};

}  // namespace

std::optional<Result<Operation>> BindExperts(const RowOperands& operands) { return ExpertBinder(operands).Bind(); }

}  // namespace tidemark
