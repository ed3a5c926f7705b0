// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "models/network/decoder_parts.h"

namespace tidemark {

ReplicatedPart DecoderParts::ReplicatedForward(const std::string& name, TensorId input, std::int64_t in,
                                               std::vector<TensorId> outputs) {
  const std::int64_t rows = shape_.residual_tokens;
  ReplicatedPart part{
      {.name = name, .weight = {}, .bias = {}, .in = in, .outputs = std::move(outputs), .turn_back = {}}, input};
  for (const TensorId output : part.linear.outputs) {
    part.linear.out += builder_.tensor(output).elements / rows;
  }
  part.linear.weight = AddReplicatedMatrix(name, part.linear.out, in);
  builder_.Add(builder_.forward(), name + ".forward", MakeGemm(rows, part.linear.out, in), {input}, part.linear.outputs)
      .parameters = {part.linear.weight};
  return part;
}

TensorId DecoderParts::ReplicatedBackward(const ReplicatedPart& part, const std::vector<TensorId>& gradients,
                                          std::string input_gradient_name) {
  return BothGradients(part.linear, part.input, gradients, shape_.residual_tokens, std::move(input_gradient_name));
}

TensorId DecoderParts::GatherForward(const std::string& name, TensorId rows) {
  if (!shape_.scattered) {
    return rows;
  }
  const TensorId gathered =
      AddCollected(name + "_gathered", builder_.tensor(rows).elements * shape_.tp, Category::tp_gather);
  builder_.AddCollective(builder_.forward(), CollectiveKind::all_gather, name + ".gather", rows, gathered);
  return gathered;
}

TensorId DecoderParts::ReduceBackward(const std::string& name, TensorId partial) {
  return SumOverRanks(builder_.backward(), false, name, "_gradient", partial, "d_" + name + "_scattered");
}

}  // namespace tidemark
