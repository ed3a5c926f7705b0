// SPDX-License-Identifier: Apache-2.0
#include "models/job/fields.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tidemark {
namespace {

/// An amount that need not be given; then it is not written.
struct GivenAmount {
  Result<std::optional<std::int64_t>> Read(const ConfigValue& value) const {
    TIDEMARK_ASSIGN(const std::int64_t amount, kAnyAmount.Read(value));
    return std::optional<std::int64_t>(amount);
  }
  std::string Write(std::optional<std::int64_t> amount) const { return amount ? kAnyAmount.Write(*amount) : ""; }
  std::string Example() const { return kAnyAmount.Example(); }
};

std::vector<Field<Decoder>> MakeDecoderFields() {
  using D = Decoder;
  using Ffn = Decoder::Ffn;
  using Normalisation = Decoder::Norm;
  using AttentionKernel = Decoder::AttentionKernel;
  using NormKernel = Decoder::NormKernel;
  using Placement = Decoder::NormPlacement;
  using Over = Decoder::QkNormOver;
  using Table = Decoder::RotaryTable;
  return {
      FieldAt<D>(
          "layers", [](D & d) -> auto& { return d.layers; }, WholeNumber{1, D::kMostLayers}),
      FieldAt<D>(
          "hidden", [](D & d) -> auto& { return d.hidden; }, WholeNumber{1, D::kMostHidden}),
      FieldAt<D>(
          "ffn", [](D & d) -> auto& { return d.ffn; }, WholeNumber{1, D::kMostFfn}),
      FieldAt<D>(
          "heads", [](D & d) -> auto& { return d.heads; }, WholeNumber{1, D::kMostHeads}),
      FieldAt<D>(
          "kv_heads", [](D & d) -> auto& { return d.kv_heads; }, WholeNumber{1, D::kMostHeads}),
      FieldAt<D>(
          "head_size", [](D & d) -> auto& { return d.head_size; }, WholeNumber{1, D::kMostHeadSize}),
      FieldAt<D>(
          "vocabulary", [](D & d) -> auto& { return d.vocabulary; }, WholeNumber{1, D::kMostRows}),
      FieldAt<D>(
          "positions", [](D & d) -> auto& { return d.positions; }, WholeNumber{0, D::kMostRows}),
      FieldAt<D>(
          "norm", [](D & d) -> auto& { return d.norm; },
          Choice<Normalisation>{{{"rms", Normalisation::rms}, {"layer", Normalisation::layer}}}),
      FieldAt<D>(
          "norm_placement", [](D & d) -> auto& { return d.norm_placement; },
          Choice<Placement>{
              {{"inputs", Placement::inputs}, {"outputs", Placement::outputs}, {"both", Placement::both}}}),
      FieldAt<D>(
          "ffn_kind", [](D & d) -> auto& { return d.ffn_kind; },
          Choice<Ffn>{{{"glu", Ffn::glu}, {"two-layer", Ffn::two_layer}}}),
      FieldAt<D>(
          "rope", [](D & d) -> auto& { return d.rope; }, Truth{}),
      FieldAt<D>(
          "rotary_table", [](D & d) -> auto& { return d.rotary_table; },
          Choice<Table>{{{"none", Table::none}, {"pairs", Table::pairs}, {"elements", Table::elements}}}),
      FieldAt<D>(
          "qkv_bias", [](D & d) -> auto& { return d.qkv_bias; }, Truth{}),
      FieldAt<D>(
          "qk_norm", [](D & d) -> auto& { return d.qk_norm; }, Truth{}),
      FieldAt<D>(
          "qk_norm_over", [](D & d) -> auto& { return d.qk_norm_over; },
          Choice<Over>{{{"head", Over::head}, {"all-heads", Over::all_heads}}}),
      FieldAt<D>(
          "linear_bias", [](D & d) -> auto& { return d.linear_bias; }, Truth{}),
      FieldAt<D>(
          "tied_embeddings", [](D & d) -> auto& { return d.tied_embeddings; }, Truth{}),
      FieldAt<D>(
          "parallel_residual", [](D & d) -> auto& { return d.parallel_residual; }, Truth{}),
      FieldAt<D>(
          "dropout", [](D & d) -> auto& { return d.dropout; }, RealNumber{0, 1}),
      FieldAt<D>(
          "causal", [](D & d) -> auto& { return d.causal; }, Truth{}),
      FieldAt<D>(
          "attention_kernel", [](D & d) -> auto& { return d.attention_kernel; },
          Choice<AttentionKernel>{{{"flash", AttentionKernel::flash},
                                   {"eager", AttentionKernel::eager},
                                   {"eager-fp32-softmax", AttentionKernel::eager_fp32_softmax}}}),
      FieldAt<D>(
          "attention_dropout", [](D & d) -> auto& { return d.attention_dropout; }, RealNumber{0, 1}),
      FieldAt<D>(
          "norm_kernel", [](D & d) -> auto& { return d.norm_kernel; },
          Choice<NormKernel>{{{"fused", NormKernel::fused},
                              {"eager", NormKernel::eager},
                              {"eager-fp32-weight", NormKernel::eager_fp32_weight},
                              {"eager-low-precision", NormKernel::eager_low_precision}}}),
      FieldAt<D>(
          "qkv_views", [](D & d) -> auto& { return d.qkv_views; }, Truth{}),
  };
}

/// Of a network without windows none is written.
void AddWindowFields(std::vector<Field<Decoder>>& fields) {
  using D = Decoder;
  fields.insert(fields.end(),
                {FieldAt<D>(
                     "sliding_window", [](D & d) -> auto& { return d.sliding_window; }, WholeNumber{0, D::kMostRows}),
                 FieldAt<D>(
                     "full_attention_every", [](D & d) -> auto& { return d.full_attention_every; },
                     WholeNumber{0, D::kMostLayers})});
}

/// Of a network without such attention none is written.
void AddLatentFields(std::vector<Field<Decoder>>& fields) {
  using D = Decoder;
  const WholeNumber rank{0, D::kMostHidden}, size{0, D::kMostHeadSize};
  fields.insert(
      fields.end(),
      {FieldAt<D>(
           "latent_attention.kv_lora_rank", [](D & d) -> auto& { return d.latent.kv_lora_rank; }, rank),
       FieldAt<D>(
           "latent_attention.q_lora_rank", [](D & d) -> auto& { return d.latent.q_lora_rank; }, rank),
       FieldAt<D>(
           "latent_attention.rope_head_size", [](D & d) -> auto& { return d.latent.rope_head_size; }, size),
       FieldAt<D>(
           "latent_attention.value_head_size", [](D & d) -> auto& { return d.latent.value_head_size; }, size)});
}

/// Of a network without experts none is written.
void AddExpertFields(std::vector<Field<Decoder>>& fields) {
  using D = Decoder;
  using Dispatcher = Experts::Dispatcher;
  using Kernel = Experts::Kernel;
  using Layer = Experts::Layer;
  fields.insert(
      fields.end(),
      {FieldAt<D>(
           "experts.count", [](D & d) -> auto& { return d.experts.count; }, WholeNumber{0, Experts::kMost}),
       FieldAt<D>(
           "experts.per_token", [](D & d) -> auto& { return d.experts.per_token; }, WholeNumber{1, Experts::kMost}),
       FieldAt<D>(
           "experts.ffn", [](D & d) -> auto& { return d.experts.ffn; }, WholeNumber{0, D::kMostFfn}),
       FieldAt<D>(
           "experts.shared_ffn", [](D & d) -> auto& { return d.experts.shared_ffn; }, WholeNumber{0, D::kMostFfn}),
       FieldAt<D>(
           "experts.dense_layers", [](D & d) -> auto& { return d.experts.dense_layers; },
           WholeNumber{0, D::kMostLayers}),
       FieldAt<D>(
           "experts.shared_gate", [](D & d) -> auto& { return d.experts.shared_gate; }, Truth{}),
       FieldAt<D>(
           "experts.router_fp32", [](D & d) -> auto& { return d.experts.router_fp32; }, Truth{}),
       FieldAt<D>(
           "experts.balancing_loss", [](D & d) -> auto& { return d.experts.balancing_loss; }, Truth{}),
       FieldAt<D>(
           "experts.layer", [](D & d) -> auto& { return d.experts.layer; },
           Choice<Layer>{{{"megatron", Layer::megatron}, {"torchtitan", Layer::torchtitan}}}),
       FieldAt<D>(
           "experts.dispatcher", [](D & d) -> auto& { return d.experts.dispatcher; },
           Choice<Dispatcher>{{{"all-to-all", Dispatcher::all_to_all}, {"all-gather", Dispatcher::all_gather}}}),
       FieldAt<D>(
           "experts.kernel", [](D & d) -> auto& { return d.experts.kernel; },
           Choice<Kernel>{{{"grouped", Kernel::grouped}, {"sequential", Kernel::sequential}}}),
       FieldAt<D>(
           "experts.imbalance", [](D & d) -> auto& { return d.experts.imbalance; },
           RealNumber{1, static_cast<double>(Experts::kMost)})});
}

std::vector<Field<TableRow>> MakeTableRowFields() {
  using R = TableRow;
  return {
      FieldAt<R>(
          "name", [](R & r) -> auto& { return r.name; }, Word{}),
      FieldAt<R>(
          "count", [](R & r) -> auto& { return r.count; }, WholeNumber{1, 1 << 16}),
      FieldAt<R>(
          "parameters", [](R & r) -> auto& { return r.parameters; }, kAnyAmount),
      FieldAt<R>(
          "frozen_parameters", [](R & r) -> auto& { return r.frozen_parameters; }, kAnyAmount),
      FieldAt<R>(
          "saved_bytes", [](R & r) -> auto& { return r.saved_bytes; }, kAnyAmount),
      FieldAt<R>(
          "transient_bytes", [](R & r) -> auto& { return r.transient_bytes; }, kAnyAmount),
      FieldAt<R>(
          "backward_transient_bytes", [](R & r) -> auto& { return r.backward_transient_bytes; }, GivenAmount{}),
      FieldAt<R>(
          "forward_flops", [](R & r) -> auto& { return r.forward_flops; }, kAnyAmount),
      FieldAt<R>(
          "backward_flops", [](R & r) -> auto& { return r.backward_flops; }, kAnyAmount),
      FieldAt<R>(
          "forward_ns", [](R & r) -> auto& { return r.forward_ns; }, kAnyAmount),
      FieldAt<R>(
          "backward_ns", [](R & r) -> auto& { return r.backward_ns; }, kAnyAmount),
  };
}

}  // namespace

