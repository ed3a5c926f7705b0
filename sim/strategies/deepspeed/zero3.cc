// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/deepspeed/zero3.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "sim/lower/alike_blocks.h"
#include "sim/strategies/deepspeed/zero3_fetcher.h"
#include "sim/strategies/deepspeed/zero3_reducer.h"
#include "sim/strategies/optimizer.h"

namespace tidemark {
namespace {

/// Elements of partitions that are updated together (DeepSpeed's default sub_group_size).
constexpr std::int64_t kSubGroup = 1'000'000'000;

/// Positions [begin, end).
struct SubGroup {
  std::int64_t begin = 0, end = 0;
};

class Zero3 : public DataParallel {
 public:
  explicit Zero3(Role& role)
      : role_(role),
        group_(role.AddGroup("dp", role.job.layout.GradientRanks(), role.job.layout.tp)),
        fetcher_(role, group_),
        reducer_(role, group_) {
    const std::vector<std::int64_t>& elements = reducer_.partition_elements();
    if (Offloads()) {
      masters_ = PerBlockOnHost(role, "masters of", Category::optimizer, DType::fp32, elements, true);
      host_weights_ = PerBlockOnHost(role, "new parameters of", Category::parameter, role.job.axes.precision.params,
                                     elements, false);
    } else {
      masters_ = role.PerBlock("masters of", Category::optimizer, DType::fp32, role.compute, elements, true, true,
                               PartitionsOf(role, true));
    }
    const std::vector<Holding> holds = PartitionsOf(role, false);
    optimizer_.Declare(
        role, [&](std::int64_t position) { return PartSizes(position); }, OptimizerState::Tensors::joined,
        [&](std::int64_t position) { return std::vector{holds[role.stage.RunOf(position)]}; });
    joined_ = role.PerBlock("joined gradients of", reducer_.partition_category(), role.job.axes.precision.accumulate,
                            role.compute, elements, false, false, PartitionsOf(role, false));
    wide_ = role.PerBlock("fp32 gradients of", Category::gradient, DType::fp32, role.compute, elements, false, false,
                          PartitionsOf(role, true));
    reducer_.SetClip(optimizer_.clip());
    CutIntoSubGroups();
  }

  void BeginMicrobatch(const Microbatch&) override {
    plan_ = static_cast<std::size_t>(fetcher_.NextPlan());
    backward_ = false;
    if (alike_[plan_].empty()) {
      alike_[plan_] = FindAlike(static_cast<std::int64_t>(plan_));
    }
    fetcher_.BeginMicrobatch();
  }
  void EndForward(const Microbatch& microbatch) override {
    backward_ = true;
    if (Offloads() && microbatch.place.last) {
      optimizer_.clip().BeginParts();
    }
  }
  void BeforeAction(const Microbatch&, std::int64_t position, std::size_t action) override {
    fetcher_.BeforeAction(position, action);
  }
  void AfterAction(const Microbatch&, std::int64_t position, std::size_t action) override {
    fetcher_.AfterAction(position, action);
  }
  void EndBackward(const Microbatch& microbatch) override {
    reducer_.Finish(microbatch);
    fetcher_.EndBackward();
  }

  void OptimizerStep() override {
    role_.builder.Emit(Begin{Phase::optimizer, {LoopId{}, -1, 0}});
    fetcher_.ReleasePersistent();
    MeasureGradients();
    for (const SubGroup& group : groups_) {
      if (Offloads()) {
        UpdateOnHost(group);
      } else {
        JoinGradients(group);
        Update(group);
      }
    }
    optimizer_.ForgetNorm();
    fetcher_.FollowUpdate();
    role_.builder.Emit(End{Phase::optimizer});
    fetcher_.GatherPersistent();
  }

  /// The next window's first microbatch overwrites what is in the partitions.
  void DiscardGradients(const Microbatch&) override {}

  BufferRef Weight(const ParameterAt& at) override { return fetcher_.Weight(at); }
  BufferRef BeginGradient(const Microbatch&, const ParameterAt& at) override {
    const BufferRef gradient = reducer_.Gradient(at);
    role_.Alloc(gradient);
    return gradient;
  }
  void EndGradient(const Microbatch& microbatch, const ParameterAt& at) override { reducer_.Arrive(microbatch, at); }
  BufferRef FinalGradient(const ParameterAt& at) override { return reducer_.Partition(at.position); }

