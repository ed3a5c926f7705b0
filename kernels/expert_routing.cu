// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/expert_routing_cuda.h"
#include "kernels/team.cuh"

namespace tidemark::kernels::cuda {
namespace {

template <class C>
__host__ __device__ bool IsLarger(C a, C b) {
  return a > b || (a != a && b == b);
}

/// An expert's place among a token's is how many come before it.
template <class C>
struct ChooseOfToken {
  Routing op;
  Input<C> logits;
  std::int64_t* chosen;
  __host__ __device__ void operator()(const Team& team, std::int64_t token) const {
    const std::int64_t begin = token * op.experts;
    team.Each(op.experts, [&](std::int64_t expert) {
      const C own = logits[begin + expert];
      std::int64_t place = 0;
      for (std::int64_t other = 0; other < op.experts; ++other) {
        const C logit = logits[begin + other];
        place += IsLarger(logit, own) || (!IsLarger(own, logit) && other < expert) ? 1 : 0;
      }
      if (place < op.per_token) {
        chosen[token * op.per_token + place] = expert;
      }
    });
  }
};

struct AssignOne {
  Routing op;
  std::int64_t groups;
  std::int64_t* chosen;
  __host__ __device__ void operator()(std::int64_t i) const { chosen[i] = op.RoundRobin(i, groups); }
};

/// Which of a token's chosen experts it is; as many as there are: none.
__host__ __device__ inline std::int64_t PlaceOf(std::int64_t expert, const std::int64_t* chosen,
                                                std::int64_t per_token) {
  std::int64_t place = 0;
  while (place < per_token && chosen[place] != expert) {
    ++place;
  }
  return place;
}

template <class C>
struct WeighToken {
  Routing op;
  Input<C> logits;
  const std::int64_t* chosen;
  Output<C> weights;
  std::uint8_t* mask;
  Output<C> scores;
  __host__ __device__ void operator()(const Team& team, std::int64_t token) const {
    const std::int64_t begin = token * op.experts, first = token * op.per_token;
    const std::int64_t* experts = chosen + first;
    const auto logit = [&](std::int64_t place) { return logits[begin + experts[place]]; };
    C highest = logit(0), sum = 0;
    for (std::int64_t place = 1; place < op.per_token; ++place) {
      const C other = logit(place);
      highest = IsLarger(other, highest) ? other : highest;
    }
    for (std::int64_t place = 0; place < op.per_token; ++place) {
      sum += std::exp(logit(place) - highest);
    }
    team.Each(op.experts, [&](std::int64_t expert) {
      const std::int64_t place = PlaceOf(expert, experts, op.per_token);
      const bool is_chosen = place < op.per_token;
      const C score = is_chosen ? std::exp(logit(place) - highest) / sum : C(0);
      weights.Set(begin + expert, score);
      mask[begin + expert] = is_chosen ? 1 : 0;
      if (is_chosen) {
        scores.Set(first + place, score);
      }
    });
  }
};

template <class C>
struct RoutingBackwardOfToken {
  Routing op;
  Input<C> weight_gradients, scores;
  const std::int64_t* chosen;
  Output<C> logit_gradients;
  __host__ __device__ void operator()(const Team& team, std::int64_t token) const {
    const std::int64_t begin = token * op.experts, first = token * op.per_token;
    const std::int64_t* experts = chosen + first;
    C mean = 0;
    for (std::int64_t place = 0; place < op.per_token; ++place) {
      mean += scores[first + place] * weight_gradients[begin + experts[place]];
    }
    team.Each(op.experts, [&](std::int64_t expert) {
      const std::int64_t place = PlaceOf(expert, experts, op.per_token);
      logit_gradients.Set(begin + expert, place < op.per_token
                                              ? scores[first + place] * (weight_gradients[begin + expert] - mean)
                                              : C(0));
    });
  }
};

}  // namespace

void ChooseExperts(const Routing& op, const ConstTensor& logits, const Tensor& chosen, const Queue& queue) {
  CheckChosen(op, chosen.type);
  TIDEMARK_CHECK(logits.type.elements == op.tokens * op.experts);
  InArithmeticOf({logits.type}, [&]<class C>(C) {
    EachRow(queue, op.tokens, ChooseOfToken<C>{op, logits, Elements<std::int64_t>(chosen)});
  });
}

void AssignRoundRobin(const Routing& op, std::int64_t groups, const Tensor& chosen, const Queue& queue) {
  CheckChosen(op, chosen.type);
  TIDEMARK_CHECK(groups > 0 && op.experts % groups == 0);
  EachElement(queue, chosen.type.elements, AssignOne{op, groups, Elements<std::int64_t>(chosen)});
}

void WeighExperts(const Routing& op, const ConstTensor& logits, const ConstTensor& chosen, const Tensor& weights,
                  const Tensor& mask, const Tensor& scores, const Queue& queue) {
  CheckChosen(op, chosen.type);
  TIDEMARK_CHECK(weights.type.elements == logits.type.elements && scores.type.elements == chosen.type.elements);
  TIDEMARK_CHECK(mask.type == RoutingOutputs(op, logits.type.dtype).mask);
  InArithmeticOf({logits.type}, [&]<class C>(C) {
    EachRow(queue, op.tokens,
            WeighToken<C>{op, logits, Elements<std::int64_t>(chosen), weights, Elements<std::uint8_t>(mask), scores});
  });
}

void RoutingBackward(const Routing& op, const ConstTensor& weight_gradients, const ConstTensor& scores,
                     const ConstTensor& chosen, const Tensor& logit_gradients, const Queue& queue) {
  CheckChosen(op, chosen.type);
  TIDEMARK_CHECK(scores.type.elements == chosen.type.elements);
  TIDEMARK_CHECK(weight_gradients.type.elements == op.tokens * op.experts);
  TIDEMARK_CHECK(logit_gradients.type.elements == weight_gradients.type.elements);
  InArithmeticOf({weight_gradients.type, scores.type}, [&]<class C>(C) {
    EachRow(queue, op.tokens,
            RoutingBackwardOfToken<C>{op, weight_gradients, scores, Elements<std::int64_t>(chosen), logit_gradients});
  });
}

}  // namespace tidemark::kernels::cuda
