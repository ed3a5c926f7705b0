// SPDX-License-Identifier: Apache-2.0
#include "kernels/expert_routing.h"

#include <cmath>
#include <vector>

#include "kernels/exponential.h"
#include "kernels/pointwise.h"
#include "kernels/stretch.h"

namespace tidemark::kernels {
namespace {

template <class C>
bool IsLarger(C a, C b) {
  return a > b || (std::isnan(a) && !std::isnan(b));
}

/// What is written into all of a token's experts, most of which are not chosen: 0, but for those.
template <class C, class At>
void Scatter(const Routing& op, const std::int64_t* chosen, C* row, At at) {
  std::fill_n(row, op.experts, C(0));
  for (std::int64_t i = 0; i < op.per_token; ++i) {
    row[chosen[i]] = at(i);
  }
}

}  // namespace

void CheckChosen(const Routing& op, const TensorType& chosen) {
  TIDEMARK_CHECK(op.per_token > 0 && op.per_token <= op.experts);
  TIDEMARK_CHECK((chosen == TensorType{DType::int64, op.tokens * op.per_token}));
}

RoutingTypes RoutingOutputs(const Routing& op, DType logits) {
  const std::int64_t all = op.tokens * op.experts, chosen = op.tokens * op.per_token;
  return {{logits, all}, {DType::u8, all}, {StatisticsOf(logits), chosen}, {DType::int64, chosen}};
}

void ChooseExperts(const Routing& op, const ConstTensor& logits, const Tensor& chosen) {
  CheckChosen(op, chosen.type);
  TIDEMARK_CHECK(logits.type.elements == op.tokens * op.experts);
  InArithmeticOf({logits.type}, [&]<class C>(C) {
    Reader<C> rows(logits, op.experts);
    std::vector<bool> taken;
    for (std::int64_t token = 0; token < op.tokens; ++token) {
      const C* row = rows.At(token * op.experts, op.experts);
      taken.assign(static_cast<std::size_t>(op.experts), false);
      for (std::int64_t i = 0; i < op.per_token; ++i) {
        std::int64_t best = -1;
        for (std::int64_t expert = 0; expert < op.experts; ++expert) {
          const bool is_free = !taken[static_cast<std::size_t>(expert)];
          best = is_free && (best < 0 || IsLarger(row[expert], row[best])) ? expert : best;
        }
        taken[static_cast<std::size_t>(best)] = true;
        Elements<std::int64_t>(chosen)[token * op.per_token + i] = best;
      }
    }
  });
}

void AssignRoundRobin(const Routing& op, std::int64_t groups, const Tensor& chosen) {
  CheckChosen(op, chosen.type);
  TIDEMARK_CHECK(groups > 0 && op.experts % groups == 0);
  for (std::int64_t i = 0; i < chosen.type.elements; ++i) {
    Elements<std::int64_t>(chosen)[i] = op.RoundRobin(i, groups);
  }
}

void WeighExperts(const Routing& op, const ConstTensor& logits, const ConstTensor& chosen, const Tensor& weights,
                  const Tensor& mask, const Tensor& scores) {
  CheckChosen(op, chosen.type);
  TIDEMARK_CHECK(weights.type.elements == logits.type.elements && scores.type.elements == chosen.type.elements);
  TIDEMARK_CHECK(mask.type == RoutingOutputs(op, logits.type.dtype).mask);
  Zero(mask);
  InArithmeticOf({logits.type}, [&]<class C>(C) {
    Reader<C> rows(logits, op.experts);
    Writer<C> weight_rows(weights, op.experts), score_rows(scores, op.per_token);
    for (std::int64_t token = 0; token < op.tokens; ++token) {
      const std::int64_t begin = token * op.experts, first = token * op.per_token;
      const auto* experts = Elements<std::int64_t>(chosen) + first;
      const C* row = rows.At(begin, op.experts);
      C* score = score_rows.At(first, op.per_token);
      C highest = row[experts[0]], sum = 0;
      for (std::int64_t i = 1; i < op.per_token; ++i) {
        highest = IsLarger(row[experts[i]], highest) ? row[experts[i]] : highest;
      }
      for (std::int64_t i = 0; i < op.per_token; ++i) {
        sum += score[i] = Exp(row[experts[i]] - highest);
        Elements<std::uint8_t>(mask)[begin + experts[i]] = 1;
      }
      for (std::int64_t i = 0; i < op.per_token; ++i) {
        score[i] /= sum;
      }
      Scatter(op, experts, weight_rows.At(begin, op.experts), [score](std::int64_t i) { return score[i]; });
      weight_rows.Done(begin, op.experts);
      score_rows.Done(first, op.per_token);
    }
  });
}

void RoutingBackward(const Routing& op, const ConstTensor& weight_gradients, const ConstTensor& scores,
                     const ConstTensor& chosen, const Tensor& logit_gradients) {
  CheckChosen(op, chosen.type);
  TIDEMARK_CHECK(scores.type.elements == chosen.type.elements);
  TIDEMARK_CHECK(weight_gradients.type.elements == op.tokens * op.experts);
  TIDEMARK_CHECK(logit_gradients.type.elements == weight_gradients.type.elements);
  InArithmeticOf({weight_gradients.type, scores.type}, [&]<class C>(C) {
    Reader<C> gradients(weight_gradients, op.experts), score_rows(scores, op.per_token);
    Writer<C> rows(logit_gradients, op.experts);
    for (std::int64_t token = 0; token < op.tokens; ++token) {
      const std::int64_t begin = token * op.experts, first = token * op.per_token;
      const auto* experts = Elements<std::int64_t>(chosen) + first;
      const C* gradient = gradients.At(begin, op.experts);
      const C* score = score_rows.At(first, op.per_token);
      C mean = 0;
      for (std::int64_t i = 0; i < op.per_token; ++i) {
        mean += score[i] * gradient[experts[i]];
      }
      Scatter(op, experts, rows.At(begin, op.experts),
              [&](std::int64_t i) { return score[i] * (gradient[experts[i]] - mean); });
      rows.Done(begin, op.experts);
    }
  });
}

}  // namespace tidemark::kernels
