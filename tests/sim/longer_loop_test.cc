// SPDX-License-Identifier: Apache-2.0
#include "sim/program/longer_loop.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "tests/sim/small_role.h"

namespace tidemark::longer_loop_test {
namespace {

std::optional<LongerLoop> Between(const std::string& low, const std::string& high) {
  return FindLongerLoop(SmallRole(low), SmallRole(high));
}

std::string Collective(const std::string& flight) { return "all_reduce a 8 fp32 sum over dp on side" + flight + "\n"; }
std::string Kernel(const std::string& flights) { return "compute k pointwise(elements=1) on main" + flights + "\n"; }
std::string Flying(const std::string& number) {
  return Collective(" in flight " + number) + Kernel(" beside flight " + number);
}
std::string Loop(int count, const std::string& body) {
  const std::string n = std::to_string(count);
  return "repeat m 0.." + std::to_string(count - 1) + " x" + n + " {\n" + body + "}\n";
}

TEST(LongerLoop, MayHaveFlightsOfItsOwn) {
  EXPECT_EQ(Between(Flying("0") + Loop(2, Flying("1")) + Flying("2"), Flying("0") + Loop(7, Flying("1")) + Flying("2")),
            (LongerLoop{2, 2, 5}));
}

// The shorter program may lack the loop's head, or all of it, and then its flights have other numbers.
TEST(LongerLoop, KnowsFlightsByTheirPlacesNotTheirNumbers) {
  const std::string high = Flying("0") + Loop(7, Flying("1")) + Flying("2");
  EXPECT_EQ(Between(Flying("0") + Flying("1") + Flying("2"), high), (LongerLoop{2, 1, 6}));
  EXPECT_EQ(Between(Flying("0") + Flying("1"), high), (LongerLoop{2, 0, 7}));
}

// What a kernel takes would depend on how often the loop runs.
TEST(LongerLoop, SharesNoFlightWithWhatIsAroundIt) {
  const std::string a = Collective(" in flight 0"), k = Kernel(" beside flight 0");
  EXPECT_FALSE(Between(a + Loop(2, k), a + Loop(7, k)));
  EXPECT_FALSE(Between(Loop(2, a) + k, Loop(7, a) + k));
  EXPECT_FALSE(Between(Loop(2, k + a) + k, Loop(7, k + a) + k));
  EXPECT_TRUE(Between(Loop(2, k + a) + Kernel(""), Loop(7, k + a) + Kernel("")));
}

TEST(LongerLoop, KernelsAreBesideTheSameInBoth) {
  const auto behind = [](const std::string& flights) { return Flying("0") + Flying("1") + Kernel(flights); };
  const std::string low = Loop(2, Kernel("")), high = Loop(7, Kernel(""));
  EXPECT_TRUE(Between(low + behind(" beside flight 1"), high + behind(" beside flight 1")));
  EXPECT_FALSE(Between(low + behind(" beside flight 0"), high + behind(" beside flight 1")));
  EXPECT_FALSE(Between(low + behind(""), high + behind(" beside flight 1")));
  EXPECT_FALSE(Between(low + behind(" beside flight 0 1"), high + behind(" beside flight 1")));
  EXPECT_FALSE(Between(low + Collective("") + Flying("0"), high + Flying("0") + Flying("0")));
}

}  // namespace
}  // namespace tidemark::longer_loop_test
