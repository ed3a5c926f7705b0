// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/idle_claims.h"

#include <algorithm>

#include "sim/program/stages.h"

namespace tidemark {
namespace {

bool Matches(std::string_view pattern, std::string_view text) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) {
    return pattern == text;
  }
  const std::string_view front = pattern.substr(0, star), back = pattern.substr(star + 1);
  return text.size() >= front.size() + back.size() && text.starts_with(front) && text.ends_with(back);
}

}  // namespace

bool IdleClaim::Names(std::string_view buffer) const {
  constexpr std::string_view kAgain = "_recomputed";
  std::string_view name = WithoutStage(buffer);
  name.remove_suffix(name.ends_with(kAgain) ? kAgain.size() : 0);
  return std::any_of(buffers.begin(), buffers.end(), [&](std::string_view pattern) { return Matches(pattern, name); });
}

std::vector<IdleClaim> CommonIdleClaims() {  // systems without PyTorch refuse what the first two are of
  return {
      {{"* gradient put aside", "*.weight_gradient_last", "*.gradient made with the loss"},
       "autograd's engine has a gradient in hand until the hooks behind it have run (engine.cpp, call_function)"},
      {{"root for moments of *", "denominator *"},
       "torch.optim.AdamW divides by it: the for-loop's variable names it until the next tensor's is there, and "
       "foreach's list goes when the function returns (optim/adam.py)"},
      {{"residual"},
       "what a stage has sent on is the root of its graph: it stays until its backward pass, unless "
       "buffers.deallocate_pipeline_outputs"},
      {{"*.ring_k", "*.ring_v", "*_ring_kv", "*_ring_out"},
       "lists of a ring's steps, and what it was called with, until it returns (Transformer Engine, "
       "context_parallel.py: "
       "AttnFuncWithCPAndKVP2P.forward)"},
      {{"*.permuted_rows", "*.dispatched_rows", "*.dispatched_weights", "*.combined", "*.gathered_weights"},
       "variables of MoELayer.forward until it returns (Megatron-LM, moe/moe_layer.py: custom_forward)"},
      {{"*.experts_out", "*.unsorted_rows", "*.experts_partial_sum"},
       "what combine_preprocess and token_combine were called with, until they return (moe/token_dispatcher.py)"},
      {{"*_back_kv", "*_back_d_kv"},
       "both pairs of buffers of the ring's backward pass, until it returns (context_parallel.py: backward)"},
  };
}

}  // namespace tidemark
