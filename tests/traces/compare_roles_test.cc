// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/traces/trace_script.h"
#include "traces/compare/compare.h"

namespace tidemark::compare_roles_test {
namespace {

TEST(CompareRoles, TheOnlyDeviceOfAnotherToolIsTheOnlyRole) {
  const Trace predicted = Play({Allocated("a", 100), Freed("a")});
  Trace snapshot = predicted;
  snapshot.role = "cuda:0";
  EXPECT_FALSE(CompareTraces({&predicted, 1}, {&snapshot, 1}));  // a prediction does tell its role
  snapshot.origin = "torch snapshot";
  const Result<Comparison> comparison = CompareTraces({&predicted, 1}, {&snapshot, 1});
  ASSERT_TRUE(comparison) << comparison.error().Text();
  EXPECT_EQ(comparison->roles.front().role, "stage 0");
  EXPECT_THAT(comparison->independent, testing::ElementsAre("framework"));
}

TEST(CompareRoles, OfSeveralDevicesEachKeepsItsName) {
  const Trace predicted = Play({Allocated("a", 100), Freed("a")});
  Trace devices[] = {predicted, predicted};
  for (Trace& device : devices) {
    device.origin = "torch snapshot";
  }
  devices[0].role = "cuda:0";
  devices[1].role = "cuda:1";
  EXPECT_FALSE(CompareTraces({&predicted, 1}, devices));
}

}  // namespace
}  // namespace tidemark::compare_roles_test
