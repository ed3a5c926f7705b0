// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "base/result.h"
#include "kernels/tensor.h"
#include "models/job/job.h"
#include "profiler/execute/model.h"
#include "sim/program/program.h"

namespace tidemark {

/// Whether a copy of this name brings DDP's map of used parameters: a 1 for each that this rank has used. In what is
/// executed that is every trained one.
bool IsUsedParameters(std::string_view copy);

/// Whether a copy of this name brings a microbatch's mask: a byte for each query and key of each sequence, 1 where the
/// key is behind the query.
bool IsAttentionMask(std::string_view copy);

/// What a copy from the host, by its name in the program, makes of a buffer: a microbatch's ids, labels or
/// mask, or the map of used parameters. Any other is not executed.
Result<kernels::TensorType> HostCopyType(const Job& job, const Model& model, std::string_view copy, const Buffer& to);

}  // namespace tidemark
