// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/glu.h"
#include "kernels/queue.h"

namespace tidemark::kernels::cuda {

// kernels/glu.h on a GPU.

void GluForward(const Glu& op, const ConstTensor& gate, const ConstTensor& up, const Tensor& output,
                const Queue& queue);
void GluBackward(const Glu& op, const ConstTensor& gate, const ConstTensor& up, const ConstTensor& output_gradient,
                 const Tensor& gate_gradient, const Tensor& up_gradient, const Queue& queue);

void SiluForward(const Glu& op, const ConstTensor& gate, const Tensor& silu, const Queue& queue);
void ProductForward(const Glu& op, const ConstTensor& silu, const ConstTensor& up, const Tensor& output,
                    const Queue& queue);
void ProductBackward(const Glu& op, const ConstTensor& output_gradient, const ConstTensor& silu, const ConstTensor& up,
                     const Tensor& silu_gradient, const Tensor& up_gradient, const Queue& queue);
void SiluBackward(const Glu& op, const ConstTensor& silu_gradient, const ConstTensor& gate, const Tensor& gate_gradient,
                  const Queue& queue);
void JoinHalves(const Glu& op, const ConstTensor& gate, const ConstTensor& up, const Tensor& packed,
                const Queue& queue);

}  // namespace tidemark::kernels::cuda

namespace tidemark::kernels::on {

inline constexpr OnQueue GluForward{&kernels::GluForward, &cuda::GluForward};
inline constexpr OnQueue GluBackward{&kernels::GluBackward, &cuda::GluBackward};
inline constexpr OnQueue SiluForward{&kernels::SiluForward, &cuda::SiluForward};
inline constexpr OnQueue ProductForward{&kernels::ProductForward, &cuda::ProductForward};
inline constexpr OnQueue ProductBackward{&kernels::ProductBackward, &cuda::ProductBackward};
inline constexpr OnQueue SiluBackward{&kernels::SiluBackward, &cuda::SiluBackward};
inline constexpr OnQueue JoinHalves{&kernels::JoinHalves, &cuda::JoinHalves};

}  // namespace tidemark::kernels::on
