// SPDX-License-Identifier: Apache-2.0
// Keys of norms that change nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/idle_options.h"
#include "tests/sim/oracle_job.h"

namespace tidemark::norm_lints_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(NormLints, NameWhatNormsOfQueriesAndKeysAreOverWhereThereAreNone) {
  Job job = OracleJob("ddp-last", 4);
  std::get<Decoder>(job.network.shape).qk_norm_over = Decoder::QkNormOver::all_heads;
  EXPECT_THAT(IdleOptionsOf(job), IsEmpty());  // a network of the zoo that is priced without its norms
  job.sources["network.qk_norm_over"] = "--set";
  EXPECT_THAT(IdleOptionsOf(job), ElementsAre(HasSubstr("qk_norm_over changes nothing")));
  std::get<Decoder>(job.network.shape).qk_norm = true;  // as the hint says
  EXPECT_THAT(IdleOptionsOf(job), IsEmpty());
}

TEST(NormLints, NameNormsThatAreToBeMadeAgainWhereThereAreNone) {
  Job job = OracleJob("ddp-last", 4);
  std::get<Decoder>(job.network.shape).norm_placement = Decoder::NormPlacement::outputs;
  job.axes.recompute = {.policy = Recompute::Policy::selective, .attention = false, .norm = true};
  EXPECT_THAT(IdleOptionsOf(job), ElementsAre(HasSubstr("recompute.norm changes nothing")));
  std::get<Decoder>(job.network.shape).norm_placement = Decoder::NormPlacement::both;
  EXPECT_THAT(IdleOptionsOf(job), IsEmpty());
}

}  // namespace
}  // namespace tidemark::norm_lints_test
