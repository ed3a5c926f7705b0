// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/exchanged_part.h"

#include <algorithm>

namespace tidemark {

bool IsInPlace(const Program& program, const Collective& leaf) {
  return std::equal(leaf.reads.begin(), leaf.reads.end(), leaf.writes.begin(), leaf.writes.end(),
                    [&](const BufferRef& read, const BufferRef& write) {
                      return read == write || program.buffers[write.buffer.index].base == read.buffer;
                    });
}

std::optional<kernels::Tensor> PartToGather(const Model& model, const Operand& from, const Operand& to,
                                            std::int64_t ranks) {
  const std::vector<Holding>& holds = from.buffer->holds;
  const bool has_parts = !holds.empty() && holds.front().cut == Cut::elements && holds.front().parts == Parts::own;
  const auto sent = has_parts ? ContentsOf(model, from) : nullptr;
  const auto gathered = has_parts ? ContentsOf(model, to) : nullptr;
  if (!sent || !gathered || sent->elements == gathered->elements / ranks) {
    return std::nullopt;
  }
  const std::int64_t elements = gathered->elements / ranks;
  const Stretch& wanted = gathered->stretches.front();
  const auto found = std::find_if(sent->stretches.begin(), sent->stretches.end(), [&](const Stretch& stretch) {
    return stretch.weight.name == wanted.weight.name && stretch.block == wanted.block;
  });
  return found == sent->stretches.end() ? std::nullopt
                                        : std::optional(kernels::Slice(from.tensor, found->offset, elements));
}

std::shared_ptr<const Contents> ScatteredPart(const Program& program, const Collective& leaf, const Model& model,
                                              const Operand& read, const Operand& write) {
  if (leaf.kind != CollectiveKind::reduce_scatter || SaidContents(model, write)) {
    return nullptr;
  }
  const std::int64_t ranks = program.groups[leaf.group.index].size;
  const auto whole = ContentsOf(model, read);
  const std::optional<std::int64_t> shard = model.ShardOf(ranks);
  if (!whole || !shard) {
    return nullptr;
  }
  auto part = std::make_shared<Contents>();
  part->elements = leaf.payload_elements / ranks;
  const std::int64_t begin = *shard * part->elements;
  part->begin = IsInPlace(program, leaf) ? begin : 0;
  for (Stretch stretch : whole->stretches) {
    const std::int64_t first = std::max(stretch.offset, begin);
    const std::int64_t last = std::min(stretch.offset + stretch.elements, begin + part->elements);
    if (first < last) {
      stretch.begin += first - stretch.offset;
      stretch.elements = last - first;
      stretch.offset = first - begin + part->begin;
      part->stretches.push_back(stretch);
    }
  }
  return part;
}

}  // namespace tidemark
