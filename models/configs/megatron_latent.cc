// SPDX-License-Identifier: Apache-2.0
#include "models/configs/megatron_latent.h"

#include <string>
#include <string_view>
#include <utility>

#include "models/configs/field.h"
#include "models/configs/translation.h"

namespace tidemark {
namespace {

constexpr std::string_view kOption = "multi-latent-attention";

/// MLATransformerConfig.__post_init__ of megatron/core/transformer/transformer_config.py.
Status CheckRotation(const ToolFields& fields) {
  constexpr std::string_view kType = "rope-type";
  const Choice<std::string> types{{{"rope", "rope"}, {"yarn", "yarn"}}};
  TIDEMARK_ASSIGN(const std::string type, fields.OneOf(types, kType, "yarn"));
  return type == "yarn" || fields.Has("no-rope-fusion")
             ? Status(Done{})
             : fields.Refuse(kType, "", "apply_rope_fusion for MLA only works with YARN RoPE", "add no-rope-fusion");
}

}  // namespace

Status ReadMegatronLatentAttention(const ToolFields& fields, Settings& settings) {
  if (!fields.Has(kOption)) {
    return Done{};
  }
  // gpt_layer_specs.py makes norms of the latent vectors with this option only.
  if (!fields.Has("qk-layernorm")) {
    return fields.Refuse(kOption, "", "latent vectors that are not normalised are not supported by this version",
                         "add qk-layernorm to price their norms");
  }
  if (fields.Has("rotary-interleaved")) {
    return fields.Refuse("rotary-interleaved", "", "rotary_interleaved does not work with multi_latent_attention",
                         "leave it out");
  }
  if (!fields.Has("disable-bias-linear") || fields.Has("add-qkv-bias")) {
    return fields.Refuse(kOption, "", "multi-latent attention with biases is not supported by this version",
                         "add disable-bias-linear, and leave out add-qkv-bias, to price it without");
  }
  if (fields.Has("group-query-attention")) {  // arguments.py
    return fields.Refuse("group-query-attention", "",
                         "group query attention is mutually exclusive with multi latent attention", "leave it out");
  }
  // QKNormConfigResolver of mla_qk_norm_config.py at d98e8a64.
  if (!fields.Has("q-lora-rank")) {
    return fields.Refuse(
        kOption, "",
        "without q-lora-rank the input of queries is normalised a second time (qk-layernorm), which is "
        "not supported by this version",
        "add q-lora-rank, or price a network without that norm: --set network=deepseek-v2-lite");
  }
  TIDEMARK_TRY(CheckRotation(fields));
  TIDEMARK_ASSIGN(const std::int64_t own, fields.Whole("qk-head-dim", 128));
  TIDEMARK_ASSIGN(const std::int64_t rotated, fields.Whole("qk-pos-emb-head-dim", 64));
  if (rotated % 2 != 0) {
    return fields.Refuse("qk-pos-emb-head-dim", "64", "expected an even number: pairs of elements are rotated",
                         "DeepSeek's is 64");
  }
  for (const auto& [option, missing] : {std::pair{"kv-lora-rank", 32}, std::pair{"v-head-dim", 128}}) {
    if (const Result<std::int64_t> size = fields.Whole(option, missing); !size) {
      return size.error();
    }
  }
  settings["network.head_size"] = fields.Retold("qk-head-dim", "128", std::to_string(own + rotated));
  settings["network.latent_attention.rope_head_size"] = fields.Value("qk-pos-emb-head-dim", "64");
  settings["network.latent_attention.value_head_size"] = fields.Value("v-head-dim", "128");
  settings["network.latent_attention.kv_lora_rank"] = fields.Value("kv-lora-rank", "32");
  settings["network.latent_attention.q_lora_rank"] = fields.Value("q-lora-rank", "");
  settings["network.kv_heads"] = fields.Value("num-attention-heads", "");
  settings["network.rope"] = fields.Retold(kOption, "", "true");
  settings["network.qk_norm"] = fields.Retold(kOption, "", "false");
  return Done{};
}

}  // namespace tidemark