  std::vector<std::int64_t> KeyBetweenMicrobatches() const override { return {fetcher_.NextPlan()}; }

  // All that is fetched, released and reduced is planned beforehand, so nothing is remembered that would have to move.
  std::vector<std::int64_t> Key(std::int64_t position) const override {
    return AlikeAt(position).Key(Walked(position));
  }
  std::int64_t BlocksAlike(std::int64_t position) const override { return AlikeAt(position).Left(Walked(position)); }
  void Shift(std::int64_t) override {}

 private:
  /// Of this rank's part of each parameter: DeepSpeed takes their norms one by one (stage3.py, get_grad_norm_direct).
  TensorSizes PartSizes(std::int64_t position) const {
    TensorSizes sizes = TrainedSizes(role_, position);
    for (std::int64_t& size : sizes) {
      size = CeilDiv(size, role_.job.layout.GradientRanks());
    }
    return sizes;
  }

  bool Offloads() const { return role_.job.axes.optimizer_step.offload; }

  void CutIntoSubGroups() {
    std::int64_t begin = 0, elements = 0;
    for (std::int64_t position = 0; position < role_.stage.blocks; ++position) {
      elements += reducer_.partition_elements()[role_.stage.RunOf(position)];
      if (elements >= kSubGroup || position + 1 == role_.stage.blocks) {
        groups_.push_back({begin, position + 1});
        begin = position + 1;
        elements = 0;
      }
    }
  }

  /// By run and direction.
  std::vector<AlikeBlocks> FindAlike(std::int64_t plan) const {
    std::vector<AlikeBlocks> alike;
    for (std::size_t run = 0; run < role_.stage.runs.size(); ++run) {
      const std::int64_t first = role_.stage.first[run], count = role_.stage.runs[run].count;
      for (const bool backward : {false, true}) {
        std::vector<std::vector<std::int64_t>> described(static_cast<std::size_t>(count));
        for (std::int64_t walked = 0; walked < count; ++walked) {
          const std::int64_t position = backward ? first + count - 1 - walked : first + walked;
          std::vector<std::int64_t>& description = described[static_cast<std::size_t>(walked)];
          fetcher_.Describe(plan, position, backward, description);
          if (backward) {
            reducer_.Describe(position, description);
          }
        }
        alike.emplace_back(described);
      }
    }
    return alike;
  }

  const AlikeBlocks& AlikeAt(std::int64_t position) const {
    return alike_[plan_][role_.stage.RunOf(position) * 2 + (backward_ ? 1 : 0)];
  }
  std::int64_t Walked(std::int64_t position) const {
    const std::int64_t in_run = role_.InRun(position);
    return backward_ ? role_.stage.runs[role_.stage.RunOf(position)].count - 1 - in_run : in_run;
  }

  /// Writes `body(position, elements)` for every block of the group that has something to train, as one loop per run.
  template <class Body>
  void EachTrained(const SubGroup& group, Body body) {
    for (std::size_t run = 0; run < role_.stage.runs.size(); ++run) {
      const std::int64_t begin = std::max(group.begin, role_.stage.first[run]);
      const std::int64_t end = std::min(group.end, role_.stage.first[run] + role_.stage.runs[run].count);
      const std::int64_t elements = reducer_.partition_elements()[run];
      if (begin >= end || elements == 0) {
        continue;
      }
      const std::size_t start = role_.builder.size();
      role_.StandAt(begin);
      body(begin, elements);
      role_.LeaveBlocks();
      if (end - begin > 1) {
        role_.builder.Fold(start, {role_.block_loop, end - begin, role_.InRun(begin), 1, 0});
      } else {
        role_.builder.Bind(start, role_.builder.size(), role_.block_loop, role_.InRun(begin));
      }
    }
  }

  void CopyInOptimizer(const char* name, const BufferRef& from, const BufferRef& to, std::int64_t elements) {
    const Bytes moved =
        (SizeOf(role_.builder.buffer(from.buffer).dtype) + SizeOf(role_.builder.buffer(to.buffer).dtype)) * elements;
    role_.MemoryKernel(name, role_.compute, Work::optimizer, {from}, {to}, elements, moved);
  }

