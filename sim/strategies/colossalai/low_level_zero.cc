// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/colossalai/low_level_zero.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "sim/lower/fold_alike.h"
#include "sim/strategies/autograd_gradients.h"
#include "sim/strategies/colossalai/flush_plan.h"
#include "sim/strategies/colossalai/updated_gather.h"
#include "sim/strategies/colossalai/zero_flush.h"
#include "sim/strategies/optimizer.h"
#include "sim/strategies/parameter_order.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {
namespace {

/// Without synchronisation gradients add up in `.grad`. A synchronised backward moves them, bucket by bucket, through
/// ZeroFlush into the gradient store, which lives until zero_grad; `.grad` is None after it.
class LowLevelZero : public DataParallel {
 public:
  explicit LowLevelZero(Role& role)
      : role_(role),
        axes_(role.job.axes),
        ranks_(role.job.layout.GradientRanks()),
        stream_(role.builder.AddStream("dp", StreamKind::collective)),
        group_(role.AddGroup("dp", ranks_, role.job.layout.tp)),
        plan_(
            role, HasHooks() ? ArrivalOrder(role) : DefinitionOrder(role),
            [&](const Parameter& parameter) { return PaddedTo(ranks_, parameter); },
            [](const Parameter& parameter) { return parameter.elements; }, axes_.sync.bucket_elements),
        flush_(role, stream_, group_, ranks_, plan_) {
    DeclareBuffers();
    gather_.emplace(
        role, stream_, group_, ranks_, [&](const ParameterAt& at) { return Updated(at); },
        [&](const ParameterAt& at) { return Weight(at); });
  }

  void EndBackward(const Microbatch& microbatch) override {
    if (!microbatch.place.synchronises) {
      return;
    }
    if (HasHooks()) {
      Flush(microbatch);
    } else {
      FlushInDefinitionOrder(microbatch);
    }
    if (axes_.sync.overlap) {
      role_.builder.Emit(HostSync{});
    }
  }

  void OptimizerStep() override {
    role_.builder.Emit(Begin{Phase::optimizer, {LoopId{}, -1, 0}});
    if (CastsGradients()) {
      EachBlockWithStores([&](std::int64_t position) { CastGradient(position); });
    }
    EachBlockWithStores([&](std::int64_t position) { MeasureNormOf(position); });
    role_.builder.Emit(HostSync{role_.compute});  // the norm is read on the host
    if (CastsGradients()) {
      EachOwned([&](std::int64_t position, std::int64_t elements) { Unscale(position, elements); });
    }
    optimizer_.Step(role_, {[&](std::int64_t position) { return UpdatesOf(position); },
                            [&](std::int64_t position) { return KeyOfStores(position); }});
    if (CastsGradients()) {
      EachOwned([&](std::int64_t position, std::int64_t) { role_.Free(role_.Ref(cast_gradients_, position)); });
    }
    role_.builder.Emit(End{Phase::optimizer});
    role_.builder.Emit(Begin{Phase::gather, {LoopId{}, -1, 0}});
    gather_->Write();
    FreeStores();
    role_.builder.Emit(End{Phase::gather});
  }

  void DiscardGradients(const Microbatch& last) override {
    if (last.place.reduced || last.place.synchronises) {
      FreeStores();
    }
    if (!last.place.synchronises) {
      gradients_.Free(role_);
    }
  }

  BufferRef Weight(const ParameterAt& at) override { return weights_(role_, at); }

  BufferRef BeginGradient(const Microbatch& microbatch, const ParameterAt& at) override {
    return gradients_.Begin(role_, at, microbatch.place.pending);
  }

  void EndGradient(const Microbatch& microbatch, const ParameterAt& at) override {
    gradients_.End(role_, at, microbatch.place.pending);
    if (microbatch.place.synchronises && HasHooks()) {
      const Parameter& parameter = ParameterOf(role_, at);
      if (held_ > 0 && held_ + parameter.elements > axes_.sync.bucket_elements) {
        Flush(microbatch);
      }
      bucket_.push_back(at);
      held_ += PaddedTo(ranks_, parameter);
    }
  }

  std::vector<std::int64_t> Key(std::int64_t position) const override {
    std::vector<std::int64_t> key{held_};
    AppendMembers(role_, bucket_, position, key);
    return key;
  }

  void Shift(std::int64_t blocks) override { ShiftMembers(role_, bucket_, blocks); }

  BufferRef FinalGradient(const ParameterAt& at) override {
    const std::optional<FlushPlace> place = plan_.FlushOf(at);
    TIDEMARK_CHECK(place.has_value());
    return flush_.Store(*place);
  }

