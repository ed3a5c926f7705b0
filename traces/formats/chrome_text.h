// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "traces/trace.h"

namespace tidemark {

/// Traces as Chrome JSON: what viewers draw (slices on their streams, phases, steps, bytes by category), and the
/// "[memory]" instants of PyTorch's profiler, which TensorBoard's memory view and scripts for such traces read. Each
/// trace is a process and a device. Tensors, phases and the origin are told beside, so that they can be read back.
std::string ChromeText(std::span<const Trace> traces);

}  // namespace tidemark
