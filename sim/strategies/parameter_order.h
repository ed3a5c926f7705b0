// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/strategies/parameter_table.h"

namespace tidemark {

/// Trained parameters of a stage in the order in which their gradients are complete.
std::vector<ParameterAt> ArrivalOrder(const Role& role);

/// Trained parameters of a stage in the order in which the network defines them.
std::vector<ParameterAt> DefinitionOrder(const Role& role);

/// Parameters remembered between two blocks, as DataParallel::Key and Shift want them.
void AppendMembers(const Role& role, const std::vector<ParameterAt>& members, std::int64_t position,
                   std::vector<std::int64_t>& key);
void ShiftMembers(const Role& role, std::vector<ParameterAt>& members, std::int64_t blocks);

}  // namespace tidemark
