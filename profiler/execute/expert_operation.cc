// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/activation_cuda.h"
#include "kernels/expert_linear.h"
#include "kernels/expert_permutation.h"
#include "kernels/glu_cuda.h"
#include "kernels/pointwise_cuda.h"
#include "kernels/row_gate.h"
#include "kernels/row_weights.h"
#include "models/job/validate.h"
#include "profiler/execute/row_operands.h"

namespace tidemark {
namespace {

using kernels::OnProcessor;
constexpr OnProcessor kPermute(&kernels::Permute);
constexpr OnProcessor kPermuteBackward(&kernels::PermuteBackward);
constexpr OnProcessor kUnpermute(&kernels::Unpermute);
constexpr OnProcessor kUnpermuteBackward(&kernels::UnpermuteBackward);
constexpr OnProcessor kLinearForward(&kernels::ExpertLinearForward);
constexpr OnProcessor kLinearInputGradient(&kernels::ExpertLinearInputGradient);
constexpr OnProcessor kLinearWeightGradient(&kernels::ExpertLinearWeightGradient);
constexpr OnProcessor kGluForward(&kernels::WeightedGluForward);
constexpr OnProcessor kGluBackward(&kernels::WeightedGluBackward);
constexpr OnProcessor kWeighRows(&kernels::WeighRows);
constexpr OnProcessor kRowWeightGradients(&kernels::RowWeightGradients);
constexpr OnProcessor kGateForward(&kernels::RowGateForward);
constexpr OnProcessor kGateBackward(&kernels::RowGateBackward);

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
        Row{"combine.widen", &B::Widen},
        Row{"combine.widen_backward", &B::Narrow},
        Row{"combine.narrow", &B::Narrow},
        Row{"combine.narrow_backward", &B::Widen},
        Row{"experts.join", &B::CopyEach},
        Row{"experts.join_backward", &B::CopyEach},
        Row{"experts_up.forward", &B::ProductForward},
        Row{"experts_up.input_gradient", &B::ProductInputGradient},
        Row{"experts_up.weight_gradient", &B::ProductWeightGradient},
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
            .parts = SendsRows() ? 1 : place().groups,
            .part = SendsRows() ? 0 : place().group};
  }

  Operation PermuteForward() const {
    const ConstTensor tokens = c_.Read(0), weights = c_.Read(1), mask = c_.Read(2);
    const kernels::Permutation permutation = PermutationOf(tokens.type.elements / decoder_.hidden);
    const DType places = SendsRows() ? DType::int64 : DType::u8;
    const auto types = PermutationOutputs(permutation, tokens.type.dtype, weights.type.dtype, places);
    const std::int64_t own = experts().count / place().groups, senders = place().ranks();
    const bool sends = SendsRows() && senders > 1;  // counts are of what comes
    return {{types.rows, types.row_weights, types.token_order, types.places, {DType::int64, own}},
            [=](Writes writes, const Queue& queue) {
              std::vector<std::int64_t> sent(sends ? static_cast<std::size_t>(permutation.experts) : 0);
              const kernels::Tensor counts = sends ? kernels::Tensor{types.counts, sent.data()} : writes[4];
              kPermute(queue, permutation, tokens, weights, mask, {writes[0], writes[1], writes[2], writes[3], counts});
              if (sends) {
                TIDEMARK_CHECK(std::ranges::all_of(sent, [&](std::int64_t count) { return count == sent.front(); }));
                std::fill_n(static_cast<std::int64_t*>(writes[4].data), own, sent.front() * senders);
              }
            }};
  }

  Operation PermuteBackward() const {
    const ConstTensor rows = c_.Read(0), weights = c_.Read(1), order = c_.Read(2), places = c_.Read(3);
    const std::int64_t own = experts().count / (SendsRows() ? 1 : place().groups);
    const kernels::Permutation permutation = PermutationOf(places.type.elements / own);
    const TensorType tokens{rows.type.dtype, permutation.tokens * permutation.width};
    return {{tokens, {weights.type.dtype, permutation.tokens * permutation.experts}},
            [=](Writes writes, const Queue& queue) {
              kPermuteBackward(queue, permutation, rows, weights, order, places, writes[0], writes[1]);
            }};
  }

  Operation UnpermuteForward() const {
    const ConstTensor rows = c_.Read(0), order = c_.Read(1);
    const std::int64_t parts = SendsRows() ? 1 : place().groups;
    const kernels::Permutation permutation = PermutationOf(order.type.elements * parts / experts().per_token);
    return {{{rows.type.dtype, permutation.tokens * permutation.width}},
            [=](Writes writes, const Queue& queue) { kUnpermute(queue, permutation, rows, order, writes[0]); }};
  }

  Operation UnpermuteBackward() const {
    const ConstTensor gradient = c_.Read(0), order = c_.Read(1);
    const kernels::Permutation permutation = PermutationOf(gradient.type.elements / decoder_.hidden);
    return {{{gradient.type.dtype, permutation.rows() * permutation.width}}, [=](Writes writes, const Queue& queue) {
              kUnpermuteBackward(queue, permutation, gradient, order, writes[0]);
            }};
  }

  Operation CopyEach() const {
    const std::vector<ConstTensor> reads = Reads(0);
    std::vector<TensorType> types;
    for (const ConstTensor& read : reads) {
      types.push_back(read.type);
    }
    return {std::move(types), [=](Writes writes, const Queue& queue) {
              for (std::size_t i = 0; i < reads.size(); ++i) {
                on::Copy(queue, reads[i], writes[i]);
              }
            }};
  }

  /// Rows come from each sender expert by expert.
  Operation SortByExpert() const { return Sort(place().ranks(), experts().count / place().groups); }
  Operation SortBySender() const { return Sort(experts().count / place().groups, place().ranks()); }

  /// From [outer, inner, rows] to [inner, outer, rows], as many rows each; of one sender, who may send any number of
  /// them to each expert, they stay in their order.
  Operation Sort(std::int64_t outer, std::int64_t inner) const {
    if (place().ranks() == 1) {
      return CopyEach();
    }
    const std::vector<ConstTensor> reads = Reads(0);
    std::vector<TensorType> types;
    for (const ConstTensor& read : reads) {
      types.push_back(read.type);
    }
    return {std::move(types), [=](Writes writes, const Queue& queue) {
              for (std::size_t i = 0; i < reads.size(); ++i) {
                const std::int64_t elements = reads[i].type.elements / (outer * inner);
                for (std::int64_t from = 0; from < outer * inner; ++from) {
                  const std::int64_t to = from % inner * outer + from / inner;
                  on::Copy(queue, kernels::Slice(reads[i], from * elements, elements),
                           kernels::Slice(writes[i], to * elements, elements));
                }
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

  Operation ProductForward() const {
    kernels::ExpertLinear linear = LinearOf(Weight(0));
    const ConstTensor input = c_.Read(0), counts = c_.Read(1), weight = WeightRead(0);
    linear.rows = input.type.elements / linear.in;
    return {{ExpertLinearOutput(linear, input.type.dtype)}, [=](Writes writes, const Queue& queue) {
              kLinearForward(queue, linear, input, counts, weight, writes[0]);
            }};
  }

  Operation ProductInputGradient() const {
    kernels::ExpertLinear linear = LinearOf(Weight(0));
    const ConstTensor gradient = c_.Read(0), counts = c_.Read(1), weight = WeightRead(0);
    linear.rows = gradient.type.elements / linear.out;
    return {{ExpertLinearInputGradientOutput(linear, gradient.type.dtype)}, [=](Writes writes, const Queue& queue) {
              kLinearInputGradient(queue, linear, gradient, counts, weight, writes[0]);
            }};
  }

  Operation ProductWeightGradient() const {
    kernels::ExpertLinear linear = LinearOf(Gradient(0));
    const ConstTensor input = c_.Read(0), gradient = c_.Read(1), counts = c_.Read(2);
    linear.rows = gradient.type.elements / linear.out;
    linear.accumulate = c_.Adds(0);
    return {{ExpertLinearWeightGradientOutput(linear, GradientType(0))}, [=](Writes writes, const Queue& queue) {
              kLinearWeightGradient(queue, linear, input, gradient, counts, writes[0]);
            }};
  }

  Operation GluForward() const {
    const ConstTensor packed = c_.Read(0), weights = c_.Read(1);
    const kernels::Glu glu{weights.type.elements, width()};
    return {{GluOutput(glu, packed.type.dtype)},
            [=](Writes writes, const Queue& queue) { kGluForward(queue, glu, packed, weights, writes[0]); }};
  }

  Operation GluBackward() const {
    const ConstTensor packed = c_.Read(0), weights = c_.Read(1), gradient = c_.Read(2);
    const kernels::Glu glu{weights.type.elements, width()};
    return {{packed.type, weights.type}, [=](Writes writes, const Queue& queue) {
              kGluBackward(queue, glu, packed, weights, gradient, writes[0], writes[1]);
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
              kWeighRows(queue, activated, weights, writes.back());
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
                kWeighRows(queue, from, weights, writes[3]);
                on::Copy(queue, writes[3], writes[0]);
              } else {
                kWeighRows(queue, from, weights, writes[0]);
              }
              kRowWeightGradients(queue, activated, from, writes.back(), writes[1]);
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
              kGateForward(queue, gate, gate_input, vector, input, writes[0], writes[1]);
            }};
  }

  Operation GateBackward() const {
    const ConstTensor gradient = c_.Read(0);
    const kernels::RowGateSaved saved{c_.Read(1), WeightRead(0), c_.Read(2), c_.Read(3)};
    kernels::RowGate gate = GateOf(saved.gate_input);
    const kernels::RowGateGradientTypes made = RowGateGradients(gate, gradient.type.dtype);
    std::vector<TensorType> types = {made.input, made.gate_input, made.products};
    if (!row_.gradients.empty()) {
      gate.accumulate = c_.Adds(3);
      types.push_back({GradientType(3), Gradient(0).elements});
    }
    return {std::move(types), [=](Writes writes, const Queue& queue) {
              kernels::RowGateGradientTensors to{writes[0], writes[1], writes[2]};
              if (writes.size() > 3) {
                to.vector = writes[3];
              }
              kGateBackward(queue, gate, gradient, saved, to);
            }};
  }
};

}  // namespace

std::optional<Result<Operation>> BindExperts(const RowOperands& operands) { return ExpertBinder(operands).Bind(); }

}  // namespace tidemark