  /// Joined in the dtype they were accumulated in, then cast; without a cast to do, the joined ones serve.
  void JoinGradients(const SubGroup& group) {
    const bool casts = role_.job.axes.precision.accumulate != DType::fp32;
    const RunBuffers& joined = casts ? joined_ : wide_;
    EachTrained(group, [&](std::int64_t position, std::int64_t elements) {
      role_.Alloc(role_.Ref(joined, position));
      CopyInOptimizer("join gradients", reducer_.Partition(position), role_.Ref(joined, position), elements);
    });
    if (!casts) {
      return;
    }
    EachTrained(group, [&](std::int64_t position, std::int64_t elements) {
      role_.Alloc(role_.Ref(wide_, position));
      CopyInOptimizer("cast gradients", role_.Ref(joined_, position), role_.Ref(wide_, position), elements);
    });
    EachTrained(group, [&](std::int64_t position, std::int64_t) { role_.Free(role_.Ref(joined_, position)); });
  }

  std::vector<TensorUpdate> UpdatesOf(std::int64_t position, const BufferRef& gradient) {
    const std::int64_t elements = reducer_.partition_elements()[role_.stage.RunOf(position)];
    if (elements == 0) {
      return {};
    }
    return {{0, elements, {gradient}, {role_.Ref(masters_, position)}, SizeOf(DType::fp32) * 3}};
  }

  void MeasureGradients() {
    if (Offloads()) {
      optimizer_.clip().Sum(true, true);
    } else {
      optimizer_.MeasureNorm(
          role_, {[&](std::int64_t position) { return UpdatesOf(position, reducer_.Partition(position)); }});
    }
  }

  template <class GradientAt>
  void Step(const SubGroup& group, GradientAt gradient) {
    const auto joined = [&](std::int64_t position) { return group.begin <= position && position < group.end; };
    const auto at = [&](std::int64_t position) {
      return joined(position) ? UpdatesOf(position, gradient(position)) : std::vector<TensorUpdate>();
    };
    optimizer_.Step(role_,
                    {at, [&](std::int64_t position) { return std::vector<std::int64_t>{joined(position) ? 1 : 0}; }});
  }

  /// The host casts what the device will get, and its copy from memory that is not pinned makes it wait.
  void UpdateOnHost(const SubGroup& group) {
    Step(group, [&](std::int64_t position) { return reducer_.HostGradient(position); });
    const DType type = role_.job.axes.precision.params;
    EachTrained(group, [&](std::int64_t position, std::int64_t elements) {
      role_.Alloc(role_.Ref(host_weights_, position));
      role_.MemoryKernel("cast masters", kHostStream, Work::optimizer, {role_.Ref(masters_, position)},
                         {role_.Ref(host_weights_, position)}, elements,
                         (SizeOf(DType::fp32) + SizeOf(type)) * elements);
    });
    EachTrained(group, [&](std::int64_t position, std::int64_t elements) {
      CopyOverLink(role_, "weights to device", role_.compute, {role_.Ref(host_weights_, position)},
                   {fetcher_.Partition(position)}, elements, type);
    });
    role_.builder.Emit(HostSync{role_.compute});
    EachTrained(group, [&](std::int64_t position, std::int64_t) { role_.Free(role_.Ref(host_weights_, position)); });
  }

  void Update(const SubGroup& group) {
    Step(group, [&](std::int64_t position) { return role_.Ref(wide_, position); });
    EachTrained(group, [&](std::int64_t position, std::int64_t elements) {
      CopyInOptimizer("cast masters", role_.Ref(masters_, position), fetcher_.Partition(position), elements);
    });
    EachTrained(group, [&](std::int64_t position, std::int64_t) { role_.Free(role_.Ref(wide_, position)); });
  }

  Role& role_;
  GroupId group_;
  Zero3Fetcher fetcher_;
  Zero3Reducer reducer_;
  RunBuffers masters_, joined_, wide_;
  RunBuffers host_weights_;  ///< in the parameters' dtype, where the optimizer lies in host memory
  OptimizerState optimizer_;
  std::vector<SubGroup> groups_;
  std::array<std::vector<AlikeBlocks>, Zero3Fetcher::kPlans> alike_;  ///< by plan, once a microbatch has it
  std::size_t plan_ = 0;
  bool backward_ = false;
};

}  // namespace

std::unique_ptr<DataParallel> MakeZero3(Role& role) { return std::make_unique<Zero3>(role); }

}  // namespace tidemark
