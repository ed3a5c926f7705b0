// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/expert_routing.h"
#include "kernels/queue.h"

namespace tidemark::kernels::cuda {

// kernels/expert_routing.h on a GPU. Choosing compares each of a token's logits with all of them.

void ChooseExperts(const Routing& op, const ConstTensor& logits, const Tensor& chosen, const Queue& queue);
void AssignRoundRobin(const Routing& op, std::int64_t groups, const Tensor& chosen, const Queue& queue);
void WeighExperts(const Routing& op, const ConstTensor& logits, const ConstTensor& chosen, const Tensor& weights,
                  const Tensor& mask, const Tensor& scores, const Queue& queue);
void RoutingBackward(const Routing& op, const ConstTensor& weight_gradients, const ConstTensor& scores,
                     const ConstTensor& chosen, const Tensor& logit_gradients, const Queue& queue);

}  // namespace tidemark::kernels::cuda

namespace tidemark::kernels::on {

inline constexpr OnQueue ChooseExperts{&kernels::ChooseExperts, &cuda::ChooseExperts};
inline constexpr OnQueue AssignRoundRobin{&kernels::AssignRoundRobin, &cuda::AssignRoundRobin};
inline constexpr OnQueue WeighExperts{&kernels::WeighExperts, &cuda::WeighExperts};
inline constexpr OnQueue RoutingBackward{&kernels::RoutingBackward, &cuda::RoutingBackward};

}  // namespace tidemark::kernels::on
