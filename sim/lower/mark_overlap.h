// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/program/program.h"

namespace tidemark {

/// Sets Compute::beside_collective: kernels issued while a collective is in flight, that is, between its issue and the
/// next wait of the compute stream (or the host) for its stream. Static: at the start of a loop body whatever is in
/// flight before the loop or at the end of the body counts.
void MarkOverlap(Program& program);

}  // namespace tidemark