 private:
  /// Stage 1 without overlap attaches no hooks: the end of the backward pass walks the parameters.
  bool HasHooks() const { return axes_.sync.overlap || axes_.shard.gradients; }
  DType MasterType() const { return axes_.precision.master.value_or(axes_.precision.params); }
  bool CastsGradients() const { return axes_.precision.master && MasterType() != axes_.precision.gradients; }

  /// What this rank updates of one block: its part of each parameter.
  std::int64_t Owned(const Block& block) const {
    std::int64_t elements = 0;
    for (const Parameter& parameter : block.parameters) {
      elements += IsTrained(parameter) ? CeilDiv(parameter.elements, ranks_) : 0;
    }
    return elements;
  }

  void DeclareBuffers() {
    const Precision& precision = axes_.precision;
    const auto padded = [&](const Parameter& parameter) {
      return parameter.trainable ? PaddedTo(ranks_, parameter) : parameter.elements;
    };
    Holding whole;
    whole.multiple = ranks_;
    whole.frozen = true;
    weights_.Declare(role_, "weight of", Category::parameter, precision.params, padded, true, true, whole);
    gradients_.Declare(role_, precision.gradients);
    std::vector<std::int64_t> owned;
    std::vector<Holding> parts;
    for (const StageRun& run : role_.stage.runs) {
      owned.push_back(Owned(run.block()));
      parts.push_back(HoldsParts(ranks_, Parts::own, {{run.block().name}}));
      parts.back().masters = true;
    }
    if (precision.master) {
      masters_ = role_.PerBlock("master part of", Category::optimizer, *precision.master, role_.compute, owned, true,
                                true, parts);
    }
    cast_gradients_ = role_.PerBlock("cast gradient part of", Category::gradient, MasterType(), role_.compute, owned,
                                     false, false, parts);
    norm_copies_.Declare(
        role_, "gradient for the norm of", Category::workspace, DType::fp64,
        [&](const Parameter& parameter) { return CeilDiv(parameter.elements, ranks_); }, false, false,
        HoldsParts(ranks_, Parts::own));
    optimizer_.Declare(
        role_,
        [&](std::int64_t position) {
          TensorSizes sizes;
          ForEachTrained(role_, position, [&](const ParameterAt& at) {
            sizes.push_back(CeilDiv(ParameterOf(role_, at).elements, ranks_));
          });
          return sizes;
        },
        OptimizerState::Tensors::parameters,
        [&](std::int64_t position) {
          return std::vector{HoldsParts(ranks_, Parts::own, {{role_.stage.BlockAt(position).name}})};
        });
  }

  void Flush(const Microbatch& microbatch) {
    if (!bucket_.empty()) {
      WriteFlush(microbatch, std::exchange(bucket_, {}));
      held_ = 0;
    }
  }

  void WriteFlush(const Microbatch& microbatch, const FlushMembers& members) {
    flush_.Write(members, !microbatch.place.reduced, [&](const ParameterAt& at) { return gradients_(role_, at); });
  }

  void FlushInDefinitionOrder(const Microbatch& microbatch) {
    EachBlockAlike(
        role_, [&](std::int64_t position) { return KeyOfEnding(position); },
        [&](std::int64_t position) {
          for (const FlushMembers& members : plan_.FlushesThatEndIn(position)) {
            WriteFlush(microbatch, members);
          }
        });
  }

  std::vector<std::int64_t> KeyOfEnding(std::int64_t position) const {
    std::vector<std::int64_t> key;
    for (const FlushMembers& members : plan_.FlushesThatEndIn(position)) {
      plan_.AppendKey(plan_.PlaceOf(members), position, key);
    }
    return key;
  }

  /// zero_grad. Where the own parts came from the communication stream, that stream lets them go.
  void FreeStores() {
    role_.builder.Order(stream_, role_.compute, "zero_grad");
    EachBlockAlike(
        role_, [&](std::int64_t position) { return KeyOfEnding(position); },
        [&](std::int64_t position) {
          for (const FlushMembers& members : plan_.FlushesThatEndIn(position)) {
            role_.Free(flush_.Store(plan_.PlaceOf(members)));
          }
        });
  }

  /// Calls `body(position)` for every block with gradients in the store; it may read them.
  template <class Body>
  void EachBlockWithStores(Body body) {
    EachBlockAlike(
        role_, [&](std::int64_t position) { return KeyOfStores(position); },
        [&](std::int64_t position) {
          if (Owned(role_.stage.BlockAt(position)) > 0) {
            body(position);
          }
        });
  }

