// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "tests/sim/oracle_job.h"

namespace tidemark {

// Weights by hand: 32,768,000 each of embedding and head, a norm of 1,024, and in each of 4 layers 2,621,440 of
// attention, 2,048 of norms, a router of 8 x 1,024 and 8 experts of 3 x 512 x 1,024.
constexpr std::int64_t kLayers = 4, kExpert = 3 * 512 * 1024;
constexpr std::int64_t kOthers = 2 * 32'768'000 + 1024 + kLayers * (2'621'440 + 2048 + 8 * 1024);

/// The oracle model with 8 experts in each layer, 2 for each token, which `ep` of 8 data-parallel ranks divide.
inline Job OracleExperts(const std::string& strategy, std::int64_t ep) {
  Job job = OracleJob(strategy, 2);
  if (job.CachesRepresentations()) {
    job.network.shape = std::get<DualEncoder>(job.network.shape).first;
  }
  Experts& experts = std::get<Decoder>(job.network.shape).experts;
  experts.count = 8;
  experts.per_token = 2;
  experts.ffn = 512;
  job.layout.dp = 8;
  job.layout.ep = ep;
  return job;
}

}  // namespace tidemark
