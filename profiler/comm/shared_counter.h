// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"

namespace tidemark {

/// A number that all ranks of MPI_COMM_WORLD take turns in raising, without any of them having to attend to it.
class SharedCounter {
 public:
  virtual ~SharedCounter() = default;
  /// Every value once over all ranks, from 0 on.
  virtual Result<std::int64_t> Next() = 0;
};

/// All ranks call it, and give it up together, before their World ends.
Result<std::unique_ptr<SharedCounter>> OpenSharedCounter();

}  // namespace tidemark
