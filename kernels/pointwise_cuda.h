// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/pointwise.h"
#include "kernels/queue.h"

namespace tidemark::kernels::cuda {

// kernels/pointwise.h on a GPU.

/// As many as Add takes at once.
inline constexpr std::size_t kMostAddends = 16;

void Copy(const ConstTensor& from, const Tensor& to, double factor, const Queue& queue);
void Add(std::span<const ConstTensor> addends, const Tensor& sum, const Queue& queue);
void Accumulate(const ConstTensor& addend, const Tensor& sum, double factor, const Queue& queue);
void Scale(double factor, const Tensor& tensor, const Queue& queue);
void Zero(const Tensor& tensor, const Queue& queue);
void Fill(double value, const Tensor& tensor, const Queue& queue);
void CopyTimes(const ConstTensor& from, const ConstTensor& factor, const Tensor& to, const Queue& queue);
void AccumulateTimes(const ConstTensor& addend, const ConstTensor& factor, const Tensor& sum, const Queue& queue);

}  // namespace tidemark::kernels::cuda

namespace tidemark::kernels::on {

inline void Copy(const Queue& queue, const ConstTensor& from, const Tensor& to, double factor = 1) {
  OnQueue(&kernels::Copy, &cuda::Copy)(queue, from, to, factor);
}
inline constexpr OnQueue Add{&kernels::Add, &cuda::Add};
inline void Accumulate(const Queue& queue, const ConstTensor& addend, const Tensor& sum, double factor = 1) {
  OnQueue(&kernels::Accumulate, &cuda::Accumulate)(queue, addend, sum, factor);
}
inline constexpr OnQueue Scale{&kernels::Scale, &cuda::Scale};
inline constexpr OnQueue Zero{&kernels::Zero, &cuda::Zero};
inline constexpr OnQueue Fill{&kernels::Fill, &cuda::Fill};
inline constexpr OnQueue CopyTimes{&kernels::CopyTimes, &cuda::CopyTimes};
inline constexpr OnQueue AccumulateTimes{&kernels::AccumulateTimes, &cuda::AccumulateTimes};

}  // namespace tidemark::kernels::on
