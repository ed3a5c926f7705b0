// SPDX-License-Identifier: Apache-2.0
#include "models/network/rotary_angles.h"

#include <algorithm>
#include <utility>

namespace tidemark {

void RotaryAngles::Rotate(std::vector<Action>& pass, std::string name, std::int64_t elements, bool backward,
                          BlockBuilder::Tensors reads, BlockBuilder::Tensors writes) {
  BlockBuilder& b = parts_.builder();
  const Rope rotation{elements, backward, parts_.partition().compute};
  const bool takes_rows = HasTable() && !parts_.partition().fused_rope;
  if (takes_rows) {
    if (!rows_.valid()) {
      TakeRows(pass);
    }
    reads.push_back(rows_);
  }
  Calculate& kernel = b.Add(pass, std::move(name), rotation, std::move(reads), std::move(writes));
  if (!takes_rows) {
    ReadTable(kernel);
  }
}

void RotaryAngles::ReadTable(Calculate& kernel) {
  if (!HasTable()) {
    return;
  }
  if (!table_.valid()) {
    const Partition& partition = parts_.partition();
    const std::int64_t positions = std::max(partition.sequence_length, partition.longest_sequence) * partition.cp;
    table_ = parts_.builder().AddConstant({"rotary_table", DType::fp32, positions * RowSize()});
  }
  kernel.constants.push_back(table_);
}

std::int64_t RotaryAngles::RowSize() const {
  const Decoder& decoder = parts_.decoder();
  const std::int64_t rotated = decoder.IsLatent() ? decoder.latent.rope_head_size : decoder.head_size;
  return decoder.rotary_table == Decoder::RotaryTable::pairs ? rotated : 2 * rotated;
}

void RotaryAngles::TakeRows(std::vector<Action>& pass) {
  BlockBuilder& b = parts_.builder();
  rows_ = b.AddTensor("rotary_rows", parts_.shape().tokens * RowSize(), Category::activation, DType::fp32);
  const std::int64_t bytes = b.BytesOf({rows_});
  ReadTable(b.Add(pass, "rotary_rows.forward", Pointwise{b.tensor(rows_).elements, 2 * bytes, 0}, {}, {rows_}));
}

}  // namespace tidemark
