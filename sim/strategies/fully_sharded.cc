// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/fully_sharded.h"

#include <algorithm>
#include <string>

#include "sim/strategies/optimizer.h"
#include "sim/strategies/unit_size.h"

namespace tidemark {
namespace {

class FullySharded : public DataParallel {
 public:
  explicit FullySharded(Role& role)
      : role_(role),
        axes_(role.job.axes),
        shards_(role.job.layout.dp / axes_.shard.replicas),
        units_(MeasureUnits(role.stage, shards_)) {
    gather_stream_ = role.builder.AddStream("all_gather", StreamKind::collective);
    scatter_stream_ = role.builder.AddStream("reduce_scatter", StreamKind::collective);
    group_ = role.builder.AddGroup(
        {"dp", shards_, std::clamp<std::int64_t>(role.job.machine.devices_per_node / role.job.layout.tp, 1, shards_)});
    DeclareBuffers();
  }

  void BeforeForward(const Microbatch& microbatch, std::int64_t position) override {
    if (Unit(position) != position || !GathersInForward(microbatch)) {
      return;
    }
    Gather(position);
    FreeGathered();
    Unpack(position);
    gathered_ = position;
  }

  void AfterForward(const Microbatch&, std::int64_t position) override {
    if (Unit(position) == position && ReshardsAfterForward(position)) {
      role_.Free(role_.Ref(full_, position));
    }
  }

  void EndForward(const Microbatch&) override { FreeGathered(); }

  void BeforeBackward(const Microbatch&, std::int64_t position) override {
    if (Unit(position) == position && ReshardsAfterForward(position)) {
      if (prefetched_ != position) {
        Gather(position);
      }
      gathered_ = position;
      prefetched_.reset();
      Unpack(position);
      FreeGathered();
    }
    if (position > 0 && Unit(position - 1) == position - 1 && ReshardsAfterForward(position - 1) && shards_ > 1) {
      Gather(position - 1);
      prefetched_ = position - 1;
    }
  }

  void AfterBackward(const Microbatch& microbatch, std::int64_t position) override {
    if (Unit(position) != position) {
      return;
    }
    const bool accumulated = microbatch.place.pending;
    if (accumulated) {
      ForEachGradient(position, [&](const ParameterAt& at) { AddToAccumulator(at); });
    }
    if (axes_.shard.reshard_after_backward || microbatch.place.last) {
      role_.Free(role_.Ref(full_, position));
    }
    if (Scatters(microbatch)) {
      Scatter(microbatch, position);
    } else if (!accumulated && !AccumulatesInPlace()) {
      ForEachGradient(position, [&](const ParameterAt& at) { StartAccumulator(at); });
    }
  }

  void EndBackward(const Microbatch&) override { FreeScattered(); }

  /// All updates first, then zero_grad: in the first step moments appear beside a full set of gradients.
  void OptimizerStep() override {
    role_.builder.Emit(Begin{Phase::optimizer, {LoopId{}, -1, 0}});
    EachTrainedUnit([&](std::int64_t position, std::int64_t elements) {
      optimizer_.Update(role_, position, elements, {role_.Ref(sharded_gradient_, position)},
                        {role_.Ref(shard_, position)}, SizeOf(MasterType()) * 3);
    });
    role_.builder.Order(scatter_stream_, role_.compute, "updated");
    EachTrainedUnit([&](std::int64_t position, std::int64_t) { role_.Free(role_.Ref(sharded_gradient_, position)); });
    role_.builder.Emit(End{Phase::optimizer});
  }

  void DiscardGradients(const Microbatch& last) override {
    EachTrainedUnit([&](std::int64_t position, std::int64_t) {
      if (last.place.reduced || last.place.synchronises) {
        role_.Free(role_.Ref(sharded_gradient_, position));
      }
      if (!last.place.synchronises) {
        ForEachGradient(position, [&](const ParameterAt& at) { role_.Free(Accumulator(at)); });
      }
    });
  }

  BufferRef Weight(const ParameterAt& at) override { return role_.Ref(full_, Unit(at.position)); }

  BufferRef BeginGradient(const Microbatch& microbatch, const ParameterAt& at) override {
    const bool starts = !microbatch.place.pending && !microbatch.place.synchronises;
    const BufferRef ref = AccumulatesInPlace() && starts ? Accumulator(at) : Gradient(at);
    role_.Alloc(ref);
    return ref;
  }
  void EndGradient(const Microbatch&, const ParameterAt&) override {}

