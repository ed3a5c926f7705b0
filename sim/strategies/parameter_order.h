// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "sim/strategies/parameter_table.h"

namespace tidemark {

/// Trained parameters of a stage in the order in which their gradients are complete.
std::vector<ParameterAt> ArrivalOrder(const Role& role);

/// Trained parameters of a stage in the order in which the network defines them.
std::vector<ParameterAt> DefinitionOrder(const Role& role);

}  // namespace tidemark
