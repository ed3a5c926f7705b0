// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/profiler/capture/announced.h"

namespace tidemark {

/// What nvtx_tool, once loaded, has written down; its function TidemarkNvtxLog gives it.
struct NvtxToolLog {
  std::vector<std::string> domains;
  int domains_gone = 0;
  std::vector<Announced> all;
  int strangers = 0;     ///< of `all`, outside of the domain
  int unregistered = 0;  ///< ranges whose names were no registered strings
  int other_heaps = 0;   ///< that are no sub-allocator's
};

}  // namespace tidemark
