// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "kernels/tensor.h"
#include "models/job/job.h"
#include "profiler/execute/model.h"
#include "sim/program/program.h"

namespace tidemark {

/// What the kernels of a step say of its tensors.
struct DeclaredTypes {
  std::vector<kernels::TensorType> allocations;  ///< of every Alloc leaf, in the order of the unrolled program
};

/// The type of a buffer that is there before the step: StateType of what it holds; the program's own where it holds
/// nothing of the model's (pools, placeholders).
kernels::TensorType ResidentType(const Job& job, const Model& model, const Buffer& buffer, std::int64_t index,
                                 bool exact);

/// Asks every operation of the unrolled program for the types of what it makes, from those of what it reads on. Fails
/// (internal) where a kernel, or the job of what is resident, makes another tensor than the program has a buffer for
/// (`exact`: every floating dtype being fp64 on both sides), where what is read was not written, or what is allocated
/// never is; and (machine_cannot) where there is no kernel. Cost: linear in the unrolled program.
Result<DeclaredTypes> DeclareTypes(const Job& job, const Model& model, const Program& program, bool exact);

}  // namespace tidemark
