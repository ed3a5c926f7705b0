// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/fsdp1/flat_sharded_buffers.h"

namespace tidemark {

FlatLayout::FlatLayout(Role& the_role)
    : role(the_role),
      precision(the_role.job.axes.precision),
      master(precision.master.value_or(precision.params)),
      replicas(the_role.job.axes.shard.replicas),
      shards(the_role.job.layout.GradientRanks() / replicas),
      units(MeasureFlatUnits(the_role.stage.runs, shards)) {
  if (units.root < role.stage.runs.size()) {
    root = role.stage.first[units.root];
  }
  for (std::int64_t position = role.stage.blocks; position-- > 0;) {
    bool trains = false;
    ForEachTrained(role, position, [&](const ParameterAt&) { trains = true; });
    root_end = !IsLayer(position) && trains ? position : root_end;
  }
  cast_stream = role.builder.AddStream("pre_unshard", StreamKind::copy);
  gather_stream = role.builder.AddStream("unshard", StreamKind::collective);
  scatter_stream = role.builder.AddStream("post_backward", StreamKind::collective);
  group = role.AddGroup("dp", shards, role.job.layout.tp);
  if (replicas > 1) {
    replica_stream = role.builder.AddStream("all_reduce", StreamKind::collective);
    replica_group = role.AddGroup("replicas", replicas, role.job.layout.tp * shards);
  }
  DeclareParameters();
  DeclareGradients();
}

std::int64_t FlatLayout::LayerBelow(std::int64_t position) const {
  do {
    --position;
  } while (position >= 0 && !IsLayer(position));
  return position;
}

std::vector<std::int64_t> FlatLayout::Sizes(Size size, Of of) const {
  std::vector<std::int64_t> sizes;
  for (const FlatUnit& unit : units.sizes) {
    const std::int64_t elements = size == Size::whole    ? unit.elements
                                  : size == Size::padded ? unit.padded
                                                         : unit.padded / shards;
    sizes.push_back(of == Of::trained && !unit.trained ? 0 : elements);
  }
  return sizes;
}

/// A unit is trained or frozen as a whole, so what is frozen need not be told apart. What is whole is cut as well: it
/// is one tensor.
std::vector<Holding> FlatLayout::Holds(Size size, bool masters) const {
  std::vector<Holding> holds(role.stage.runs.size());
  for (std::size_t run = 0; run < holds.size(); ++run) {
    Holding& holding = holds[run];
    holding.cut = Cut::together;
    holding.ranks = size == Size::whole ? 1 : shards;
    holding.parts = size == Size::shard ? Parts::own : Parts::all;
    holding.frozen = true;
    holding.masters = masters;
    for (std::size_t other = 0; other < holds.size(); ++other) {
      const bool together = run == other || (run == units.root && !units.layers[other]);
      if (together) {
        const std::int64_t count = units.layers[other] ? 1 : role.stage.runs[other].count;
        holding.of.push_back({role.stage.runs[other].block().name, 0, count});
      }
    }
  }
  return holds;
}

void FlatLayout::DeclareParameters() {
  shard = Declare("shard of", Category::parameter, master, role.compute, Size::shard, Of::all, true, true);
  const StreamId full_stream = whole() ? cast_stream : gather_stream;
  if (!whole() && casts_parameters()) {
    cast = Declare("cast shard of", Category::bucket, precision.params, cast_stream, Size::shard, Of::all);
  }
  if (!whole() || casts_parameters()) {
    full = Declare("unsharded", Category::parameter, precision.params, full_stream, Size::padded, Of::all);
  }
}

void FlatLayout::DeclareGradients() {
  const auto declare = [this](const char* name, Category category, DType dtype, StreamId stream, Size size,
                              bool masters = false) {
    return Declare(name, category, dtype, stream, size, Of::trained, masters);
  };
  gradients.Declare(role, "gradient of", Category::gradient, precision.gradients, ParameterTable::Of::trained, false,
                    false);
  flat_gradient = declare("flat gradient of", Category::gradient, precision.gradients, flat_stream(), Size::whole);
  fresh_gradient = declare("new flat gradient of", Category::gradient, precision.gradients, flat_stream(), Size::whole);
  widened = declare("cast gradient of", Category::bucket, precision.reduce, scatter_stream, Size::whole);
  padded = declare("padded gradient of", Category::bucket, precision.reduce, scatter_stream, Size::padded);
  scattered = declare("scattered gradient of", Category::bucket, precision.reduce, scatter_stream, Size::shard);
  const StreamId made_on = replicas > 1 && casts_shards() ? replica_stream : scatter_stream;
  if (!whole() && casts_shards()) {
    cast_gradient = declare("cast sharded gradient of", Category::bucket, master, made_on, Size::shard);
  }
  sharded_gradient = declare("sharded gradient of", Category::gradient, master, made_on, Size::shard, true);
}

}  // namespace tidemark
