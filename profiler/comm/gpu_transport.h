// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tidemark {

/// By what the ranks of a run exchange the memory of their GPUs.
enum class GpuTransport : std::uint8_t {
  nccl,
  nccl_shared,  ///< NCCL with several ranks on a GPU: NCCL_MULTI_RANK_GPU_ENABLE, "experimental" since 2.30
  staged,       ///< through host memory
};

/// What is known of a run when it has to choose, the same on all ranks.
struct GpuTransportFacts {
  bool gpu_shared = false;     ///< some GPU has several ranks
  bool nccl_takes_it = false;  ///< NCCL has made a communicator of all ranks with its switch set
};

GpuTransport Choose(const GpuTransportFacts& facts);

/// For a report: "NCCL 2.28.9"; "host memory, since several ranks share a GPU, which NCCL 2.28.9 does not take".
/// `version` is NCCL's, empty where it is not installed.
std::string Describe(GpuTransport transport, std::string_view version);

/// Whether two of the ranks have named the same GPU ("machine, UUID").
bool AnyTwice(std::span<const std::string> gpus);

}  // namespace tidemark
