// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/fsdp1/flat_sharded_buffers.h"

namespace tidemark {

FlatLayout::FlatLayout(Role& the_role)
    : role(the_role),
      precision(the_role.job.axes.precision),
      master(precision.master.value_or(precision.params)),
      replicas(the_role.job.axes.shard.replicas),
      shards(the_role.job.layout.dp / replicas),
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

std::vector<std::int64_t> FlatLayout::Sizes(Size size, bool trained_only) const {
  std::vector<std::int64_t> sizes;
  for (const FlatUnit& unit : units.sizes) {
    const std::int64_t elements = size == Size::whole    ? unit.elements
                                  : size == Size::padded ? unit.padded
                                                         : unit.padded / shards;
    sizes.push_back(trained_only && !unit.trained ? 0 : elements);
  }
  return sizes;
}

void FlatLayout::DeclareParameters() {
  shard = Declare("shard of", Category::parameter, master, role.compute, Sizes(Size::shard, false), true);
  const StreamId full_stream = whole() ? cast_stream : gather_stream;
  if (!whole() && casts_parameters()) {
    cast = Declare("cast shard of", Category::bucket, precision.params, cast_stream, Sizes(Size::shard, false));
  }
  if (!whole() || casts_parameters()) {
    full = Declare("unsharded", Category::parameter, precision.params, full_stream, Sizes(Size::padded, false));
  }
}

void FlatLayout::DeclareGradients() {
  gradients.Declare(role, "gradient of", Category::gradient, precision.gradients, ParameterTable::Of::trained, false,
                    false);
  const std::vector<std::int64_t> flat = Sizes(Size::whole, true);
  const std::vector<std::int64_t> parts = Sizes(Size::shard, true);
  flat_gradient = Declare("flat gradient of", Category::gradient, precision.gradients, role.compute, flat);
  fresh_gradient = Declare("new flat gradient of", Category::gradient, precision.gradients, role.compute, flat);
  widened = Declare("cast gradient of", Category::bucket, precision.reduce, scatter_stream, flat);
  padded = Declare("padded gradient of", Category::bucket, precision.reduce, scatter_stream, Sizes(Size::padded, true));
  scattered = Declare("scattered gradient of", Category::bucket, precision.reduce, scatter_stream, parts);
  const StreamId made_on = replicas > 1 && casts_shards() ? replica_stream : scatter_stream;
  if (!whole() && casts_shards()) {
    cast_gradient = Declare("cast sharded gradient of", Category::bucket, master, made_on, parts);
  }
  sharded_gradient = Declare("sharded gradient of", Category::gradient, master, made_on, parts);
}

}  // namespace tidemark
