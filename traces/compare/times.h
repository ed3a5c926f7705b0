// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "traces/compare/compare.h"

namespace tidemark {

/// Work by name and kind of stream, the largest error first. The n-th kernel of a name is compared with the n-th where
/// both traces have as many of them.
std::vector<OperatorComparison> CompareOperators(const Trace& predicted, const Trace& measured);

/// What the error of the step's time consists of: kernels on compute streams, and what these streams wait for. Sums
/// exactly to `error`; the largest first.
std::vector<TimeCause> FindTimeCauses(const std::vector<OperatorComparison>& operators, Nanos error);

}  // namespace tidemark
