// SPDX-License-Identifier: Apache-2.0
#include "profiler/comm/gpu_transport.h"

#include <fmt/format.h>

#include <set>

namespace tidemark {

GpuTransport Choose(const GpuTransportFacts& facts) {
  if (!facts.gpu_shared) {
    return GpuTransport::nccl;
  }
  return facts.nccl_takes_it ? GpuTransport::nccl_shared : GpuTransport::staged;
}

std::string Describe(GpuTransport transport, std::string_view version) {
  switch (transport) {
    case GpuTransport::nccl:
      return fmt::format("NCCL {}", version);
    case GpuTransport::nccl_shared:
      return fmt::format("NCCL {}, with several ranks on a GPU", version);
    case GpuTransport::staged:
      break;
  }
  return version.empty()
             ? "host memory, since several ranks share a GPU and there is no NCCL"
             : fmt::format("host memory, since several ranks share a GPU, which NCCL {} does not take", version);
}

bool AnyTwice(std::span<const std::string> gpus) {
  const std::set<std::string_view> different(gpus.begin(), gpus.end());
  return different.size() < gpus.size();
}

}  // namespace tidemark