const std::vector<Field<Decoder>>& DecoderFields() {
  static const std::vector<Field<Decoder>> fields = [] {
    std::vector<Field<Decoder>> all = MakeDecoderFields();
    const auto write_where = [&all](std::size_t begin, bool (*there)(const Decoder&)) {
      for (std::size_t i = begin; i < all.size(); ++i) {
        all[i].write = [write = all[i].write, there](const Decoder& d) { return there(d) ? write(d) : ""; };
      }
    };
    std::size_t others = all.size();
    AddWindowFields(all);
    write_where(others, [](const Decoder& d) { return d.sliding_window > 0 || d.full_attention_every > 0; });
    others = all.size();
    AddLatentFields(all);
    write_where(others, [](const Decoder& d) { return d.IsLatent(); });
    others = all.size();
    AddExpertFields(all);
    write_where(others, [](const Decoder& d) { return d.experts.count > 0; });
    return all;
  }();
  return fields;
}

const std::vector<Field<Table>>& TableFields() {
  static const std::vector<Field<Table>> fields = {FieldAt<Table>(
      "table_samples", [](Table & t) -> auto& { return t.samples; }, WholeNumber{1, 1 << 20})};
  return fields;
}

const std::vector<Field<TableRow>>& TableRowFields() {
  static const std::vector<Field<TableRow>> fields = MakeTableRowFields();
  return fields;
}

}  // namespace tidemark