  std::vector<std::int64_t> Key(std::int64_t position) const override {
    return {role_.KeyOf(gathered_, position), role_.KeyOf(prefetched_, position), role_.KeyOf(scattering_, position)};
  }
  void Shift(std::int64_t blocks) override {
    const std::size_t run = role_.stage.RunOf(role_.current());
    for (std::optional<std::int64_t>* remembered : {&gathered_, &prefetched_, &scattering_}) {
      if (*remembered && role_.stage.RunOf(**remembered) == run) {
        **remembered += blocks;
      }
    }
  }

  BufferRef FinalGradient(const ParameterAt& at) override { return role_.Ref(sharded_gradient_, Unit(at.position)); }

 private:
  std::vector<std::int64_t> Sizes(std::int64_t UnitSize::*member, std::int64_t divisor) const {
    std::vector<std::int64_t> sizes;
    for (const UnitSize& size : units_.sizes) {
      sizes.push_back(size.*member / divisor);
    }
    return sizes;
  }

  void DeclareBuffers() {
    const Precision& precision = axes_.precision;
    const StreamId compute = role_.compute;
    const auto padded = &UnitSize::padded;
    const auto trained = &UnitSize::trainable_padded;
    shard_ = role_.PerBlock("shard of", Category::parameter, MasterType(), compute, Sizes(padded, shards_), true, true);
    optimizer_.Declare(role_, Sizes(trained, shards_));
    cast_ = role_.PerBlock("cast shard of", Category::bucket, precision.params, gather_stream_, Sizes(padded, shards_));
    gathered_buffer_ = role_.PerBlock("gathered", Category::bucket, precision.params, gather_stream_, Sizes(padded, 1));
    // Without a group there is nothing to gather: parameters are copied in the dtype they are stored in.
    full_ = role_.PerBlock("unsharded", Category::parameter, shards_ == 1 ? MasterType() : precision.params, compute,
                           Sizes(&UnitSize::elements, 1));
    packed_ = role_.PerBlock("packed gradients of", Category::bucket, precision.gradients, compute, Sizes(trained, 1));
    scatter_in_ = role_.PerBlock("scatter input of", Category::bucket, precision.reduce, compute, Sizes(trained, 1));
    scatter_out_ = role_.PerBlock("scatter output of", Category::bucket, precision.reduce, scatter_stream_,
                                  Sizes(trained, shards_));
    sharded_gradient_ = role_.PerBlock("sharded gradient of", Category::gradient, MasterType(), scatter_stream_,
                                       Sizes(trained, shards_));
    for (const BlockRun& run : role_.stage.runs) {
      gradients_.emplace_back();
      accumulators_.emplace_back();
      for (const Parameter& parameter : run.block.parameters) {
        const std::string name = run.block.name + "." + parameter.name;
        const auto declare = [&](const char* what, Category category, DType dtype) {
          return role_.builder.AddBuffer(
              {what + name, category, dtype, parameter.elements, {run.count, 1}, compute, Place::device});
        };
        gradients_.back().push_back(declare("gradient of ", Category::gradient, precision.gradients));
        accumulators_.back().push_back(declare("accumulated gradient of ", Category::accumulator, precision.reduce));
      }
    }
  }

  DType MasterType() const { return axes_.precision.master.value_or(axes_.precision.params); }
  bool Scatters(const Microbatch& microbatch) const { return microbatch.place.synchronises; }
  /// Without a wider reduce dtype the first microbatch's gradient itself is what later ones are added to.
  bool AccumulatesInPlace() const { return axes_.precision.reduce == axes_.precision.gradients; }
  bool GathersInForward(const Microbatch& microbatch) const {
    return microbatch.first() || axes_.shard.reshard_after_backward;
  }
  bool ReshardsAfterForward(std::int64_t position) const {
    return axes_.shard.reshard_after_forward && position != Unit(role_.stage.blocks - 1);
  }
  /// The block whose position stands for the unit of `position`.
  std::int64_t Unit(std::int64_t position) const {
    return units_.tied && position == role_.stage.blocks - 1 ? 0 : position;
  }
  const UnitSize& SizeAt(std::int64_t position) const { return units_.sizes[role_.stage.RunOf(Unit(position))]; }

  BufferRef Gradient(const ParameterAt& at) const { return Of(gradients_, at); }
  BufferRef Accumulator(const ParameterAt& at) const { return Of(accumulators_, at); }
  BufferRef Of(const std::vector<std::vector<BufferId>>& buffers, const ParameterAt& at) const {
    return {buffers[role_.stage.RunOf(at.position)][at.parameter], {role_.At(at.position), Index{}}};
  }

