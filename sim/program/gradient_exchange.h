// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "sim/program/gradient_value.h"
#include "sim/program/program.h"

namespace tidemark {

/// How the ranks that have a program's weights are laid out, as its groups tell: along GradientValue's axes, and over
/// the rows of the residual stream.
///
/// Where experts are divided over ranks (group "ep"), `replicas` counts the data-parallel ranks whose tokens the same
/// experts see, and `shards` the others: an expert's gradient is one over the former without any collective over it,
/// since tokens have come to the expert, and is summed over the latter (group "edp"); all other gradients are summed
/// over both (group "dp").
struct DataRanks {
  explicit DataRanks(const Program& program);

  std::int64_t shards = 1, replicas = 1;
  std::int64_t row_parts = 1;     ///< ranks of the group "tp"
  std::int64_t expert_parts = 1;  ///< ranks of the group "etp"
  bool divides_experts = false;
};

/// What a collective makes of the sum of what it reads. Messages to the ranks of the experts make the loss's gradient
/// one of all tokens that come there; messages back leave each rank with that of its own tokens.
void PassThrough(GradientValue& value, const Program& program, const Collective& collective, const DataRanks& ranks);

}  // namespace tidemark
