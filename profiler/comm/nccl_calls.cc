// SPDX-License-Identifier: Apache-2.0
#include "profiler/comm/nccl_calls.h"

#include <fmt/format.h>

namespace tidemark {
namespace {

/// What is the same in all calls of one exchange.
NcclCall CallOf(const Exchange& exchange, NcclCall::Kind kind) {
  return {kind, exchange.from, exchange.to, exchange.elements, exchange.dtype, exchange.reduction == Reduction::max, 0};
}

/// To each rank its part, and from each one.
std::vector<NcclCall> MessagesOf(const Exchange& exchange, std::int64_t ranks) {
  std::vector<NcclCall> calls;
  for (std::int64_t peer = 0; peer < ranks; ++peer) {
    const std::int64_t begin = (SizeOf(exchange.dtype) * exchange.BeginOf(peer, ranks)).count();
    NcclCall call = CallOf(exchange, NcclCall::Kind::send);
    call.count = exchange.PartOf(peer, ranks);
    call.root = peer;
    call.from = static_cast<const char*>(exchange.from) + begin;
    call.to = nullptr;
    calls.push_back(call);
    call.kind = NcclCall::Kind::receive;
    call.from = nullptr;
    call.to = static_cast<char*>(exchange.to) + begin;
    calls.push_back(call);
  }
  return calls;
}

Error NotKnown(const Exchange& exchange) {
  return {ErrorCode::internal, "",
          fmt::format("{} of {} elements from rank {} cannot be put to NCCL", Name(exchange.kind), exchange.elements,
                      exchange.root),
          "the program is wrong: please report the job"};
}

}  // namespace

Result<std::vector<NcclCall>> NcclCallsOf(const Exchange& exchange, std::int64_t rank, std::int64_t ranks) {
  if (exchange.elements < 0 || exchange.root < 0 || exchange.root >= ranks) {
    return NotKnown(exchange);
  }
  if (exchange.elements == 0) {
    return std::vector<NcclCall>();
  }
  const bool even = exchange.elements % ranks == 0;
  const std::int64_t part = exchange.PartOf(0, ranks);
  const auto begin_of = [&](std::int64_t other) {
    return (SizeOf(exchange.dtype) * exchange.BeginOf(other, ranks)).count();
  };
  std::vector<NcclCall> calls;
  switch (exchange.kind) {
    case CollectiveKind::all_reduce:
      return std::vector{CallOf(exchange, NcclCall::Kind::all_reduce)};
    case CollectiveKind::broadcast: {  // all of `to`, whose memory it stays
      NcclCall& call = calls.emplace_back(CallOf(exchange, NcclCall::Kind::broadcast));
      call.from = exchange.to;
      call.root = exchange.root;
      return calls;
    }
    case CollectiveKind::all_to_all:
      if (!even) {
        return NotKnown(exchange);
      }
      if (ranks > 1) {
        return MessagesOf(exchange, ranks);
      }
      break;  // a copy, as of one rank's all-gather
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_gather:
      break;
    default:
      return NotKnown(exchange);
  }
  const bool scatters = exchange.kind == CollectiveKind::reduce_scatter;
  if (even) {
    calls.push_back(CallOf(exchange, scatters ? NcclCall::Kind::reduce_scatter : NcclCall::Kind::all_gather));
    calls.back().count = part;
    return calls;
  }
  for (std::int64_t root = 0; root < ranks && exchange.PartOf(root, ranks) > 0; ++root) {
    NcclCall& call =
        calls.emplace_back(CallOf(exchange, scatters ? NcclCall::Kind::reduce : NcclCall::Kind::broadcast));
    call.root = root;
    call.count = exchange.PartOf(root, ranks);
    if (scatters) {
      call.from = static_cast<const char*>(exchange.from) + begin_of(root);
      call.to = root == rank ? exchange.to : nullptr;  // nccl.h: may be NULL on all but the root
    } else {
      call.to = static_cast<char*>(exchange.to) + begin_of(root);
      call.from = root == rank ? exchange.from : call.to;
    }
  }
  return calls;
}

}  // namespace tidemark
