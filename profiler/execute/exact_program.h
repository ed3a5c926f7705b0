// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/program/program.h"

namespace tidemark {

/// The program with every floating dtype widened to fp64, as RunOptions::exact executes it: so that what its tensors
/// take can be evaluated before it runs.
StepProgram ExactProgram(StepProgram program);

}  // namespace tidemark
