// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "traces/compare/compare.h"

namespace tidemark {

/// Work by name and kind of stream, the largest error first. The n-th kernel of a name is compared with the n-th where
/// both traces have as many of them.
std::vector<OperatorComparison> CompareOperators(const Trace& predicted, const Trace& measured);

/// Whether it tells of any work in which phase it was issued.
bool NamesPhasesOfWork(const Trace& trace);

/// By phase: how long any stream was busy with what was issued in it. An instant counts once, however many are busy. A
/// phase's span on the host does not tell that: where issuing costs nothing, the host is through with it at once.
std::map<std::string, Nanos> BusyTimes(const Trace& trace);

/// What the error of the step's time consists of: kernels on compute streams, and what these streams wait for. Sums
/// exactly to `error`; the largest first.
std::vector<TimeCause> FindTimeCauses(const std::vector<OperatorComparison>& operators, Nanos error);

}  // namespace tidemark
