// SPDX-License-Identifier: Apache-2.0
#include "models/configs/torchtitan_experts.h"

#include <string_view>

#include "models/network/network.h"

namespace tidemark {
namespace {

constexpr std::string_view kOfExperts[] = {"num_experts", "routed_experts", "router", "load_balance_coeff",
                                           "shared_experts"};
constexpr std::string_view kOfRouted[] = {"inner_experts", "token_dispatcher"};
constexpr std::string_view kOfInner[] = {"dim", "hidden_dim", "num_experts"};
constexpr std::string_view kOfDispatcher[] = {"num_experts", "top_k"};
constexpr std::string_view kOfRouter[] = {"num_experts",        "gate",        "num_expert_groups",
                                          "num_limited_groups", "top_k",       "score_func",
                                          "route_norm",         "route_scale", "_debug_force_load_balance"};

}  // namespace

Result<SavedExperts> ReadSavedExperts(const TorchtitanModule& of, std::int64_t hidden) {
  SavedExperts experts;
  TIDEMARK_ASSIGN(const TorchtitanModule moe, of.At("moe", kOfExperts));
  TIDEMARK_ASSIGN(experts.count, moe.Whole("num_experts", Experts::kMost));
  TIDEMARK_ASSIGN(const TorchtitanModule router, moe.At("router", kOfRouter));
  TIDEMARK_ASSIGN(experts.per_token, router.Whole("top_k", experts.count));
  TIDEMARK_TRY(router.CheckWhole("num_experts", experts.count));
  TIDEMARK_TRY(router.CheckLinear("gate", hidden, experts.count));
  TIDEMARK_ASSIGN(const TorchtitanModule routed, moe.At("routed_experts", kOfRouted));
  TIDEMARK_ASSIGN(const TorchtitanModule inner, routed.At("inner_experts", kOfInner));
  TIDEMARK_ASSIGN(experts.ffn, inner.Whole("hidden_dim", Decoder::kMostFfn));
  TIDEMARK_TRY(inner.CheckWhole("dim", hidden));
  TIDEMARK_TRY(inner.CheckWhole("num_experts", experts.count));
  const ConfigValue* dispatcher = routed.value().Find("token_dispatcher");
  if (dispatcher != nullptr && (dispatcher->Find("num_max_tokens_per_rank") != nullptr ||
                                dispatcher->Find("non_blocking_capacity_factor") != nullptr)) {
    return routed.Refuse("token_dispatcher",
                         "dispatchers with buffers of their own (DeepEP, HybridEP, MinimalAsyncEP) are not supported "
                         "by this version",
                         "price the usual one: save the config with moe_comm_backend=\"standard\"");
  }
  TIDEMARK_ASSIGN(const TorchtitanModule tokens, routed.At("token_dispatcher", kOfDispatcher));
  TIDEMARK_TRY(tokens.CheckWhole("num_experts", experts.count));
  TIDEMARK_TRY(tokens.CheckWhole("top_k", experts.per_token));
  if (moe.Has("shared_experts")) {
    TIDEMARK_ASSIGN(experts.shared_ffn, moe.FeedForwardWidth("shared_experts", hidden));
  }
  return experts;
}

}  // namespace tidemark
