// SPDX-License-Identifier: Apache-2.0
#include "models/configs/megatron_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/configs/field.h"
#include "models/configs/layer_pattern.h"
#include "models/configs/translation.h"

namespace tidemark {
namespace {

constexpr std::string_view kCount = "num-experts";

/// Layers without experts stand before all that have some.
Status ReadLayers(const ToolFields& fields, Settings& settings) {
  constexpr std::string_view kOption = "moe-layer-freq";
  const std::string text = PatternText(fields.Value(kOption, "1"));
  TIDEMARK_ASSIGN(const std::int64_t layers, fields.Whole("num-layers", 0));
  const std::optional<std::vector<bool>> have = ReadLayerPattern(text, layers);
  if (!have) {
    return fields.Refuse(kOption, "1", fmt::format("expected a number or a list of 0 and 1, found '{}'", text),
                         "for example ([0]*3+[1]*58), of which the first three layers have no experts");
  }
  if (std::ssize(*have) != layers) {
    return fields.Refuse(kOption, "1", fmt::format("is a list of {}, for {} layers (num-layers)", have->size(), layers),
                         "let it have an element for each layer");
  }
  const auto first = std::ranges::find(*have, true);
  if (first == have->end()) {
    return fields.Refuse(kOption, "1", "no layer has experts", "leave out num-experts and what belongs to it");
  }
  if (std::find(first, have->end(), false) != have->end()) {
    return fields.Refuse(kOption, "1",
                         "layers of which some have experts, and some behind them have none, are not supported by this "
                         "version",
                         "leave it out to price experts in all layers, or give a list that begins with its zeros");
  }
  settings["network.experts.dense_layers"] = fields.Retold(kOption, "1", std::to_string(first - have->begin()));
  return Done{};
}

Status ReadBalance(const ToolFields& fields, Settings& settings) {
  constexpr std::string_view kKind = "moe-router-load-balancing-type", kCoefficient = "moe-aux-loss-coeff";
  const ConfigValue kind = fields.Value(kKind, "aux_loss");
  const std::vector<ConfigValue> kinds = kind.items.empty() ? std::vector{kind} : kind.items;
  const Choice<int> known{{{"aux_loss", 0}, {"seq_aux_loss", 0}, {"global_aux_loss", 0}, {"sinkhorn", 0}, {"none", 0}},
                          {"quantile_balancing"}};
  for (const ConfigValue& one : kinds) {
    TIDEMARK_TRY(known.Read(one).At(fmt::format("{}: {}", one.where, kKind)));
  }
  const bool has_loss =
      std::ranges::any_of(kinds, [](const ConfigValue& one) { return one.text.ends_with("aux_loss"); });
  const ConfigValue coefficient = fields.Value(kCoefficient, "0.0");
  constexpr RealNumber any{0, 1e9};
  double sum = 0;
  for (const ConfigValue& one : coefficient.items.empty() ? std::vector{coefficient} : coefficient.items) {
    TIDEMARK_ASSIGN(const double value, any.Read(one).At(fmt::format("{}: {}", one.where, kCoefficient)));
    sum += value;
  }
  settings["network.experts.balancing_loss"] =
      fields.Retold(kCoefficient, "0.0", has_loss && sum > 0 ? "true" : "false");
  return Done{};
}

}  // namespace

bool HasMegatronExperts(const ToolFields& fields) {
  return fields.Has(kCount) && fields.Value(kCount, "0").text != "0";
}

Status ReadMegatronExperts(const ToolFields& fields, Settings& settings) {
  constexpr std::string_view kRanks = "expert-model-parallel-size";
  TIDEMARK_ASSIGN(const std::int64_t ranks, fields.Whole(kRanks, 1));
  if (!HasMegatronExperts(fields)) {
    return ranks == 1 ? Status(Done{})
                      : fields.Refuse(kRanks, "1", "num_experts must be non None to use expert model-parallelism",
                                      "leave it out, or add num-experts");
  }
  settings["layout.ep"] = fields.Value(kRanks, "1");
  if (fields.Has("expert-tensor-parallel-size")) {
    settings["layout.etp"] = fields.Value("expert-tensor-parallel-size", "");
  }
  if (!fields.Has("disable-bias-linear")) {
    return fields.Refuse(kCount, "0", "experts whose linear layers have biases are not supported by this version",
                         "add disable-bias-linear to price experts without");
  }
  TIDEMARK_TRY(ReadLayers(fields, settings));
  const auto put = [&](const char* key, std::string_view option, const char* missing) {
    settings[key] = fields.Value(option, missing);
  };
  const auto put_truth = [&](const char* key, std::string_view option) {
    settings[key] = fields.Retold(option, "", fields.Has(option) ? "true" : "false");
  };
  put("network.experts.count", kCount, "");
  put("network.experts.per_token", "moe-router-topk", "2");
  put("network.experts.shared_ffn", "moe-shared-expert-intermediate-size", "0");
  put_truth("network.experts.shared_gate", "moe-shared-expert-gate");
  settings["network.experts.ffn"] =
      fields.Has("moe-ffn-hidden-size") ? *fields.Given("moe-ffn-hidden-size") : settings["network.ffn"];
  const Choice<std::string> dispatchers{{{"allgather", "all-gather"}, {"alltoall", "all-to-all"}}, {"flex"}};
  TIDEMARK_ASSIGN(std::string dispatcher, fields.OneOf(dispatchers, "moe-token-dispatcher-type", "allgather"));
  settings["network.experts.dispatcher"] =
      fields.Retold("moe-token-dispatcher-type", "allgather", std::move(dispatcher));
  settings["network.experts.kernel"] =
      fields.Retold("moe-grouped-gemm", "", fields.Has("moe-grouped-gemm") ? "grouped" : "sequential");
  const Choice<std::string> dtypes{{{"fp32", "true"}}, {"fp64"}};
  if (fields.Has("moe-router-dtype")) {
    TIDEMARK_ASSIGN(std::string wide, fields.OneOf(dtypes, "moe-router-dtype", "fp32"));
    settings["network.experts.router_fp32"] = fields.Retold("moe-router-dtype", "", std::move(wide));
  }
  TIDEMARK_TRY(ReadBalance(fields, settings));
  return Done{};
}

}  // namespace tidemark
