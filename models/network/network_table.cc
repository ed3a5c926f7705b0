// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/network/block_builder.h"
#include "models/network/families.h"

namespace tidemark {
namespace {

constexpr std::int64_t kLargestCount = 1 << 20;
constexpr std::int64_t kLargestField = std::int64_t{1} << 50;

Status CheckRow(const TableRow& row, std::int64_t samples) {
  const std::pair<std::string_view, std::int64_t> fields[] = {
      {"saved_bytes", row.saved_bytes},
      {"transient_bytes", row.transient_bytes},
      {"backward_transient_bytes", row.backward_transient_bytes.value_or(0)},
      {"forward_flops", row.forward_flops},
      {"backward_flops", row.backward_flops},
      {"forward_ns", row.forward_ns},
      {"backward_ns", row.backward_ns},
      {"parameters", row.parameters},
      {"frozen_parameters", row.frozen_parameters},
  };
  if (row.name.empty() || row.name.find('.') != std::string::npos) {
    return BadInput(fmt::format("expected a name without a dot, found \"{}\"", row.name));
  }
  if (row.count < 1 || row.count > kLargestCount) {
    return BadInput(fmt::format("expected count between 1 and {}, found {}", kLargestCount, row.count));
  }
  for (const auto& [field, value] : fields) {
    if (value < 0 || value > kLargestField) {
      return BadInput(fmt::format("expected {} between 0 and {}, found {}", field, kLargestField, value));
    }
    const double factor = static_cast<double>(std::max(samples, row.count)) * 16;
    if (static_cast<double>(value) * factor >= kLargestProduct) {
      return BadInput(fmt::format("expected {} small enough that no size reaches 2^60, found {}", field, value),
                      "make micro_batch_size, the count or the value smaller");
    }
  }
  return Done{};
}

/// One row is one block of one operator a pass. Its tensors are bytes of no particular type. There is no residual
/// stream: what a block keeps of its input and output is part of its saved bytes.
Block BuildRow(const TableRow& row, std::int64_t samples, std::span<const std::string> trainable,
               const Partition& partition) {
  const auto of_microbatch = [&](std::int64_t amount) {  // a byte that is begun is a byte
    return (amount * partition.micro_batch_size + samples - 1) / samples;
  };
  BlockBuilder builder(row.name, trainable, partition.compute);
  std::vector<ParameterId> parameters;
  if (row.parameters > 0) {
    parameters.push_back(builder.AddParameter(
        {.name = "weight", .elements = row.parameters, .rows = row.parameters, .elements_full = row.parameters}));
  }
  const bool trains = !parameters.empty() && builder.trainable(parameters.front());
  const std::vector<ParameterId> trained = trains ? parameters : std::vector<ParameterId>();
  if (const std::int64_t frozen = row.frozen_parameters; frozen > 0) {
    parameters.push_back(builder.AddParameter(
        {.name = "frozen", .elements = frozen, .rows = frozen, .elements_full = frozen, .trainable = false}));
  }
  const auto add = [&](std::string name, std::int64_t bytes, std::vector<TensorId>& to) {
    if (bytes > 0) {
      to.push_back(builder.AddTensor(std::move(name), of_microbatch(bytes), Category::activation, DType::u8));
    }
  };
  std::vector<TensorId> saved, forward_writes, backward_writes;
  add("saved", row.saved_bytes, saved);
  forward_writes = saved;
  add("transient", row.transient_bytes, forward_writes);
  add("transient_backward", row.backward_transient_bytes.value_or(row.transient_bytes), backward_writes);
  const auto bytes_of = [&](std::int64_t elements) { return (SizeOf(partition.compute) * elements).count(); };
  const std::int64_t weights = bytes_of(row.parameters), frozen_weights = bytes_of(row.frozen_parameters);

  const Tabulated forward{of_microbatch(row.forward_ns), of_microbatch(row.forward_flops),
                          builder.BytesOf(forward_writes) + weights + frozen_weights, partition.compute};
  builder.Add(builder.forward(), row.name + ".forward", forward, {}, forward_writes).parameters = parameters;

  const Tabulated backward{of_microbatch(row.backward_ns), of_microbatch(row.backward_flops),
                           builder.BytesOf(saved) + builder.BytesOf(backward_writes) + 2 * weights + frozen_weights,
                           partition.compute};
  Calculate& action =
      builder.Add(builder.backward(), row.name + ".backward", backward, saved, std::move(backward_writes));
  action.parameters = parameters;
  action.gradients = trained;
  return std::move(builder).Take();
}

}  // namespace

Result<std::vector<BlockRun>> BuildTable(const Table& table, std::span<const std::string> trainable,
                                         const Partition& partition) {
  if (table.rows.empty()) {
    return BadInput("expected at least one row in the table", "each row names a block, its parameters and its bytes");
  }
  if (table.samples < 1 || table.samples > kLargestCount) {
    return BadInput(fmt::format("expected table_samples between 1 and {}, found {}", kLargestCount, table.samples),
                    "table_samples says how many samples the sizes and times of the table's rows are of");
  }
  if (partition.tp > 1) {
    return BadInput(fmt::format("expected layout.tp of 1 for a table network, found {}", partition.tp),
                    "a table does not say how its blocks divide over tensor-parallel ranks");
  }
  std::vector<BlockRun> runs;
  for (const TableRow& row : table.rows) {
    if (Status status = CheckRow(row, partition.micro_batch_size); !status) {
      return Result<std::vector<BlockRun>>(status.error()).At(fmt::format("table row \"{}\"", row.name));
    }
    runs.push_back({BuildRow(row, table.samples, trainable, partition), row.count});
  }
  return runs;
}

}  // namespace tidemark
