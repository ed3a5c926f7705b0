// SPDX-License-Identifier: Apache-2.0
#include "models/network/network.h"

#include <fmt/format.h>

#include "models/network/families.h"

namespace tidemark {
namespace {

constexpr std::int64_t kLargestSequence = std::int64_t{1} << 32;
constexpr std::int64_t kLargestTp = std::int64_t{1} << 16;

Status CheckAtLeastOne(std::string_view field, std::int64_t value, std::int64_t largest) {
  if (value < 1 || value > largest) {
    return BadInput(fmt::format("expected {} between 1 and {}, found {}", field, largest, value));
  }
  return Done{};
}

Status CheckPartition(const Partition& partition) {
  TIDEMARK_TRY(CheckAtLeastOne("micro_batch_size", partition.micro_batch_size, kLargestSequence));
  TIDEMARK_TRY(CheckAtLeastOne("sequence_length", partition.sequence_length, kLargestSequence));
  TIDEMARK_TRY(CheckAtLeastOne("layout.tp", partition.tp, kLargestTp));
  switch (partition.compute) {
    case DType::fp64:
    case DType::fp32:
    case DType::bf16:
    case DType::fp16:
      return Done{};
    case DType::int64:
    case DType::int32:
    case DType::u8:
      break;
  }
  return BadInput(fmt::format("expected a floating-point compute dtype, found {}", Name(partition.compute)),
                  "set precision.params to bf16, fp16, fp32 or fp64");
}

}  // namespace

Result<std::vector<BlockRun>> BuildBlocks(const Network& network, const Partition& partition) {
  TIDEMARK_TRY(CheckPartition(partition));
  if (const auto* decoder = std::get_if<Decoder>(&network.shape)) {
    return BuildDecoder(*decoder, network.trainable, partition).At("network");
  }
  return BuildTable(std::get<Table>(network.shape), network.trainable, partition).At("network");
}

std::int64_t ParameterCount(const Network& network) {
  const auto runs = BuildBlocks(network, Partition{});
  if (!runs) {
    return 0;
  }
  std::int64_t count = 0;
  for (const BlockRun& run : *runs) {
    for (const Parameter& parameter : run.block.parameters) {
      count += parameter.tied ? 0 : parameter.elements_full * run.count;
    }
  }
  return count;
}

}  // namespace tidemark
