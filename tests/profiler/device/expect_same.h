// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "sim/memory/capacity.h"

namespace tidemark {

inline void ExpectSame(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.cache_flushes, b.cache_flushes);
  EXPECT_EQ(a.failed_request, b.failed_request);
  EXPECT_EQ(a.failed_bytes, b.failed_bytes);
  EXPECT_EQ(a.allocated_peak, b.allocated_peak);
  EXPECT_EQ(a.reserved_peak, b.reserved_peak);
}

}  // namespace tidemark
