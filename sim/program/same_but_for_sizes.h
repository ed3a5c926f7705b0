// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/program/program.h"

namespace tidemark {

/// Whether two steps do the same to the same buffers in the same order, so that a node of one stands for the node of
/// the other with its number: only the sizes of buffers, operators and messages may differ.
bool SameButForSizes(const StepProgram& a, const StepProgram& b);

}  // namespace tidemark
