// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/rotary_tables.h"

#include <algorithm>
#include <string_view>

#include "kernels/rope.h"

namespace tidemark {

kernels::RotaryTable LayersTable(const Job& job, const Decoder& decoder) {
  kernels::RotaryTable table;
  table.positions = std::max(job.sequence_length, job.mean_sequence_length);
  table.turned = decoder.IsLatent() ? decoder.latent.rope_head_size : decoder.head_size;
  table.layout = decoder.rotary_table == Decoder::RotaryTable::pairs ? kernels::RotaryLayout::pairs
                                                                     : kernels::RotaryLayout::elements;
  table.theta = kernels::Rope{}.theta;
  return table;
}

std::optional<kernels::RotaryTable> RotaryTableIn(const Job& job, const Model& model, const Buffer& buffer) {
  constexpr std::string_view kTable = ".rotary_table";
  std::string_view name = buffer.name;
  if (!name.ends_with(kTable)) {
    return std::nullopt;
  }
  name.remove_suffix(kTable.size());
  const Block* block = model.BlockOf(name);
  return block == nullptr ? std::nullopt : std::optional(LayersTable(job, model.DecoderOf(*block)));
}

}  // namespace tidemark
