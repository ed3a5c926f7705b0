// SPDX-License-Identifier: Apache-2.0
#include "models/network/network.h"

#include <fmt/format.h>

#include <span>

#include "models/network/block_builder.h"
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

/// A pattern that names no parameter is a mistake: it would freeze what it was meant to train.
Status CheckTrainable(const std::vector<std::string>& globs, const std::vector<BlockRun>& runs) {
  for (const std::string& glob : globs) {
    bool matches = false;
    std::string example;
    for (const BlockRun& run : runs) {
      for (const Parameter& parameter : run.block.parameters) {
        example = run.block.name + "." + parameter.name;
        matches |= IsTrainable(std::span(&glob, 1), example);
      }
    }
    if (!matches) {
      return BadKey("network.trainable", fmt::format("'{}' matches no parameter of the network", glob),
                    fmt::format("parameters are named block.parameter, for example {}", example));
    }
  }
  return Done{};
}

Result<std::vector<BlockRun>> BuildFamily(const Decoder& decoder, std::span<const std::string> trainable,
                                          const Partition& partition) {
  return BuildDecoder(decoder, trainable, partition);
}
Result<std::vector<BlockRun>> BuildFamily(const Table& table, std::span<const std::string> trainable,
                                          const Partition& partition) {
  return BuildTable(table, trainable, partition);
}
Result<std::vector<BlockRun>> BuildFamily(const DualEncoder& encoders, std::span<const std::string> trainable,
                                          const Partition& partition) {
  return BuildDualEncoder(encoders, trainable, partition);
}

}  // namespace

Result<std::vector<BlockRun>> BuildBlocks(const Network& network, const Partition& partition) {
  TIDEMARK_TRY(CheckPartition(partition));
  Result<std::vector<BlockRun>> runs =
      std::visit([&](const auto& shape) { return BuildFamily(shape, network.trainable, partition); }, network.shape);
  if (runs) {
    TIDEMARK_TRY(CheckTrainable(network.trainable, *runs));
  }
  return std::move(runs).At("network");
}

const Experts* ExpertsOf(const Network& network) {
  const auto* decoder = std::get_if<Decoder>(&network.shape);
  return decoder != nullptr && decoder->experts.count > 0 ? &decoder->experts : nullptr;
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
