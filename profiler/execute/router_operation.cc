// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/expert_routing_cuda.h"
#include "kernels/linear_cuda.h"
#include "kernels/pointwise_cuda.h"
#include "models/job/validate.h"
#include "profiler/execute/row_operands.h"

namespace tidemark {
namespace {

/// Chooses experts, or follows who has chosen them, for the tokens of a microbatch in one layer that a rank has: those
/// behind the first `before`.
///
/// Experts on several ranks are taken round-robin instead (AssignRoundRobin), so that each gets as many tokens from
/// each rank: buffers are as large as the program says, and ranks do not tell each other how many rows they send.
/// Weights are those that the router gives them. (Megatron-LM's --moe-router-force-load-balancing routes by random
/// logits to the same end.)
struct Chooser {
  const ExpertChoices* followed = nullptr;
  ExpertChoices* kept = nullptr;
  std::int64_t layer = 0, first_sample = 0, before = 0;
  SequenceShare share;
  ExpertPlace place;
  Device* device = nullptr;
  std::uint32_t stream = 0;

  void Choose(const kernels::Routing& routing, const kernels::ConstTensor& logits, const kernels::Tensor& chosen,
              const Queue& queue) const {
    if (place.ranks() > 1) {
      on::AssignRoundRobin(queue, routing, place.groups, chosen);
    } else if (followed != nullptr) {
      TIDEMARK_CHECK(queue.kind == Queue::Kind::cpu);  // whose memory it is
      EachToken(routing, static_cast<std::int64_t*>(chosen.data), [&](auto... at) { followed->Get(layer, at...); });
    } else {
      on::ChooseExperts(queue, routing, logits, chosen);
    }
    if (kept != nullptr) {
      std::vector<std::int64_t> numbers(static_cast<std::size_t>(chosen.type.elements));
      device->Fetch(stream, chosen.data, numbers.data(), SizeOf(chosen.type.dtype) * chosen.type.elements);
      EachToken(routing, numbers.data(), [&](auto... at) { kept->Put(layer, at...); });
    }
  }

 private:
  /// Calls `body(sample, place in it, numbers)` for the numbers of each token's experts.
  template <class Body>
  void EachToken(const kernels::Routing& routing, std::int64_t* numbers, Body body) const {
    for (std::int64_t token = before; token < before + routing.tokens; ++token, numbers += routing.per_token) {
      body(first_sample + token / share.tokens(), share.PlaceOf(token % share.tokens()),
           std::span(numbers, static_cast<std::size_t>(routing.per_token)));
    }
  }
};

/// Rows of the router in front of a layer's experts.
class RouterBinder : RowOperands {
 public:
  explicit RouterBinder(const RowOperands& operands) : RowOperands(operands) {}

  std::optional<Result<Operation>> Bind() const {
    struct Row {
      std::string_view name;
      Operation (RouterBinder::*bind)() const;
    };
    using B = RouterBinder;
    static constexpr std::array kRows = {
        Row{"router.widen", &B::Widen},
        Row{"router.forward", &B::RouterForward},
        Row{"router.input_gradient", &B::RouterInputGradient},
        Row{"router.weight_gradient", &B::RouterWeightGradient},
        Row{"route.forward", &B::RouteForward},
        Row{"route.backward", &B::RouteBackward},
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

  /// Of a product whose input and weight were cast in an operation of their own.
  Operation Widen() const {
    const ConstTensor input = c_.Read(0), weight = WeightRead(0);
    const DType wide = kernels::StatisticsOf(input.type.dtype);
    return {{{wide, input.type.elements}, {wide, weight.type.elements}}, [=](Writes writes, const Queue& queue) {
              on::Copy(queue, input, writes[0]);
              on::Copy(queue, weight, writes[1]);
            }};
  }

  /// The weight itself, or its cast.
  ConstTensor ReadWeight() const { return row_.parameters.empty() ? c_.Read(1) : WeightRead(0); }

  Operation RouterForward() const {
    const ConstTensor input = c_.Read(0), weight = ReadWeight();
    const kernels::Linear linear{input.type.elements / decoder_.hidden, decoder_.hidden, experts().count};
    const DType dtype = RoutesWide() ? kernels::StatisticsOf(input.type.dtype) : input.type.dtype;
    return {{LinearOutput(linear, dtype, linear.out)}, [=](Writes writes, const Queue& queue) {
              on::LinearForward(queue, linear, input, weight, std::nullopt, writes);
            }};
  }

  /// In the logits' dtype where that is the wider one.
  Operation RouterInputGradient() const {
    const ConstTensor gradient = c_.Read(0), weight = ReadWeight();
    const kernels::Linear linear{gradient.type.elements / experts().count, decoder_.hidden, experts().count};
    const DType dtype = RoutesWide() ? gradient.type.dtype : weight.type.dtype;
    return {{LinearInputGradientOutput(linear, dtype)}, [=](Writes writes, const Queue& queue) {
              on::LinearInputGradient(queue, linear, {&gradient, 1}, weight, writes[0]);
            }};
  }

  Operation RouterWeightGradient() const {
    const ConstTensor input = c_.Read(0), gradient = c_.Read(1);
    const bool casts = !row_.writes.empty();
    const std::size_t last = casts ? 1 : 0;
    const kernels::Linear linear{gradient.type.elements / experts().count, decoder_.hidden, experts().count,
                                 c_.Adds(last)};
    std::vector<TensorType> types;
    if (casts) {
      types.push_back({gradient.type.dtype, input.type.elements});
    }
    types.push_back(LinearWeightGradientOutput(linear, GradientType(last)));
    return {std::move(types), [=](Writes writes, const Queue& queue) {
              if (writes.size() > 1) {
                on::Copy(queue, input, writes.front());
              }
              const ConstTensor from = writes.size() > 1 ? ConstTensor(writes.front()) : input;
              on::LinearWeightGradient(queue, linear, from, {&gradient, 1}, writes.back());
            }};
  }

  kernels::Routing RoutingOf(std::int64_t elements) const {
    return {elements / experts().count, experts().count, experts().per_token};
  }

  Operation RouteForward() const {
    const ConstTensor logits = c_.Read(0);
    const kernels::Routing routing = RoutingOf(logits.type.elements);
    const kernels::RoutingTypes types = RoutingOutputs(routing, logits.type.dtype);
    const Chooser chooser{.followed = c_.choices,
                          .kept = c_.kept_choices,
                          .layer = c_.block,
                          .first_sample = c_.first_sample,
                          .before = c_.model.place().rank * routing.tokens,  // sequence-parallel ranks have rows
                          .share = c_.share,
                          .place = c_.model.expert_place(),
                          .device = c_.device,
                          .stream = c_.stream};
    return {{types.weights, types.mask, types.scores, types.chosen}, [=](Writes writes, const Queue& queue) {
              chooser.Choose(routing, logits, writes[3], queue);
              on::WeighExperts(queue, routing, logits, writes[3], writes[0], writes[1], writes[2]);
            }};
  }

  Operation RouteBackward() const {
    const ConstTensor gradient = c_.Read(0), scores = c_.Read(1), chosen = c_.Read(2);
    const kernels::Routing routing = RoutingOf(gradient.type.elements);
    return {{gradient.type}, [=](Writes writes, const Queue& queue) {
              on::RoutingBackward(queue, routing, gradient, scores, chosen, writes[0]);
            }};
  }
};

}  // namespace

std::optional<Result<Operation>> BindRouter(const RowOperands& operands) { return RouterBinder(operands).Bind(); }

}  // namespace tidemark
