// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "sim/predict/communication.h"
#include "sim/program/text.h"
#include "tests/sim/audited_job.h"
#include "tests/sim/oracle_job.h"

// Worked numbers of nanotron's tensor-parallel modes and of Alpa's ways to synchronise, read off whole jobs.

namespace tidemark::worked_numbers_systems_test {
namespace {

using TpGather = Buffers::TpGather;
using Executable = Sync::Executable;

constexpr std::int64_t kFull = 8'388'608;  // 2nh: n = 4096 tokens, h = 1024, bf16

Job TensorParallel(TpGather gather, bool sp = true) {
  Job job = OracleJob("nanotron", 1);
  job.layout.tp = 2;
  job.layout.sp = sp;
  job.axes.buffers.tp_gather = gather;
  return job;
}

Job WithLayers(Job job, std::int64_t layers) {
  std::get<Decoder>(job.network.shape).layers = layers;
  return job;
}

CommunicationRow RowOf(const Job& job, const std::string& kind) {
  for (const CommunicationRow& row : CountCommunication(Sound(job).roles.front())) {
    if (row.kind == kind && row.group == "tp" && row.dtype == DType::bf16) {
      return row;
    }
  }
  return {};
}

/// Collectives of one layer and microbatch over the tensor-parallel group: how many, and that each carries 2nh.
std::int64_t PerLayer(const Job& job, const std::string& kind) {
  const CommunicationRow four = RowOf(job, kind), five = RowOf(WithLayers(job, 5), kind);
  EXPECT_EQ((five.payload - four.payload).count(), (five.count - four.count) * kFull);
  EXPECT_EQ((five.wire - four.wire).count() * 2, (five.count - four.count) * kFull * (kind == "all_reduce" ? 2 : 1));
  return five.count - four.count;
}

// Forward 2 gathers and 2 scatters; backward 2 gathers of dY, 2 scatters of dX, and 2 gathers of X where it was not
// kept. Wire: (t - 1)/t of the payload.
TEST(TensorParallelModes, CommunicateAsOftenAsCounted) {
  for (const TpGather gather : {TpGather::pooled, TpGather::async}) {
    EXPECT_EQ(PerLayer(TensorParallel(gather), "all_gather"), 2 + 2 + 2);
    EXPECT_EQ(PerLayer(TensorParallel(gather), "reduce_scatter"), 2 + 2);
  }
  EXPECT_EQ(PerLayer(TensorParallel(TpGather::cached), "all_gather"), 2 + 2);
  EXPECT_EQ(PerLayer(TensorParallel(TpGather::cached), "reduce_scatter"), 2 + 2);
  // ALL_REDUCE mode: row outputs in the forward pass, column inputs' gradients in the backward pass.
  EXPECT_EQ(PerLayer(TensorParallel(TpGather::cached, false), "all_reduce"), 2 + 2);
  EXPECT_EQ(PerLayer(TensorParallel(TpGather::cached, false), "all_gather"), 0);
}

/// Bytes of one layer's gathered tensors whose name ends in `ending`, all that are allocated in one microbatch.
std::int64_t GatheredInALayer(const Job& job, std::string_view ending) {
  const auto allocated = [&](const Job& of) {
    const Program program = Unroll(Sound(of).roles.front());
    std::int64_t bytes = 0;
    for (const Node& node : program.nodes) {
      if (const auto* alloc = std::get_if<Alloc>(&node)) {
        const Buffer& buffer = program.buffers[alloc->buffer.buffer.index];
        bytes += buffer.category == Category::tp_gather && buffer.name.ends_with(ending) ? buffer.bytes().count() : 0;
      }
    }
    return bytes;
  };
  return allocated(WithLayers(job, 5)) - allocated(job);
}

// Asynchronous: the full X of each of two column inputs exists twice, for as long as its products take: 2nh in the
// forward pass and 2nh in the backward pass. Gathers of dY are two more.
TEST(TensorParallelModes, AsynchronousOnesMakeTheFullInputTwice) {
  const Job job = TensorParallel(TpGather::async);
  EXPECT_EQ(GatheredInALayer(job, "_gathered"), 2 * kFull);
  EXPECT_EQ(GatheredInALayer(job, "_again"), 2 * kFull);
  EXPECT_EQ(GatheredInALayer(job, ""), 6 * kFull);
  EXPECT_EQ(Audit(Sound(job), job.machine).after_forward.at(0)[Category::tp_gather].count(), 0);
}

// Kept: two more of 2nh live between the passes, for each layer.
TEST(TensorParallelModes, CachedOnesKeepTheFullInputs) {
  const auto kept = [](const Job& job) {
    return Audit(Sound(job), job.machine).after_forward.at(0)[Category::tp_gather].count();
  };
  const Job job = TensorParallel(TpGather::cached);
  EXPECT_EQ(kept(WithLayers(job, 5)) - kept(job), 2 * kFull);
  EXPECT_EQ(kept(TensorParallel(TpGather::pooled)), kFull);  // one block, however many layers
}

// Four layers, with sequence parallelism and gathers done again: 248,053,760 in layers; the head 8,396,800 (norm_in,
// rstd, head_in); token ids 32,768, and as many labels; the softmax 262,144,000.
TEST(TensorParallelModes, KeepTheWorkedSumOfAModelsActivations) {
  const Job job = TensorParallel(TpGather::pooled);
  const CategoryBytes live = Audit(Sound(job), job.machine).after_forward.at(0);
  EXPECT_EQ(live[Category::activation].count(), 248'053'760 + 8'396'800);
  EXPECT_EQ(live[Category::logits].count(), 262'144'000);
  EXPECT_EQ(live[Category::input].count(), 2 * 32'768);
}

// ---- Alpa: C1 two executables, C2 a branch in one, C3 one of nothing but the all-reduce.

// P b = 221,267,968 bytes over 4 ranks at 4e11 bytes/s: 331,901,952 on the wire, 829,755 ns; 2 (N - 1) messages of
// 2,000 ns each.
constexpr std::int64_t kAllReduce = 829'755 + 6 * 2'000;

Job Separated(Executable executable, bool contiguous = true) {
  Job job = OracleJob("alpa", 4);
  job.axes.sync.executable = executable;
  job.axes.buffers.contiguous_gradients = contiguous;
  return job;
}

StepTime TimeOf(const Job& job) {
  const StepProgram step = Sound(job);
  return Simulate(step, PriceAll(step, job.machine)).time;
}

TEST(AlpaSeparation, ExposesTheWholeAllReduceWhereItIsOne) {
  for (const Executable executable :
       {Executable::two, Executable::branch, Executable::separate, Executable::skip_channels}) {
    for (const bool contiguous : {false, true}) {
      // The host issues a branch's collective once it has fetched the predicate, 5,000 ns; copies before it hide that.
      const std::int64_t issue = executable == Executable::branch && !contiguous ? 5'000 : 0;
      EXPECT_EQ(TimeOf(Separated(executable, contiguous)).exposed_communication.count(), kAllReduce + issue)
          << static_cast<int>(executable) << contiguous;
    }
  }
}

// By default the combiner merges all of it, which can start only when the last gradient is ready: C1 then costs what C3
// does, but for the launch that C3 has more, which the host issues ahead.
TEST(AlpaSeparation, TwoExecutablesAndASeparateOneTakeEquallyLongWhereAllIsMerged) {
  EXPECT_EQ(TimeOf(Separated(Executable::two, false)).step, TimeOf(Separated(Executable::separate, false)).step);
}

// With a combiner of 32 MiB six all-reduces are left (bytes in order of arrival; time 1.5 bytes / 400 per ns + 12,000):
//   65,536,000 257,760 | 28,317,696 118,191 | 22,548,480 96,557 | 22,548,480 96,557 | 16,781,312 74,930 |
//   65,536,000 257,760
// together 901,755 ns. C2 (with its 5,000 ns) and C3 have nothing to run beside them. In C1 all but the last run beside
// backward kernels; that one waits for the embedding's gradient, the last of all.
TEST(AlpaSeparation, OnlyTheExecutableWithTheCollectivesInsideHidesThem) {
  const auto exposed = [](Executable executable) {
    Job job = Separated(executable, false);
    job.axes.sync.bucket_bytes = Bytes(32 << 20);
    return TimeOf(job).exposed_communication.count();
  };
  EXPECT_EQ(exposed(Executable::branch), 901'755 + 5'000);
  EXPECT_EQ(exposed(Executable::separate), 901'755);
  EXPECT_EQ(exposed(Executable::two), 257'760);
  EXPECT_EQ(exposed(Executable::skip_channels), 257'760);
}

// Where memory is highest: C1 copies into the contiguous buffer in the last microbatch only, as C3 does; what shipped
// in every one, and C2's conditional has the larger branch's buffers in every one. P = 221,267,968.
TEST(AlpaSeparation, HoldsTheContiguousBufferWhereItsProgramDoes) {
  const auto most_by_microbatch = [](Executable executable) {
    class Watch : public Listener {
     public:
      explicit Watch(const Program& program) : program_(program) {}
      void OnAlloc(const BufferInstance& instance, Nanos, Nanos) override { Count(instance, 1); }
      void OnFree(const BufferInstance& instance, Nanos, Nanos) override { Count(instance, -1); }
      void OnSlice(StreamId, NameId, Nanos, Nanos) override {}
      void OnBegin(const Begin& begin, std::int64_t, Nanos) override {
        if (begin.phase == Phase::load) {
          most.emplace_back(0);
        }
      }
      void OnEnd(Phase, Nanos) override {}

      std::vector<std::int64_t> most;

     private:
      void Count(const BufferInstance& instance, std::int64_t sign) {
        const Buffer& buffer = program_.buffers[instance.buffer.index];
        live_ += buffer.category == Category::bucket ? sign * buffer.bytes().count() : 0;
        if (!most.empty()) {
          most.back() = std::max(most.back(), live_);
        }
      }

      const Program& program_;
      std::int64_t live_ = 0;
    };
    const Job job = Separated(executable);
    const StepProgram step = Sound(job);
    Watch watch(step.roles.front());
    const std::vector<Listener*> listeners = {&watch};
    Simulate(step, PriceAll(step, job.machine), listeners);
    return watch.most;
  };
  constexpr std::int64_t kP = 221'267'968;
  EXPECT_EQ(most_by_microbatch(Executable::two), (std::vector<std::int64_t>{0, 0, 0, kP}));
  EXPECT_EQ(most_by_microbatch(Executable::separate), (std::vector<std::int64_t>{0, 0, 0, kP}));
  EXPECT_EQ(most_by_microbatch(Executable::branch), (std::vector<std::int64_t>{kP, kP, kP, kP}));
  EXPECT_EQ(most_by_microbatch(Executable::skip_channels), (std::vector<std::int64_t>{kP, kP, kP, kP}));
}

}  // namespace
}  // namespace tidemark::worked_numbers_systems_test
