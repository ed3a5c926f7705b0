// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/rank_parameters.h"

#include <vector>

#include "models/job/validate.h"
#include "sim/lower/stage.h"

namespace tidemark {

std::int64_t RankParameters(const Job& job) {
  const Result<std::vector<BlockRun>> runs = BuildBlocks(job.network, PartitionOf(job));
  std::int64_t parameters = 0;
  for (const BlockRun& run : runs ? *runs : std::vector<BlockRun>()) {
    parameters += StoredElements(run.block) * run.count;
  }
  return parameters;
}

}  // namespace tidemark
