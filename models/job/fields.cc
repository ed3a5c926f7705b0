// SPDX-License-Identifier: Apache-2.0
#include "models/job/fields.h"

#include <algorithm>
#include <array>

#include "models/job/fields_optimizer_step.h"
#include "models/machine/presets.h"

namespace tidemark {
namespace {

// Bounds of single numbers. They are generous; models/job/validate.cc refuses what overflows in combination.
constexpr WholeNumber kRanks{1, 1 << 20};
constexpr WholeNumber kSharing{1, 1 << 10};  // every step of a ring stands in every layer's program
constexpr WholeNumber kCount{1, 1 << 24};
constexpr WholeNumber kUnits{0, 64};

/// Master weights: a dtype, or "none".
struct MasterDType {
  Result<std::optional<DType>> Read(const ConfigValue& value) const {
    if (value.text == "none") {
      return std::optional<DType>();
    }
    TIDEMARK_ASSIGN(const DType dtype, FloatingPoint().Read(value));
    return std::optional<DType>(dtype);
  }
  std::string Write(std::optional<DType> dtype) const { return dtype ? std::string(Name(*dtype)) : "none"; }
  std::string Example() const { return "fp32"; }
  std::vector<std::string> Values() const {
    std::vector<std::string> names = FloatingPoint().Values();
    names.insert(names.begin(), "none");
    return names;
  }
};

/// The text of an expression over `i` and `steps`, which the strategies parse; none is null.
struct ExpressionText {
  Result<std::string> Read(const ConfigValue& value) const { return Word{}.Read(value); }
  std::string Write(const std::string& text) const { return text.empty() ? "null" : QuoteYaml(text); }
  std::string Example() const { return "(i + 1) % steps == 0"; }
};

/// A list of positive whole numbers, "[20, 20, 20, 20]".
struct WholeNumbers {
  Result<std::vector<std::int64_t>> Read(const ConfigValue& value) const {
    if (value.kind != ConfigValue::Kind::list) {
      return BadInput(fmt::format("expected a list of whole numbers, found {}", Describe(value)));
    }
    std::vector<std::int64_t> numbers;
    for (const ConfigValue& item : value.items) {
      TIDEMARK_ASSIGN(const std::int64_t number, kRanks.Read(item));
      numbers.push_back(number);
    }
    return numbers;
  }
  std::string Write(const std::vector<std::int64_t>& numbers) const {
    return numbers.empty() ? "null" : fmt::format("[{}]", fmt::join(numbers, ", "));
  }
  std::string Example() const { return "[20, 20, 20, 20]"; }
};

/// A positive number; 0 is null.
struct CountOrNull {
  Result<std::int64_t> Read(const ConfigValue& value) const { return kCount.Read(value); }
  std::string Write(std::int64_t number) const { return number == 0 ? "null" : kCount.Write(number); }
  std::string Example() const { return "8"; }
};

/// The same; 0 is not written.
struct GivenCount : CountOrNull {
  std::string Write(std::int64_t number) const { return number == 0 ? "" : kCount.Write(number); }
};

using Fields = std::vector<Field<Job>>;

Choice<LastWindow::Policy> LastWindowPolicy() {
  using Policy = LastWindow::Policy;
  return {{{"carry-over", Policy::carry_over},
           {"drop", Policy::drop},
           {"rescaled", Policy::rescaled},
           {"not-rescaled", Policy::not_rescaled}}};
}

Choice<Sync::Executable> SyncExecutable() {
  using Executable = Sync::Executable;
  return {{{"skip-channels", Executable::skip_channels},
           {"two", Executable::two},
           {"branch", Executable::branch},
           {"separate", Executable::separate}}};
}

void AddSizes(Fields& fields) {
  using J = Job;
  fields.insert(
      fields.end(),
      {FieldAt<J>(
           "micro_batch_size", [](J & j) -> auto& { return j.micro_batch_size; }, kCount),
       FieldAt<J>(
           "accumulation_steps", [](J & j) -> auto& { return j.accumulation_steps; }, kCount),
       FieldAt<J>(
           "pipeline_microbatches", [](J & j) -> auto& { return j.pipeline_microbatches; }, CountOrNull{}),
       FieldAt<J>(
           "last_window.microbatches", [](J & j) -> auto& { return j.last_window.microbatches; },
           WholeNumber{0, 1 << 24}),
       FieldAt<J>(
           "last_window.policy", [](J & j) -> auto& { return j.last_window.policy; }, LastWindowPolicy()),
       FieldAt<J>(
           "layout.dp", [](J & j) -> auto& { return j.layout.dp; }, kRanks),
       FieldAt<J>(
           "layout.tp", [](J & j) -> auto& { return j.layout.tp; }, kRanks),
       FieldAt<J>(
           "layout.sp", [](J & j) -> auto& { return j.layout.sp; }, Truth{}),
       FieldAt<J>(
           "layout.cp", [](J & j) -> auto& { return j.layout.cp; }, kSharing),
       FieldAt<J>(
           "layout.pp", [](J & j) -> auto& { return j.layout.pp; }, kRanks),
       FieldAt<J>(
           "layout.vpp", [](J & j) -> auto& { return j.layout.vpp; }, kRanks),
       FieldAt<J>(
           "layout.ep", [](J & j) -> auto& { return j.layout.ep; }, kRanks),
       FieldAt<J>(
           "layout.etp", [](J & j) -> auto& { return j.layout.etp; }, GivenCount{}),
       FieldAt<J>(
           "layout.layers_per_stage", [](J & j) -> auto& { return j.layout.layers_per_stage; }, WholeNumbers{})});
}

void AddSync(Fields& fields) {
  using J = Job;
  using When = Sync::When;
  const Choice<CollectiveKind> collective{
      {{"all_reduce", CollectiveKind::all_reduce}, {"reduce_scatter", CollectiveKind::reduce_scatter}}};
  fields.insert(
      fields.end(),
      {FieldAt<J>(
           "sync.when", [](J & j) -> auto& { return j.axes.sync.when; },
           Choice<When>{{{"every", When::every}, {"last", When::last}, {"custom", When::custom}}}),
       FieldAt<J>(
           "sync.expression", [](J & j) -> auto& { return j.axes.sync.expression; }, ExpressionText{}),
       FieldAt<J>(
           "sync.step_expression", [](J & j) -> auto& { return j.axes.sync.step_expression; }, ExpressionText{}),
       FieldAt<J>(
           "sync.collective", [](J & j) -> auto& { return j.axes.sync.collective; }, collective),
       FieldAt<J>(
           "sync.bucket_bytes", [](J & j) -> auto& { return j.axes.sync.bucket_bytes; }, Size{Bytes(1)}),
       FieldAt<J>(
           "sync.first_bucket_bytes", [](J & j) -> auto& { return j.axes.sync.first_bucket_bytes; }, Size{Bytes(1)}),
       FieldAt<J>(
           "sync.bucket_elements", [](J & j) -> auto& { return j.axes.sync.bucket_elements; }, kAnyAmount),
       FieldAt<J>(
           "sync.overlap", [](J & j) -> auto& { return j.axes.sync.overlap; }, Truth{}),
       FieldAt<J>(
           "sync.forward_in_no_sync", [](J & j) -> auto& { return j.axes.sync.forward_in_no_sync; }, Truth{}),
       FieldAt<J>(
           "sync.static_graph", [](J & j) -> auto& { return j.axes.sync.static_graph; }, Truth{}),
       FieldAt<J>(
           "sync.find_unused_parameters", [](J & j) -> auto& { return j.axes.sync.find_unused_parameters; }, Truth{}),
       FieldAt<J>(
           "sync.coalesce", [](J & j) -> auto& { return j.axes.sync.coalesce; }, Truth{}),
       FieldAt<J>(
           "sync.multi_rank_bucket", [](J & j) -> auto& { return j.axes.sync.multi_rank_bucket; }, Truth{}),
       FieldAt<J>(
           "sync.executable", [](J & j) -> auto& { return j.axes.sync.executable; }, SyncExecutable()),
       FieldAt<J>(
           "sync.rewrite", [](J & j) -> auto& { return j.axes.sync.rewrite; }, Truth{}),
       FieldAt<J>(
           "sync.average_in_collective", [](J & j) -> auto& { return j.axes.sync.average_in_collective; }, Truth{}),
       FieldAt<J>(
           "sync.fp32_accumulation", [](J & j) -> auto& { return j.axes.sync.fp32_accumulation; }, Truth{}),
       FieldAt<J>(
           "sync.overlap_gather", [](J & j) -> auto& { return j.axes.sync.overlap_gather; }, Truth{})});
}

void AddShard(Fields& fields) {
  using J = Job;
  using Prefetch = Shard::BackwardPrefetch;
  fields.insert(
      fields.end(),
      {FieldAt<J>(
           "shard.params", [](J & j) -> auto& { return j.axes.shard.params; }, Truth{}),
       FieldAt<J>(
           "shard.gradients", [](J & j) -> auto& { return j.axes.shard.gradients; }, Truth{}),
       FieldAt<J>(
           "shard.optimizer", [](J & j) -> auto& { return j.axes.shard.optimizer; }, Truth{}),
       FieldAt<J>(
           "shard.replicas", [](J & j) -> auto& { return j.axes.shard.replicas; }, kRanks),
       FieldAt<J>(
           "shard.reshard_after_forward", [](J & j) -> auto& { return j.axes.shard.reshard_after_forward; }, Truth{}),
       FieldAt<J>(
           "shard.reshard_after_backward", [](J & j) -> auto& { return j.axes.shard.reshard_after_backward; }, Truth{}),
       FieldAt<J>(
           "shard.reshard_last_unit", [](J & j) -> auto& { return j.axes.shard.reshard_last_unit; }, Truth{}),
       FieldAt<J>(
           "shard.gathered_layers", [](J & j) -> auto& { return j.axes.shard.gathered_layers; },
           WholeNumber{0, 1 << 16}),
       FieldAt<J>(
           "shard.prefetch_forward", [](J & j) -> auto& { return j.axes.shard.prefetch_forward; }, kUnits),
       FieldAt<J>(
           "shard.prefetch_backward", [](J & j) -> auto& { return j.axes.shard.prefetch_backward; }, kUnits),
       FieldAt<J>(
           "shard.backward_prefetch", [](J & j) -> auto& { return j.axes.shard.backward_prefetch; },
           Choice<Prefetch>{{{"none", Prefetch::none}, {"pre", Prefetch::pre}, {"post", Prefetch::post}}}),
       FieldAt<J>(
           "shard.limit_all_gathers", [](J & j) -> auto& { return j.axes.shard.limit_all_gathers; }, Truth{}),
       FieldAt<J>(
           "shard.reuse_distance", [](J & j) -> auto& { return j.axes.shard.reuse_distance; }, kAnyAmount),
       FieldAt<J>(
           "shard.persistence_threshold", [](J & j) -> auto& { return j.axes.shard.persistence_threshold; },
           kAnyAmount),
       FieldAt<J>(
           "shard.prefetch_elements", [](J & j) -> auto& { return j.axes.shard.prefetch_elements; }, kAnyAmount),
       FieldAt<J>(
           "shard.max_live_elements", [](J & j) -> auto& { return j.axes.shard.max_live_elements; }, kAnyAmount),
       FieldAt<J>(
           "shard.chunk_elements", [](J & j) -> auto& { return j.axes.shard.chunk_elements; }, kAnyAmount),
       FieldAt<J>(
           "shard.min_chunk_elements", [](J & j) -> auto& { return j.axes.shard.min_chunk_elements; }, kAnyAmount)});
}

void AddPrecision(Fields& fields) {
  using J = Job;
  const Choice<DType> dtype = FloatingPoint();
  fields.insert(fields.end(),
                {FieldAt<J>(
                     "precision.params", [](J & j) -> auto& { return j.axes.precision.params; }, dtype),
                 FieldAt<J>(
                     "precision.gradients", [](J & j) -> auto& { return j.axes.precision.gradients; }, dtype),
                 FieldAt<J>(
                     "precision.reduce", [](J & j) -> auto& { return j.axes.precision.reduce; }, dtype),
                 FieldAt<J>(
                     "precision.accumulate", [](J & j) -> auto& { return j.axes.precision.accumulate; }, dtype),
                 FieldAt<J>(
                     "precision.master", [](J & j) -> auto& { return j.axes.precision.master; }, MasterDType{}),
                 FieldAt<J>(
                     "precision.optimizer", [](J & j) -> auto& { return j.axes.precision.optimizer; }, dtype)});
}

void AddTheRest(Fields& fields) {
  using J = Job;
  fields.insert(fields.end(),
                {FieldAt<J>(
                     "schedule", [](J & j) -> auto& { return j.schedule; },
                     Choice<Schedule>{{{"gpipe", Schedule::gpipe},
                                       {"1f1b", Schedule::one_f_one_b},
                                       {"interleaved", Schedule::interleaved},
                                       {"zb-h1", Schedule::zb_h1},
                                       {"zb-h2", Schedule::zb_h2},
                                       {"dualpipe", Schedule::dualpipe}}}),
                 FieldAt<J>(
                     "gradient_flow.kind", [](J & j) -> auto& { return j.axes.gradient_flow; },
                     Choice<GradientFlow>{{{"microbatch", GradientFlow::microbatch},
                                           {"single-backward", GradientFlow::single_backward},
                                           {"gradcache", GradientFlow::gradcache}}}),
                 FieldAt<J>(
                     "gradient_flow.loop", [](J & j) -> auto& { return j.axes.loop; },
                     Choice<MicrobatchLoop>{{{"runtime", MicrobatchLoop::runtime},
                                             {"program", MicrobatchLoop::program},
                                             {"unrolled", MicrobatchLoop::unrolled},
                                             {"outside", MicrobatchLoop::outside}}}),
                 FieldAt<J>(
                     "gradient_flow.chunks", [](J & j) -> auto& { return j.axes.chunks; }, WholeNumber{0, 1 << 24}),
                 FieldAt<J>(
                     "gradient_flow.loss_times_ranks", [](J & j) -> auto& { return j.axes.loss_times_ranks; }, Truth{}),
                 FieldAt<J>(
                     "loss_scale", [](J & j) -> auto& { return j.axes.loss_scale; },
                     Choice<LossScale>{{{"microbatches", LossScale::microbatches},
                                        {"global-tokens", LossScale::global_tokens},
                                        {"summed-tokens", LossScale::summed_tokens},
                                        {"global-batch", LossScale::global_batch}}}),
                 FieldAt<J>(
                     "optimizer", [](J & j) -> auto& { return j.optimizer; },
                     Choice<OptimizerKind>{{{"adamw", OptimizerKind::adamw},
                                            {"sgd", OptimizerKind::sgd},
                                            {"sgd-momentum", OptimizerKind::sgd_momentum}},
                                           {"adam", "lamb", "muon", "adafactor"}})});
}

Fields MakeJobFields() {
  Fields fields = SequenceLengthFields();
  AddSizes(fields);
  AddSync(fields);
  AddShard(fields);
  const Fields recompute = RecomputeFields();
  fields.insert(fields.end(), recompute.begin(), recompute.end());
  const Fields buffers = BufferFields();
  fields.insert(fields.end(), buffers.begin(), buffers.end());
  for (const Field<Job>& field : LossFields()) {
    fields.push_back(field);
  }
  AddPrecision(fields);
  AddOptimizerStep(fields);
  AddTheRest(fields);
  for (const Field<Job>& field : AllocatorFields()) {
    fields.push_back(field);
  }
  return fields;
}

}  // namespace

const std::vector<Field<Job>>& JobFields() {
  static const Fields fields = MakeJobFields();
  return fields;
}

const std::set<std::string>& JobKeys() {
  static const std::set<std::string> keys = [] {
    std::set<std::string> all = {"network",           "network.from", "network.name", "network.table",
                                 "network.trainable", "machine",      "strategy",     "assumed"};
    for (const Field<Job>& field : JobFields()) {
      all.insert(field.key);
    }
    for (const Field<Decoder>& field : DecoderFields()) {
      all.insert("network." + field.key);
    }
    for (const Field<Table>& field : TableFields()) {
      all.insert("network." + field.key);
    }
    for (const Field<DualEncoder>& field : DualEncoderFields()) {
      all.insert("network.dual_encoder." + field.key);
    }
    for (const std::string& key : MachineKeys()) {
      all.insert("machine." + key);
    }
    return all;
  }();
  return keys;
}

const std::set<std::string>& NullableJobKeys() {
  static const std::set<std::string> keys = {"pipeline_microbatches",
                                             "layout.etp",
                                             "layout.layers_per_stage",
                                             "sync.expression",
                                             "sync.step_expression",
                                             "optimizer_step.clip_norm",
                                             "allocator.max_split_size",
                                             "allocator.roundup_power2_divisions",
                                             "allocator.garbage_collection_threshold",
                                             "allocator.memory_fraction"};
  return keys;
}

bool IsAxis(std::string_view key) {
  constexpr std::array kAxes = {"sync.",      "shard.", "recompute.",     "buffers.",       "packing.",
                                "precision.", "loss",   "gradient_flow.", "optimizer_step."};
  return std::any_of(kAxes.begin(), kAxes.end(), [&](std::string_view axis) { return key.starts_with(axis); });
}

bool IsCommonAxis(std::string_view key) {
  constexpr std::array kCommon = {
      "recompute.",
      "packing.",
      "precision.",
      "loss",
      "buffers.fused_glu",
      "buffers.fused_rope",
      "buffers.latent_value_views",
  };
  return key != "loss_scale" &&
         std::any_of(kCommon.begin(), kCommon.end(), [&](std::string_view axis) { return key.starts_with(axis); });
}

}  // namespace tidemark