  std::vector<std::int64_t> KeyOfStores(std::int64_t position) const {
    std::vector<std::int64_t> key;
    ForEachTrained(role_, position, [&](const ParameterAt& at) {
      if (const std::optional<FlushPlace> place = plan_.FlushOf(at)) {
        plan_.AppendKey(*place, position, key);
      }
    });
    return key;
  }

  template <class Body>
  void EachOwned(Body body) {
    role_.EachBlock([&](std::int64_t position) {
      if (const std::int64_t elements = Owned(role_.stage.BlockAt(position)); elements > 0) {
        body(position, elements);
      }
    });
  }

  std::vector<BufferRef> StoresOf(std::int64_t position) const {
    std::vector<BufferRef> stores;
    for (const FlushPlace& place : plan_.FlushesOf(position)) {
      stores.push_back(flush_.Store(place));
    }
    return stores;
  }

  void CastGradient(std::int64_t position) {
    const BufferRef cast = role_.Ref(cast_gradients_, position);
    const std::int64_t elements = Owned(role_.stage.BlockAt(position));
    role_.Alloc(cast);
    role_.MemoryKernel("cast gradient part", role_.compute, Work::optimizer, StoresOf(position), {cast}, elements,
                       (SizeOf(axes_.precision.gradients) + SizeOf(MasterType())) * elements);
  }

  /// The norm is computed whether or not gradients are clipped, from a copy in double precision, one at a time. The
  /// all-reduce of the one sum is left out.
  void MeasureNormOf(std::int64_t position) {
    ForEachTrained(role_, position, [&](const ParameterAt& at) {
      const std::optional<FlushPlace> place = plan_.FlushOf(at);
      if (!place) {
        return;
      }
      const BufferRef copy = norm_copies_(role_, at);
      const std::int64_t elements = role_.builder.buffer(copy.buffer).elements;
      const Bytes wide = SizeOf(DType::fp64);
      role_.Alloc(copy);
      role_.MemoryKernel("copy for the norm", role_.compute, Work::optimizer, {flush_.Store(*place)}, {copy}, elements,
                         (SizeOf(axes_.precision.gradients) + wide) * elements);
      role_.MemoryKernel("gradient norm", role_.compute, Work::optimizer, {copy}, {}, elements, wide * elements);
      role_.Free(copy);
    });
  }

  void Unscale(std::int64_t position, std::int64_t elements) {
    const BufferRef gradient = role_.Ref(cast_gradients_, position);
    role_.MemoryKernel("unscale gradient part", role_.compute, Work::optimizer, {gradient}, {gradient}, elements,
                       SizeOf(MasterType()) * 2 * elements);
  }

  std::vector<TensorUpdate> UpdatesOf(std::int64_t position) {
    const std::int64_t elements = Owned(role_.stage.BlockAt(position));
    if (elements == 0) {
      return {};
    }
    std::vector<BufferRef> updated;
    if (axes_.precision.master) {
      updated.push_back(role_.Ref(masters_, position));
    } else {
      ForEachTrained(role_, position, [&](const ParameterAt& at) { updated.push_back(Weight(at)); });
    }
    const std::vector<BufferRef> gradients =
        CastsGradients() ? std::vector<BufferRef>{role_.Ref(cast_gradients_, position)} : StoresOf(position);
    return {{0, elements, gradients, updated, SizeOf(MasterType()) * 3}};
  }

  /// What this rank's part of a parameter is gathered from.
  BufferRef Updated(const ParameterAt& at) {
    return axes_.precision.master ? role_.Ref(masters_, at.position) : Weight(at);
  }

  Role& role_;
  const Axes& axes_;
  std::int64_t ranks_;
  StreamId stream_;
  GroupId group_;
  FlushPlan plan_;
  ZeroFlush flush_;
  std::optional<UpdatedGather> gather_;
  AutogradGradients gradients_;
  ParameterTable weights_, norm_copies_;  ///< weights are padded where N does not divide them
  RunBuffers masters_, cast_gradients_;
  OptimizerState optimizer_;

  // Under way in a synchronised backward pass:
  FlushMembers bucket_;
  std::int64_t held_ = 0;  ///< elements in it, padding counted
};

}  // namespace

std::unique_ptr<DataParallel> MakeLowLevelZero(Role& role) { return std::make_unique<LowLevelZero>(role); }

}  // namespace tidemark
