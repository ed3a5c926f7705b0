// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/closed_form.h"
#include "sim/program/text.h"
#include "tests/sim/audited_job.h"
#include "tests/sim/dice.h"
#include "tests/sim/oracle_job.h"
#include "tests/sim/sound_program.h"

// Expected bucket sizes are those that PyTorch 1.13 launched for the oracle model and for a model of small layers; the
// rules are torch/csrc/distributed/c10d/reducer.cpp's.

namespace tidemark::ddp_buckets_test {
namespace {

using Sizes = std::vector<std::int64_t>;

const Sizes kRebuiltFp32{131'072'000, 34'607'104, 45'096'960, 45'096'960, 45'096'960, 141'565'952};
constexpr std::int64_t kPFp32 = 442'535'936;
constexpr std::int64_t kParameters = 35;  // 8 per layer, embedding, final norm, head

struct Launched {
  Sizes buckets, used;  ///< bytes; used: the all-reduces of used parameters
};

Launched LaunchedBy(const Job& job, StepKind kind) {
  Launched launched;
  for (const Node& node : Unroll(Sound(job, kind).roles.front()).nodes) {
    if (const auto* collective = std::get_if<Collective>(&node)) {
      Sizes& sizes = collective->dtype == DType::int32 ? launched.used : launched.buckets;
      sizes.push_back(collective->payload().count());
    }
  }
  return launched;
}

Job Fp32Job(const std::string& strategy, std::int64_t microbatches) {
  Job job = OracleJob(strategy, microbatches);
  Precision& precision = job.axes.precision;
  precision.params = precision.gradients = precision.reduce = precision.accumulate = precision.optimizer = DType::fp32;
  return job;
}

/// 120 layers of 256 KiB, then one of 64 KiB, in fp32.
Job SmallLayers() {
  Job job = Fp32Job("ddp-last", 1);
  TableRow layer, last;
  layer.name = "layer";
  layer.count = 120;
  layer.parameters = 65'536;
  last.name = "last";
  last.parameters = 16'384;
  job.network = {"small layers", Table{{layer, last}}, {}};
  return job;
}

TEST(DdpBuckets, ABucketOvershootsByOneParameterAtMost) {
  EXPECT_EQ(LaunchedBy(SmallLayers(), StepKind::steady).buckets, (Sizes{1088 << 10, 25'600 << 10, 4096 << 10}));
}

TEST(DdpBuckets, ASmallCapGivesManyEqualBuckets) {
  Job job = SmallLayers();
  job.axes.sync.bucket_bytes = Bytes(2 << 20);
  Sizes expected(16, 2048 << 10);
  expected.front() = 1088 << 10;
  expected.back() = 1024 << 10;
  EXPECT_EQ(LaunchedBy(job, StepKind::steady).buckets, expected);
}

TEST(DdpBuckets, AStaticGraphIsReducedWholeTwiceAndInBucketsFromTheThirdTimeOn) {
  Job job = Fp32Job("ddp-last", 2);
  job.axes.sync.static_graph = true;
  const Launched first = LaunchedBy(job, StepKind::first);
  EXPECT_EQ(first.buckets, Sizes{kPFp32});
  EXPECT_EQ(first.used, Sizes{4 * kParameters});
  const Launched second = LaunchedBy(job, StepKind::second);
  EXPECT_EQ(second.buckets, Sizes{kPFp32});
  EXPECT_TRUE(second.used.empty());
  const Launched steady = LaunchedBy(job, StepKind::steady);
  EXPECT_EQ(steady.buckets, kRebuiltFp32);
  EXPECT_TRUE(steady.used.empty());
}

TEST(DdpBuckets, AStaticGraphSynchronisedEveryMicrobatchIsRebuiltWithinItsFirstStep) {
  for (const std::int64_t microbatches : {1, 2, 3, 5}) {
    Job job = Fp32Job("ddp-every", microbatches);
    job.axes.sync.static_graph = true;
    Sizes counts;
    for (const StepKind kind : {StepKind::first, StepKind::second, StepKind::steady}) {
      counts.push_back(static_cast<std::int64_t>(LaunchedBy(job, kind).buckets.size()));
    }
    // 1, 1, 6, 6, ... all-reduces in microbatch after microbatch.
    const auto launches = [](std::int64_t n) {
      return std::min<std::int64_t>(n, 2) + 6 * std::max<std::int64_t>(n - 2, 0);
    };
    EXPECT_EQ(counts,
              (Sizes{launches(microbatches), launches(2 * microbatches) - launches(microbatches), 6 * microbatches}));
    EXPECT_EQ(LaunchedBy(job, StepKind::first).used, Sizes{4 * kParameters});
  }
}

TEST(DdpBuckets, AStaticGraphPutsGradientsIntoTheBucketAfterItsFirstBackward) {
  Job job = Fp32Job("ddp-last", 1);
  job.axes.sync.static_graph = true;
  job.axes.buffers.gradient_as_bucket_view = true;
  // All gradients of their own beside the bucket; without a static graph each goes as it arrives, and the largest two
  // are never there together with the rest.
  EXPECT_EQ(Audit(Sound(job, StepKind::first), job.machine).highest_system.count(), 3 * kPFp32 + 4 * kParameters);
  job.axes.sync.static_graph = false;
  EXPECT_LT(Audit(Sound(job, StepKind::first), job.machine).highest_system.count(), 2 * kPFp32 + kPFp32 / 3);
}

TEST(DdpBuckets, WithUnusedParametersToFindBucketsFollowDefinitionOrderAndTheSmallOneComesLast) {
  Job job = Fp32Job("ddp-last", 2);
  job.axes.sync.find_unused_parameters = true;
  for (const StepKind kind : {StepKind::first, StepKind::second, StepKind::steady}) {
    const Launched launched = LaunchedBy(job, kind);
    EXPECT_EQ(launched.buckets, (Sizes{142'610'432, 45'096'960, 45'096'960, 45'096'960, 33'562'624, 131'072'000}));
    EXPECT_EQ(launched.used, Sizes{4 * kParameters});
  }
}

TEST(DdpBuckets, UsedParametersAreReducedEachTimeGradientsAre) {
  Job job = Fp32Job("ddp-every", 3);
  job.axes.sync.find_unused_parameters = true;
  EXPECT_EQ(LaunchedBy(job, StepKind::steady).used.size(), 3U);
  EXPECT_EQ(LaunchedBy(job, StepKind::first).buckets.size(), 18U);
}

TEST(DdpBuckets, ManyLayersFoldIntoALoopWhicheverTheOrder) {
  for (const bool by_definition : {false, true}) {
    Job job = Fp32Job("ddp-last", 1);
    job.axes.sync.find_unused_parameters = by_definition;
    std::get<Decoder>(job.network.shape).layers = 200;
    const StepProgram step = Sound(job, StepKind::steady);
    EXPECT_LT(step.roles.front().nodes.size(), 2000U);
    const Sizes buckets = LaunchedBy(job, StepKind::steady).buckets;
    // One per layer of 45,096,960 bytes, and the two ends.
    EXPECT_EQ(buckets.size(), 202U);
    EXPECT_EQ(std::accumulate(buckets.begin(), buckets.end(), std::int64_t{0}),
              kPFp32 + std::int64_t{196} * 45'096'960);
  }
}

/// Bucket sizes by definition, counted anew over a flat list of parameters.
Sizes ByDefinition(const std::vector<std::int64_t>& parameters, const Sync& sync) {
  Sizes sizes;
  std::int64_t open = 0;
  for (const std::int64_t bytes : parameters) {
    open += bytes;
    if (open >= (sizes.empty() ? sync.first_bucket_bytes : sync.bucket_bytes).count()) {
      sizes.push_back(open);
      open = 0;
    }
  }
  if (open > 0) {
    sizes.push_back(open);
  }
  return {sizes.rbegin(), sizes.rend()};
}

TEST(DdpBuckets, OverManyLayersAndLimitsTheSizesAreThoseOfAPlainCount) {
  Dice dice(11);
  for (int round = 0; round < 300; ++round) {
    Job job = Fp32Job("ddp-last", 1);
    std::vector<std::int64_t> parameters;
    Table table;
    for (int row = 0; row < 3; ++row) {
      TableRow layer;
      layer.name = std::string(1, static_cast<char>('a' + row));
      layer.count = row == 1 ? dice.Number(1, 60) : 1;
      layer.parameters = dice.Number(1, 40);
      parameters.insert(parameters.end(), static_cast<std::size_t>(layer.count), 4 * layer.parameters);
      table.rows.push_back(layer);
    }
    job.network = {"random", table, {}};
    job.axes.sync.first_bucket_bytes = Bytes(dice.Number(1, 400));
    job.axes.sync.bucket_bytes = Bytes(dice.Number(1, 900));
    std::vector<std::int64_t> arrivals(parameters.rbegin(), parameters.rend());
    Sizes rebuilt = ByDefinition(arrivals, job.axes.sync);
    std::reverse(rebuilt.begin(), rebuilt.end());
    EXPECT_EQ(LaunchedBy(job, StepKind::steady).buckets, rebuilt);
    job.axes.sync.find_unused_parameters = true;
    EXPECT_EQ(LaunchedBy(job, StepKind::steady).buckets, ByDefinition(parameters, job.axes.sync));
  }
}

// The first synchronised backward pass is the first step's last; the second step's first forward pass rebuilds, however
// few microbatches the second step has.
TEST(DdpBuckets, AShortSecondStepRebuildsAsAFullOneDoes) {
  Job job = OracleJob("ddp-last", 4);
  job.axes.buffers.gradient_as_bucket_view = true;
  job.axes.buffers.set_to_none = false;
  const auto rebuilds = [&] {
    const Program role = Sound(job, StepKind::second).roles.front();
    return std::count_if(role.nodes.begin(), role.nodes.end(), [&](const Node& node) {
      const auto* kernel = std::get_if<Compute>(&node);
      return kernel != nullptr && role.names[kernel->name.index] == "gradient to rebuilt bucket";
    });
  };
  const auto full = rebuilds();
  EXPECT_GT(full, 0);
  job.last_window = {LastWindow::Policy::rescaled, 2};
  EXPECT_EQ(rebuilds(), full);
}

/// Where the gradients of an all-reduce lie: slices of one buffer, one behind the other, from its beginning to its end.
void ExpectWholeBucket(const Program& role, const Collective& collective) {
  std::int64_t end = 0;
  BufferId bucket;
  for (const BufferRef& ref : collective.reads) {
    const Buffer& slot = role.buffers[ref.buffer.index];
    ASSERT_FALSE(slot.slices.empty()) << slot.name;
    const BufferSlice& slice = slot.slices[static_cast<std::size_t>(ref.index[0].offset)];
    EXPECT_EQ(slice.first, end) << slot.name;
    bucket = end == 0 ? slice.of : bucket;
    EXPECT_EQ(slice.of, bucket) << slot.name;
    end += slot.elements;
  }
  EXPECT_EQ(role.buffers[bucket.index].elements, end);
  EXPECT_EQ(collective.payload_elements, end);
}

TEST(DdpBuckets, EachIsOneBlockInWhichItsGradientsLieAsTheyAreReduced) {
  for (const bool by_definition : {false, true}) {
    for (const StepKind kind : {StepKind::first, StepKind::second, StepKind::steady}) {
      Job job = Fp32Job("ddp-every", 2);
      job.axes.sync.find_unused_parameters = by_definition;
      const Program role = Unroll(Sound(job, kind).roles.front());
      for (const Node& node : role.nodes) {
        const auto* collective = std::get_if<Collective>(&node);
        if (collective != nullptr && collective->dtype != DType::int32) {
          ExpectWholeBucket(role, *collective);
        }
      }
    }
  }
}

std::vector<std::string> BucketsThat(const StepProgram& step, bool Buffer::*stay) {
  std::vector<std::string> names;
  for (const Buffer& buffer : step.roles.front().buffers) {
    if (buffer.category == Category::bucket && buffer.dtype != DType::int32 && buffer.*stay) {
      names.push_back(buffer.name);
    }
  }
  return names;
}

// A reducer is made with one bucket (DistributedDataParallel._ddp_init_helper gives it a first limit of sys.maxsize),
// and rebuilds once. With a static graph that is in the third step, and stands at the end of the second here.
TEST(DdpBuckets, AStepBeginsWithTheBucketsThatTheOneBeforeHasLeft) {
  const std::vector<std::string> one{"first bucket 0"};
  for (const char* strategy : {"ddp-every", "ddp-last"}) {
    for (const bool static_graph : {false, true}) {
      for (const std::int64_t microbatches : {1, 2, 3}) {
        Job job = Fp32Job(strategy, microbatches);
        job.axes.sync.static_graph = static_graph;
        const StepProgram first = Sound(job, StepKind::first), second = Sound(job, StepKind::second),
                          steady = Sound(job, StepKind::steady);
        const std::int64_t passes = std::string(strategy) == "ddp-every" ? microbatches : 1;
        const bool rebuilt_at_once = passes > (static_graph ? 2 : 1);
        const std::vector<std::string> rebuilt = BucketsThat(steady, &Buffer::resident);
        EXPECT_EQ(rebuilt.size(), kRebuiltFp32.size());
        EXPECT_EQ(BucketsThat(first, &Buffer::resident), one);
        EXPECT_EQ(BucketsThat(first, &Buffer::kept), rebuilt_at_once ? rebuilt : one);
        EXPECT_EQ(BucketsThat(second, &Buffer::resident), BucketsThat(first, &Buffer::kept));
        EXPECT_EQ(BucketsThat(second, &Buffer::kept), rebuilt);
        EXPECT_EQ(BucketsThat(steady, &Buffer::kept), rebuilt);
      }
    }
  }
}

// The loops are declared wrong; programs fit together all the same. In the second one what the rebuild waits for, a
// second pass that synchronises, comes behind the second step's last update.
TEST(DdpBuckets, StepsOfALoopThatNeverGetsThereFitTogether) {
  for (const auto& [when, step] : {std::pair{"i == 9", "i == 3"}, {"i == 3", "i == 1"}, {"i == 3", "i % 2 == 1"}}) {
    for (const bool static_graph : {false, true}) {
      Job job = Fp32Job("ddp-last", 4);
      job.axes.sync.when = Sync::When::custom;
      job.axes.sync.expression = when;
      job.axes.sync.step_expression = step;
      job.axes.sync.static_graph = static_graph;
      std::vector<std::string> left;
      for (const StepKind kind : {StepKind::first, StepKind::second, StepKind::steady, StepKind::steady}) {
        const StepProgram program = *Lower(job, kind);
        if (!left.empty()) {
          EXPECT_EQ(BucketsThat(program, &Buffer::resident), left) << when << step << static_graph;
        }
        left = BucketsThat(program, &Buffer::kept);
        EXPECT_FALSE(left.empty());
      }
    }
  }
}

TEST(DdpBuckets, GradientsInTheFirstBucketHoldItUntilTheyHaveMovedAndNobodyElseDoes) {
  for (const bool views_stay : {false, true}) {
    Job job = Fp32Job("ddp-last", 1);
    job.axes.buffers.gradient_as_bucket_view = true;
    job.axes.buffers.set_to_none = !views_stay;
    const Program role = Sound(job, StepKind::second).roles.front();
    std::int64_t now = 0, most = 0;
    for (const Node& node : role.nodes) {
      const auto* born = std::get_if<Alloc>(&node);
      const auto* dead = std::get_if<Free>(&node);
      const BufferRef* ref = born != nullptr ? &born->buffer : dead != nullptr ? &dead->buffer : nullptr;
      if (ref != nullptr && role.buffers[ref->buffer.index].category == Category::bucket) {
        now += (born != nullptr ? 1 : -1) * role.buffers[ref->buffer.index].bytes().count();
        most = std::max(most, now);
      }
    }
    EXPECT_EQ(most, views_stay ? kPFp32 : 0);  // above the bucket that was there
    EXPECT_EQ(now, 0);
  }
}

}  // namespace
}  // namespace tidemark::ddp_buckets_test
