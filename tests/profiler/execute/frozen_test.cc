// SPDX-License-Identifier: Apache-2.0
// Weights that are not trained, of sizes that ranks do not divide: they are whole, and not padded.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/profiler/execute/own_programs.h"

namespace tidemark::frozen_test {
namespace {

TEST(Frozen, WeightsThatRanksDoNotDivideAreThere) {
  for (const char* strategy : {"colossalai-zero1", "colossalai-zero2", "ddp-last", "megatron-dist-opt",
                               "fsdp2-scatter-each", "deepspeed-zero2", "deepspeed-zero3"}) {
    SCOPED_TRACE(strategy);
    Job job = SmallJob(strategy);
    job.network.trainable = {"layer.wo"};
    job.layout.dp = 3;
    ASSERT_NE(std::get<Decoder>(job.network.shape).hidden % 3, 0) << "a norm's weight";
    const RunOutcome& whole = Reference(OneBatch(job), 1, Exact());
    ASSERT_TRUE(std::isfinite(*whole.steps.front().loss));
    ExpectGradientsOf(whole, job, RanOwnPrograms(job, 1, Exact()));
  }
}

}  // namespace
}  // namespace tidemark::frozen_test
