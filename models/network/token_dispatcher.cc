// SPDX-License-Identifier: Apache-2.0
#include "models/network/token_dispatcher.h"

#include <cmath>

namespace tidemark {

ExpertShape::ExpertShape(const DecoderParts& parts)
    : experts(parts.decoder().experts.count),
      ep(parts.partition().ep),
      etp(parts.partition().etp),
      hidden(parts.shape().hidden),
      tokens(parts.shape().residual_tokens) {
  const Experts& of = parts.decoder().experts;
  own_experts = experts / ep;
  sent = tokens * of.per_token;
  const double fullest = std::ceil(static_cast<double>(sent) * of.imbalance);
  received = ep > 1 ? static_cast<std::int64_t>(fullest) : sent;
  rows = received * etp;
  const DType compute = parts.partition().compute;
  weights = of.router_fp32 && SizeOf(compute) < SizeOf(DType::fp32) ? DType::fp32 : compute;
}

Gemm ExpertShape::Product(const DecoderParts& parts, std::int64_t n, std::int64_t k) const {
  Gemm gemm = parts.MakeGemm(CeilDiv(rows, own_experts), n, k);
  gemm.batch = own_experts;
  return gemm;
}

Gemm ExpertShape::WeightGradient(const DecoderParts& parts, std::int64_t n, std::int64_t k) const {
  Gemm gemm = parts.MakeGemm(n, k, CeilDiv(rows, own_experts));
  gemm.batch = own_experts;
  return gemm;
}

std::unique_ptr<TokenDispatcher> MakeTokenDispatcher(DecoderParts& parts, const ExpertShape& shape) {
  switch (parts.decoder().experts.dispatcher) {
    case Experts::Dispatcher::all_to_all:
      return MakeAllToAllDispatcher(parts, shape);
    case Experts::Dispatcher::all_gather:
      return MakeAllGatherDispatcher(parts, shape);
  }
  TIDEMARK_CHECK(false && "unknown dispatcher");
}

TensorId AddCounts(BlockBuilder& builder, std::int64_t experts) {
  return builder.AddTensor("tokens_per_expert", experts, Category::activation, DType::int64);
}

TensorId ExchangeRows(BlockBuilder& builder, std::vector<Action>& pass, CollectiveKind kind, Among among,
                      const std::string& name, TensorId from, const std::string& to, std::int64_t elements) {
  const TensorId result = builder.AddTensor(to, elements, Category::activation, builder.tensor(from).dtype);
  builder.AddCollective(pass, kind, name, from, result).among = among;
  return result;
}

TensorId CastRows(BlockBuilder& builder, std::vector<Action>& pass, TensorId from, const std::string& name,
                  const std::string& to, DType dtype) {
  const TensorId cast = builder.AddTensor(to, builder.tensor(from).elements, Category::activation, dtype);
  builder.AddPointwise(pass, name, {from}, {cast}, 0);
  return cast;
}

}  // namespace tidemark
