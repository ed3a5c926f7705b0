// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "models/job/validate.h"
#include "sim/lower/recompute.h"
#include "tests/sim/oracle_job.h"

namespace tidemark::recompute_experts_test {
namespace {

/// What a layer with torchtitan's experts on two ranks does again, of what keeps or does again each operation.
std::set<std::string> DoneAgain(bool collectives) {
  Job job = OracleJob("megatron", 1);
  auto& decoder = std::get<Decoder>(job.network.shape);
  decoder.experts = {.count = 8, .ffn = 512, .router_fp32 = true, .layer = Experts::Layer::torchtitan};
  job.layout.dp = job.layout.ep = 2;
  const std::vector<BlockRun> runs = BuildBlocks(job.network, PartitionOf(job)).value();
  const Block& layer = runs.at(1).block;
  Recompute recompute;
  recompute.policy = Recompute::Policy::per_op;
  recompute.collectives = collectives;
  std::set<std::string> again;
  for (const Action& action : Recomputed(layer, recompute).backward) {
    std::visit(
        [&](const auto& leaf) {
          if constexpr (requires { leaf.recompute; }) {
            if (leaf.recompute) {
              again.insert(leaf.name);
            }
          }
        },
        action);
  }
  return again;
}

// torchtitan's list has no product of several experts, and of a router's gate none where its shape is named, as it is
// by default; an all-to-all is on it unless torch.distributed's own is called.
TEST(PerOperation, ExpertsAreDoneAgain) {
  const std::set<std::string> again = DoneAgain(false), all = DoneAgain(true);
  for (const char* name : {"router.forward", "experts_w1.forward", "experts_w2.forward", "experts_w3.forward"}) {
    EXPECT_TRUE(again.contains(std::string(name) + "_recomputed")) << name;
  }
  EXPECT_FALSE(again.contains("dispatch_rows.send_recomputed"));
  EXPECT_TRUE(all.contains("dispatch_rows.send_recomputed"));
}

}  // namespace
}  // namespace tidemark::recompute_experts_test
