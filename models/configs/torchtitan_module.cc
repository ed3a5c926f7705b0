// SPDX-License-Identifier: Apache-2.0
#include "models/configs/torchtitan_module.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/configs/field.h"
#include "models/configs/translation.h"
#include "models/network/network.h"

namespace tidemark {
namespace {

constexpr std::string_view kOfLinear[] = {"in_features", "out_features", "bias"};
constexpr std::string_view kOfNorm[] = {"normalized_shape", "eps", "elementwise_affine"};
constexpr std::string_view kOfFeedForward[] = {"w1", "w2", "w3"};
constexpr std::string_view kOfAll[] = {"param_init", "sharding_config"};

constexpr const char* kHint = "name a network instead: --set network=NAME (`tidemark list networks`)";

}  // namespace

std::string TorchtitanModule::PathOf(std::string_view key) const { return fmt::format("{}.{}", path_, key); }

bool TorchtitanModule::Has(std::string_view key) const {
  const ConfigValue* found = value_.Find(key);
  return found != nullptr && !found->is_null();
}

Result<bool> TorchtitanModule::IsTrue(std::string_view key) const {
  const ConfigValue* found = value_.Find(key);
  if (!Has(key)) {
    return false;
  }
  return Truth{}.Read(*found).At(fmt::format("{}: {}", found->where, PathOf(key)));
}

Error TorchtitanModule::Refuse(std::string_view key, std::string message, std::string hint) const {
  const ConfigValue* found = value_.Find(key);
  return ErrorAt(found == nullptr ? value_ : *found, PathOf(key), std::move(message),
                 hint.empty() ? kHint : std::move(hint));
}

Status TorchtitanModule::Check(std::span<const std::string_view> known) const {
  if (!value_.is_map()) {
    return ErrorAt(value_, path_, fmt::format("expected a module, found {}", Describe(value_)), kHint);
  }
  for (const ConfigValue::Entry& field : value_.fields) {
    const auto is = [&](std::string_view name) { return name == field.key; };
    if (!std::ranges::any_of(known, is) && !std::ranges::any_of(kOfAll, is)) {
      return Refuse(field.key, "belongs to a kind of module that this version does not know");
    }
  }
  return Done{};
}

Result<TorchtitanModule> TorchtitanModule::At(std::string_view key, std::span<const std::string_view> known) const {
  const ConfigValue* found = value_.Find(key);
  if (found == nullptr) {
    return Refuse(key, "expected a module, found nothing");
  }
  TorchtitanModule module{*found, PathOf(key)};
  TIDEMARK_TRY(module.Check(known));
  return module;
}

Result<std::int64_t> TorchtitanModule::Whole(std::string_view key, std::int64_t most) const {
  const ConfigValue* found = value_.Find(key);
  if (found == nullptr || found->is_null()) {
    return Refuse(key, "expected a whole number, found nothing");
  }
  return WholeNumber{1, most}.Read(*found).At(fmt::format("{}: {}", found->where, PathOf(key)));
}

Result<std::int64_t> TorchtitanModule::WholeOr(std::string_view key, std::int64_t absent) const {
  return Has(key) ? Whole(key) : Result<std::int64_t>(absent);
}

Status TorchtitanModule::CheckWhole(std::string_view key, std::int64_t expected) const {
  TIDEMARK_ASSIGN(const std::int64_t found, WholeOr(key, expected));
  if (found != expected) {
    return Refuse(key, fmt::format("expected {}, as the rest of the network has it, found {}", expected, found));
  }
  return Done{};
}

Result<bool> TorchtitanModule::Linear(std::string_view key, std::int64_t in, std::int64_t out) const {
  TIDEMARK_ASSIGN(const TorchtitanModule linear, At(key, kOfLinear));
  TIDEMARK_ASSIGN(const std::int64_t inputs, linear.Whole("in_features"));
  TIDEMARK_ASSIGN(const std::int64_t outputs, linear.Whole("out_features"));
  if (inputs != in || outputs != out) {
    return Refuse(
        key, fmt::format("expected {} inputs and {} outputs, as the rest of the network has it, found {} and {}", in,
                         out, inputs, outputs));
  }
  return linear.IsTrue("bias");
}

Status TorchtitanModule::CheckLinear(std::string_view key, std::int64_t in, std::int64_t out) const {
  TIDEMARK_ASSIGN(const bool bias, Linear(key, in, out));
  if (bias) {
    return Refuse(key, "has a bias, which this version knows of projections to queries, keys and values only");
  }
  return Done{};
}

Status TorchtitanModule::CheckNorm(std::string_view key, std::int64_t width) const {
  TIDEMARK_ASSIGN(const TorchtitanModule norm, At(key, kOfNorm));
  TIDEMARK_ASSIGN(const std::int64_t found, norm.Whole("normalized_shape"));
  TIDEMARK_ASSIGN(const bool weighted, norm.IsTrue("elementwise_affine"));
  if (found != width || (norm.Has("elementwise_affine") && !weighted)) {
    return Refuse(key, fmt::format("expected a norm of {} numbers with a weight", width));
  }
  return Done{};
}

Result<std::int64_t> TorchtitanModule::FeedForwardWidth(std::string_view key, std::int64_t hidden) const {
  TIDEMARK_ASSIGN(const TorchtitanModule ffn, At(key, kOfFeedForward));
  TIDEMARK_ASSIGN(const TorchtitanModule first, ffn.At("w1", kOfLinear));
  TIDEMARK_ASSIGN(const std::int64_t width, first.Whole("out_features", Decoder::kMostFfn));
  TIDEMARK_TRY(ffn.CheckLinear("w1", hidden, width));
  TIDEMARK_TRY(ffn.CheckLinear("w2", width, hidden));
  TIDEMARK_TRY(ffn.CheckLinear("w3", hidden, width));
  return width;
}

}  // namespace tidemark