  template <class Visit>
  void ForEachGradient(std::int64_t unit, Visit visit) {
    for (std::int64_t position : {unit, role_.stage.blocks - 1}) {
      if (Unit(position) != unit || (position != unit && !units_.tied)) {
        continue;
      }
      const std::vector<Parameter>& parameters = role_.stage.BlockAt(position).parameters;
      for (std::uint32_t i = 0; i < parameters.size(); ++i) {
        if (parameters[i].trainable && !parameters[i].tied) {
          visit(ParameterAt{position, i});
        }
      }
      if (position == role_.stage.blocks - 1) {
        return;
      }
    }
  }

  /// Calls `body(position, elements of one shard)` for every unit that has something to train, as one loop per run.
  template <class Body>
  void EachTrainedUnit(Body body) {
    role_.EachBlock([&](std::int64_t position) {
      const std::int64_t elements = SizeAt(position).trainable_padded / shards_;
      if (elements > 0 && Unit(position) == position) {
        body(position, elements);
      }
    });
  }

  /// Casts the shard and gathers it, on the gather stream.
  void Gather(std::int64_t position) {
    if (shards_ == 1) {
      return;
    }
    const BufferRef shard = role_.Ref(shard_, position);
    const BufferRef gathered = role_.Ref(gathered_buffer_, position);
    const UnitSize& size = SizeAt(position);
    const bool casts = axes_.precision.params != MasterType();
    const BufferRef input = casts ? role_.Ref(cast_, position) : shard;
    if (casts) {
      role_.Alloc(input);
    }
    role_.Alloc(gathered);
    if (casts) {
      const std::int64_t elements = size.padded / shards_;
      role_.MemoryKernel("cast shard", gather_stream_, Work::compute, {shard}, {input}, elements,
                         (SizeOf(MasterType()) + SizeOf(axes_.precision.params)) * elements);
    }
    role_.builder.Emit(Collective{role_.builder.Named("gather parameters"),
                                  CollectiveKind::all_gather,
                                  Reduction::none,
                                  Rational(1),
                                  group_,
                                  axes_.precision.params,
                                  size.padded,
                                  gather_stream_,
                                  {input},
                                  {gathered}});
    if (casts) {
      role_.Free(input);
    }
  }

  /// Copies gathered parameters to where kernels read them.
  void Unpack(std::int64_t position) {
    const BufferRef full = role_.Ref(full_, position);
    const std::int64_t elements = SizeAt(position).elements;
    role_.Alloc(full);
    if (shards_ == 1) {
      role_.MemoryKernel("copy parameters", role_.compute, Work::compute, {role_.Ref(shard_, position)}, {full},
                         elements, SizeOf(MasterType()) * 2 * elements);
      return;
    }
    role_.builder.Order(role_.compute, gather_stream_, "gathered");
    role_.MemoryKernel("unpack parameters", role_.compute, Work::compute, {role_.Ref(gathered_buffer_, position)},
                       {full}, elements, SizeOf(axes_.precision.params) * 2 * elements);
    role_.builder.Emit(Record{role_.builder.Event("unpacked"), role_.compute});
  }

  /// The gather buffer goes back once it has been copied out. In the forward pass that is only said after the next
  /// unit's buffer exists, so that the next copy-in cannot land in it.
  void FreeGathered() {
    if (gathered_ && shards_ > 1) {
      role_.builder.Emit(Wait{role_.builder.Event("unpacked"), gather_stream_});
      role_.Free(role_.Ref(gathered_buffer_, *gathered_));
    }
    gathered_.reset();
  }

  void AddToAccumulator(const ParameterAt& at) {
    const BufferRef gradient = Gradient(at), accumulator = Accumulator(at);
    const Buffer& buffer = role_.builder.buffer(accumulator.buffer);
    role_.MemoryKernel("accumulate gradient", role_.compute, Work::compute, {gradient, accumulator}, {accumulator},
                       buffer.elements, buffer.bytes() * 2 + SizeOf(axes_.precision.gradients) * buffer.elements);
    role_.Free(gradient);
  }

  void StartAccumulator(const ParameterAt& at) {
    const BufferRef gradient = Gradient(at), accumulator = Accumulator(at);
    const Buffer& buffer = role_.builder.buffer(accumulator.buffer);
    role_.Alloc(accumulator);
    role_.MemoryKernel("upcast gradient", role_.compute, Work::compute, {gradient}, {accumulator}, buffer.elements,
                       buffer.bytes() + SizeOf(axes_.precision.gradients) * buffer.elements);
    role_.Free(gradient);
  }

