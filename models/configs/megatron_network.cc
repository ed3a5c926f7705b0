// SPDX-License-Identifier: Apache-2.0
#include "models/configs/megatron_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "models/configs/field.h"
#include "models/configs/megatron_experts.h"
#include "models/configs/megatron_latent.h"
#include "models/configs/megatron_windows.h"
#include "models/configs/translation.h"

namespace tidemark {
namespace {

/// Vocabularies of tokenizers that have one only.
constexpr std::array kTokenizers = {
    std::pair<std::string_view, std::int64_t>{"GPT2BPETokenizer", 50257},
    std::pair<std::string_view, std::int64_t>{"Llama2Tokenizer", 32000},
};

Status ReadPositions(const ToolFields& fields, Settings& settings) {
  constexpr std::string_view kKind = "position-embedding-type", kRows = "max-position-embeddings";
  const Choice<std::string> kinds{{{"learned_absolute", "learned"}, {"rope", "rope"}, {"none", "none"}},
                                  {"mrope", "yarn", "relative"}};
  TIDEMARK_ASSIGN(const std::string said, fields.OneOf(kinds, kKind, "learned_absolute"));
  const std::string kind = fields.Has("use-rotary-position-embeddings") ? "rope" : said;
  settings["network.rope"] = fields.Retold(kKind, "", kind == "rope" ? "true" : "false");
  if (kind == "learned" && !fields.Has(kRows)) {
    return fields.Refuse(kRows, "", "is missing, and learned positions need it",
                         "add it, or set position-embedding-type to rope");
  }
  settings["network.positions"] = kind == "learned" ? fields.Value(kRows, "") : fields.Retold(kKind, "", "0");
  return Done{};
}

/// Transformer Engine chooses a memory-linear kernel unless it is told not to; Megatron-LM's own layers have the
/// scores.
Status ReadAttention(const ToolFields& fields, Settings& settings) {
  const Choice<std::string> layers{{{"transformer_engine", "flash"}, {"local", "eager"}}, {"inference_optimized"}};
  const Choice<std::string> backends{
      {{"auto", "flash"}, {"flash", "flash"}, {"fused", "flash"}, {"unfused", "eager"}, {"local", "eager"}}};
  constexpr std::string_view kLayers = "transformer-impl", kBackend = "attention-backend";
  TIDEMARK_ASSIGN(const std::string of_layers, fields.OneOf(layers, kLayers, "transformer_engine"));
  TIDEMARK_ASSIGN(const std::string of_backend, fields.OneOf(backends, kBackend, "auto"));
  constexpr std::string_view kUnfused = "no-masked-softmax-fusion";
  if (fields.Has(kUnfused) && (of_layers == "eager" || of_backend == "eager")) {
    return fields.Refuse(kUnfused, "",
                         "scores that kernels of their own scale and mask are not supported by this version",
                         "leave it out to price the fused kernel, or set attention-backend to flash");
  }
  if (fields.Has("multi-latent-attention") && (of_layers == "eager" || of_backend == "eager")) {
    return fields.Refuse(of_layers == "eager" ? kLayers : kBackend, "",
                         "multi-latent attention that keeps its scores is not supported by this version",
                         "leave it out to price the fused kernel");
  }
  settings["network.attention_kernel"] =
      of_layers == "eager" ? fields.Retold(kLayers, "", of_layers) : fields.Retold(kBackend, "auto", of_backend);
  return Done{};
}

/// Rows are added until each tensor-parallel rank has a multiple of 128 of them.
Status ReadVocabulary(const ToolFields& fields, std::int64_t tensor_ranks, const Settings& given, Settings& settings) {
  constexpr std::string_view kPadded = "padded-vocab-size", kRows = "vocab-size", kTokenizer = "tokenizer-type";
  if (fields.Has(kPadded)) {
    settings["network.vocabulary"] = *fields.Given(kPadded);
    return Done{};
  }
  TIDEMARK_ASSIGN(const std::int64_t divisor, fields.Whole("make-vocab-size-divisible-by", 128));
  const std::int64_t multiple = divisor * tensor_ranks;
  const ConfigValue tokenizer = fields.Value(kTokenizer, "GPT2BPETokenizer");
  const auto* const known =
      std::ranges::find_if(kTokenizers, [&](const auto& entry) { return entry.first == tokenizer.text; });
  if (!fields.Has(kRows) && known == kTokenizers.end()) {
    return Speaks(given, "network.vocabulary")
               ? Status(Done{})
               : Status(ErrorAt(tokenizer, kTokenizer,
                                fmt::format("{} does not say how many tokens it has", Describe(tokenizer)),
                                fmt::format("add --set network.vocabulary=..., a multiple of {}", multiple)));
  }
  const bool said = fields.Has(kRows);
  TIDEMARK_ASSIGN(const std::int64_t rows, fields.Whole(kRows, said ? 1 : known->second));
  settings["network.vocabulary"] = fields.Retold(said ? kRows : kTokenizer, "GPT2BPETokenizer",
                                                 std::to_string((rows + multiple - 1) / multiple * multiple));
  return Done{};
}

}  // namespace

Status ReadMegatronNetwork(const ToolFields& fields, std::int64_t tensor_ranks, const Settings& given,
                           Settings& settings) {
  TIDEMARK_ASSIGN(const std::int64_t hidden, fields.Whole("hidden-size", 1));
  settings["network.name"] = MakeScalar("gpt", "the config's format");
  settings["network.layers"] = fields.Value("num-layers", "");
  settings["network.hidden"] = fields.Value("hidden-size", "");
  settings["network.heads"] = fields.Value("num-attention-heads", "");
  settings["network.kv_heads"] = fields.Has("group-query-attention") ? fields.Value("num-query-groups", "1")
                                                                     : fields.Value("num-attention-heads", "");
  if (fields.Has("kv-channels")) {
    settings["network.head_size"] = fields.Value("kv-channels", "");
  }
  const bool gated = fields.Has("swiglu"), biased = !fields.Has("disable-bias-linear");
  if (constexpr std::string_view kUnfused = "no-bias-gelu-fusion"; fields.Has(kUnfused) && biased && !gated) {
    return fields.Refuse(kUnfused, "", "a bias that is added by a kernel of its own is not supported by this version",
                         "leave it out to price the job without");
  }
  settings["network.ffn_kind"] = fields.Retold("swiglu", "", gated ? "glu" : "two-layer");
  settings["network.ffn"] =
      fields.Value("ffn-hidden-size", std::to_string(gated ? hidden * 8 / 3 / 64 * 64 : 4 * hidden));
  TIDEMARK_TRY(ReadMegatronExperts(fields, settings));
  settings["network.linear_bias"] = fields.Retold("disable-bias-linear", "", biased ? "true" : "false");
  settings["network.qkv_bias"] = biased
                                     ? fields.Retold("disable-bias-linear", "", "true")
                                     : fields.Retold("add-qkv-bias", "", fields.Has("add-qkv-bias") ? "true" : "false");
  settings["network.qk_norm"] = fields.Retold("qk-layernorm", "", fields.Has("qk-layernorm") ? "true" : "false");
  settings["network.tied_embeddings"] = fields.Retold(
      "untie-embeddings-and-output-weights", "", fields.Has("untie-embeddings-and-output-weights") ? "false" : "true");
  settings["network.dropout"] = fields.Value("hidden-dropout", "0.1");
  settings["network.attention_dropout"] = fields.Value("attention-dropout", "0.1");
  const Choice<std::string> norms{{{"LayerNorm", "layer"}, {"RMSNorm", "rms"}}};
  TIDEMARK_ASSIGN(std::string norm, fields.OneOf(norms, "normalization", "LayerNorm"));
  settings["network.norm"] = fields.Retold("normalization", "", std::move(norm));
  TIDEMARK_TRY(ReadPositions(fields, settings));
  TIDEMARK_TRY(ReadMegatronLatentAttention(fields, settings));
  TIDEMARK_TRY(ReadAttention(fields, settings));
  TIDEMARK_TRY(ReadMegatronWindows(fields, settings));
  return ReadVocabulary(fields, tensor_ranks, given, settings);
}

}  // namespace tidemark
