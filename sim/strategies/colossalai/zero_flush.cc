// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/colossalai/zero_flush.h"

#include <string>

namespace tidemark {

ZeroFlush::ZeroFlush(Role& role, StreamId stream, GroupId group, std::int64_t ranks, const FlushPlan& plan)
    : role_(role), stream_(stream), group_(group), ranks_(ranks), plan_(plan) {
  const Precision& precision = role.job.axes.precision;
  padded_.Declare(
      role, "padded gradient of", Category::bucket, precision.gradients,
      [&](const Parameter& parameter) { return PaddedTo(ranks_, parameter); }, false, false,
      HoldsParts(ranks, Parts::all));
  for (const FlushPlan::Shape& shape : plan.shapes()) {
    const std::string number = std::to_string(flat_.size());
    const auto declare = [&](const char* what, Category category, DType dtype, Parts parts, StreamId born) {
      return role_.builder.AddBuffer({.name = what + number,
                                      .category = category,
                                      .dtype = dtype,
                                      .elements = parts == Parts::own ? shape.elements / ranks_ : shape.elements,
                                      .extents = {role_.stage.runs[shape.run].count, 1},
                                      .stream = born,
                                      .holds = {HoldsParts(ranks_, parts, shape.members)}});
    };
    const Parts all = Parts::all, result = Stage2() ? Parts::own : all;
    const StreamId born = Stage2() || Casts() ? Beside() : role.compute;
    flat_.push_back(declare("flat gradients ", Category::bucket, precision.gradients, all, role.compute));
    wire_.push_back(declare("flat gradients to send ", Category::bucket, precision.reduce, all, Beside()));
    received_.push_back(declare("received gradients ", Category::bucket, precision.reduce, result, Beside()));
    result_.push_back(declare("reduced gradients ", Category::bucket, precision.gradients, result, born));
    store_.push_back(declare("stored gradients ", Category::gradient, precision.gradients, result, born));
  }
}

/// The bucket pads a parameter that N does not divide, by a copy; `.grad` is gone then.
BufferRef ZeroFlush::Pad(const ParameterAt& at, const BufferRef& gradient) {
  const Parameter& parameter = ParameterOf(role_, at);
  if (parameter.elements % ranks_ == 0) {
    return gradient;
  }
  const BufferRef padded = padded_(role_, at);
  role_.Alloc(padded);
  role_.CopyKernel("pad gradient", role_.compute, gradient, padded);
  role_.Free(gradient);
  return padded;
}

void ZeroFlush::Reduce(const FlushPlace& place, bool first, const std::vector<BufferRef>& gradients) {
  const BufferRef store = At(store_, place);
  const BufferRef result = first ? store : At(result_, place);
  const bool flat_stays = !Stage2() && !Casts();
  const BufferRef flat = flat_stays ? result : At(flat_, place);
  const Buffer& buffer = role_.builder.buffer(flat.buffer);
  role_.Alloc(flat);
  role_.MemoryKernel("flatten gradients", role_.compute, Work::compute, gradients, {flat}, buffer.elements,
                     buffer.bytes() * 2);
  role_.builder.Emit(Scale{role_.builder.Named("divide by ranks"), Rational(1, ranks_), role_.compute, flat});
  if (Overlaps()) {
    role_.builder.Order(stream_, role_.compute, "bucket ready");
  }
  BufferRef carrier = flat;
  if (Casts()) {
    carrier = At(wire_, place);
    role_.Alloc(carrier);
    role_.CopyKernel("cast bucket", Beside(), flat, carrier);
    Drop(flat);
  }
  BufferRef reduced = carrier;
  if (Stage2()) {
    reduced = Casts() ? At(received_, place) : result;
    role_.Alloc(reduced);
    ReduceScatter(carrier, reduced);
  } else {
    AllReduce(carrier);
  }
  if (Casts()) {
    role_.Alloc(result);
    role_.CopyKernel("cast reduced bucket", Beside(), reduced, result);
    Drop(reduced);
  }
  if (!first) {
    role_.AddKernel("add to gradient store", Beside(), result, store);
    Drop(result);
  }
  for (const BufferRef& gradient : gradients) {
    role_.Free(gradient);
  }
  if (Stage2()) {
    Drop(carrier);
  }
}

void ZeroFlush::AllReduce(const BufferRef& carrier) {
  if (ranks_ > 1) {
    Communicate({role_.builder.Named("reduce bucket"),
                 CollectiveKind::all_reduce,
                 Reduction::sum,
                 Rational(1),
                 group_,
                 role_.job.axes.precision.reduce,
                 role_.builder.buffer(carrier.buffer).elements,
                 stream_,
                 {carrier},
                 {carrier}});
  }
}

void ZeroFlush::ReduceScatter(const BufferRef& carrier, const BufferRef& received) {
  if (ranks_ == 1) {
    role_.CopyKernel("copy bucket", Beside(), carrier, received);
    return;
  }
  Communicate({role_.builder.Named("scatter bucket"),
               CollectiveKind::reduce_scatter,
               Reduction::sum,
               Rational(1),
               group_,
               role_.job.axes.precision.reduce,
               role_.builder.buffer(carrier.buffer).elements,
               stream_,
               {carrier},
               {received}});
}

void ZeroFlush::Communicate(Collective collective) {
  if (!Overlaps()) {
    role_.builder.Order(stream_, role_.compute, "bucket ready");
  }
  role_.builder.Emit(std::move(collective));
  if (!Overlaps()) {
    role_.builder.Order(role_.compute, stream_, "bucket reduced");
  }
}

}  // namespace tidemark
