// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/queue.h"
#include "kernels/rotary_table.h"

namespace tidemark::kernels::cuda {

// kernels/rotary_table.h on a GPU.

void FillRotaryTable(const RotaryTable& op, const Tensor& table, const Queue& queue);
void TakeRotaryRows(const RotaryRows& op, const ConstTensor& table, const Tensor& rows, const Queue& queue);

}  // namespace tidemark::kernels::cuda

namespace tidemark::kernels::on {

inline constexpr OnQueue FillRotaryTable{&kernels::FillRotaryTable, &cuda::FillRotaryTable};
inline constexpr OnQueue TakeRotaryRows{&kernels::TakeRotaryRows, &cuda::TakeRotaryRows};

}  // namespace tidemark::kernels::on
