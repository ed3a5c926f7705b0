// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/optimizer.h"
#include "kernels/queue.h"

namespace tidemark::kernels::cuda {

// kernels/optimizer.h on a GPU.

void AdamWUpdate(const AdamW& op, const ConstTensor& gradient, const Tensor& weight, const Tensor& first,
                 const Tensor& second, const Queue& queue);
void AdamWMoments(const AdamW& op, const ConstTensor& gradient, const Tensor& weight, const Tensor& first,
                  const Tensor& second, const Queue& queue);
void AdamWRoot(const ConstTensor& second, const Tensor& root, const Queue& queue);
void AdamWCorrectBias(const AdamW& op, const ConstTensor& root, const Tensor& quotient, const Queue& queue);
void AdamWAddEpsilon(const AdamW& op, const Tensor& denominator, const Queue& queue);
void AdamWApply(const AdamW& op, const ConstTensor& first, const ConstTensor& denominator, const Tensor& weight,
                const Queue& queue);

void SgdUpdate(const Sgd& op, const ConstTensor& gradient, const Tensor& weight, const Queue& queue);
void SgdMomentum(const Sgd& op, const ConstTensor& gradient, const Tensor& buffer, const Queue& queue);

}  // namespace tidemark::kernels::cuda

namespace tidemark::kernels::on {

inline constexpr OnQueue AdamWUpdate{&kernels::AdamWUpdate, &cuda::AdamWUpdate};
inline constexpr OnQueue AdamWMoments{&kernels::AdamWMoments, &cuda::AdamWMoments};
inline constexpr OnQueue AdamWRoot{&kernels::AdamWRoot, &cuda::AdamWRoot};
inline constexpr OnQueue AdamWCorrectBias{&kernels::AdamWCorrectBias, &cuda::AdamWCorrectBias};
inline constexpr OnQueue AdamWAddEpsilon{&kernels::AdamWAddEpsilon, &cuda::AdamWAddEpsilon};
inline constexpr OnQueue AdamWApply{&kernels::AdamWApply, &cuda::AdamWApply};
inline constexpr OnQueue SgdUpdate{&kernels::SgdUpdate, &cuda::SgdUpdate};
inline constexpr OnQueue SgdMomentum{&kernels::SgdMomentum, &cuda::SgdMomentum};

}  // namespace tidemark::kernels::on