  /// One reduce-scatter is under way at most: the compute stream waits for the previous unit's before it packs this
  /// one.
  void Scatter(const Microbatch& microbatch, std::int64_t position) {
    const std::int64_t elements = SizeAt(position).trainable_padded;
    if (elements == 0) {
      return;
    }
    FreeScattered();
    std::vector<BufferRef> gradients;
    const bool from_accumulators = microbatch.place.pending;
    ForEachGradient(position, [&](const ParameterAt& at) {
      gradients.push_back(from_accumulators ? Accumulator(at) : Gradient(at));
    });
    const BufferRef input = role_.Ref(scatter_in_, position);
    Pack(gradients, from_accumulators ? axes_.precision.reduce : axes_.precision.gradients, elements, position);
    for (const BufferRef& gradient : gradients) {
      role_.Free(gradient);
    }
    role_.builder.Order(scatter_stream_, role_.compute, "gradients packed");
    const bool first = !microbatch.place.reduced;
    const bool in_place = first && axes_.precision.reduce == MasterType();
    const BufferRef shard = role_.Ref(sharded_gradient_, position);
    const BufferRef output = in_place ? shard : role_.Ref(scatter_out_, position);
    role_.Alloc(output);
    Reduce(elements, input, output);
    if (!in_place) {
      TakeShard(first, elements / shards_, output, shard);
    }
    role_.builder.Emit(Record{role_.builder.Event("gradients scattered"), scatter_stream_});
    scattering_ = position;
  }

  /// Copies gradients into the scatter's input. Widening happens on the way; narrowing needs a packed copy of its own
  /// first.
  void Pack(const std::vector<BufferRef>& gradients, DType from, std::int64_t elements, std::int64_t position) {
    const BufferRef input = role_.Ref(scatter_in_, position);
    const DType to = axes_.precision.reduce;
    const bool narrows = SizeOf(to) < SizeOf(from);
    const BufferRef packed = narrows ? role_.Ref(packed_, position) : input;
    role_.Alloc(packed);
    const DType packed_type = narrows ? from : to;
    role_.MemoryKernel("pack gradients", role_.compute, Work::compute, gradients, {packed}, elements,
                       (SizeOf(from) + SizeOf(packed_type)) * elements);
    if (narrows) {
      role_.Alloc(input);
      role_.MemoryKernel("narrow gradients", role_.compute, Work::compute, {packed}, {input}, elements,
                         (SizeOf(from) + SizeOf(to)) * elements);
      role_.Free(packed);
    }
  }

  void Reduce(std::int64_t elements, const BufferRef& input, const BufferRef& output) {
    if (shards_ == 1) {
      role_.MemoryKernel("copy gradients", scatter_stream_, Work::compute, {input}, {output}, elements,
                         SizeOf(axes_.precision.reduce) * 2 * elements);
      return;
    }
    role_.builder.Emit(Collective{role_.builder.Named("scatter gradients"),
                                  CollectiveKind::reduce_scatter,
                                  Reduction::avg,
                                  Rational(1),
                                  group_,
                                  axes_.precision.reduce,
                                  elements,
                                  scatter_stream_,
                                  {input},
                                  {output}});
  }

  void TakeShard(bool first, std::int64_t elements, const BufferRef& output, const BufferRef& shard) {
    if (first) {
      role_.Alloc(shard);
    }
    std::vector<BufferRef> reads{output};
    if (!first) {
      reads.push_back(shard);
    }
    role_.MemoryKernel(first ? "cast sharded gradient" : "add sharded gradient", scatter_stream_, Work::compute, reads,
                       {shard}, elements,
                       (SizeOf(axes_.precision.reduce) + SizeOf(MasterType()) * (first ? 1 : 2)) * elements);
    role_.Free(output);
  }

  void FreeScattered() {
    if (scattering_) {
      role_.builder.Emit(Wait{role_.builder.Event("gradients scattered"), role_.compute});
      role_.Free(role_.Ref(scatter_in_, *scattering_));
    }
    scattering_.reset();
  }

  Role& role_;
  const Axes& axes_;
  std::int64_t shards_;
  Units units_;
  StreamId gather_stream_, scatter_stream_;
  GroupId group_;
  RunBuffers shard_, cast_, gathered_buffer_, full_, packed_, scatter_in_, scatter_out_, sharded_gradient_;
  std::vector<std::vector<BufferId>> gradients_, accumulators_;  ///< per run and parameter
  OptimizerState optimizer_;

  // Under way, as positions:
  std::optional<std::int64_t> gathered_;    ///< gather buffer not given back yet
  std::optional<std::int64_t> prefetched_;  ///< gathered ahead in the backward pass
  std::optional<std::int64_t> scattering_;  ///< reduce-scatter whose input is still held
};

}  // namespace

std::unique_ptr<DataParallel> MakeFullySharded(Role& role) { return std::make_unique<FullySharded>(role); }

}  // namespace tidemark
