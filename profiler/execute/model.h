// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "models/job/job.h"
#include "models/network/block.h"

namespace tidemark {

/// Where on its tensor-parallel group a rank stands.
struct TensorParallelPlace {
  std::int64_t rank = 0, size = 1;
};

/// The network as it is executed: the tables of operators, and which numbers of the whole model each parameter of this
/// rank holds. A step's sizes come from here and from the kernels, never from the program.
class Model {
 public:
  /// Refuses networks that the executor has no arithmetic for.
  static Result<Model> Of(const Job& job, TensorParallelPlace place);

  /// One parameter of a block; equal blocks have one each.
  struct Weight {
    std::string name;  ///< "layer.wq"
    const Parameter* parameter = nullptr;
  };

  /// The block that a name ends in ("moments of layer"), nullptr: none.
  const Block* BlockOf(std::string_view name) const;
  /// "layer.wq" of "gradient of layer.wq".
  std::optional<Weight> WeightOf(std::string_view name) const;
  /// The operator's row in its block's tables ("layer.wq.forward"); nullptr: none.
  const Calculate* ActionOf(std::string_view name) const;
  const Block& BlockOfAction(std::string_view name) const;
  /// Trained parameters of this rank, tied ones once; and the number of one of them, in the order of definition.
  std::int64_t trained() const;
  std::int64_t NumberOf(const Weight& weight, std::int64_t block) const;
  const std::vector<BlockRun>& runs() const { return runs_; }
  const Decoder& decoder() const { return decoder_; }
  TensorParallelPlace place() const { return place_; }

  /// Which element of the whole model's parameter each element of this rank's part is.
  std::vector<std::int64_t> PlacesOf(const Weight& weight) const;
  /// The values of this rank's part before the first step, the same numbers however the parameter is divided: norms 1,
  /// biases 0, all else normal with deviation 0.02 (GPT-2's). `block` counts equal blocks.
  std::vector<double> InitialValues(const Weight& weight, std::int64_t block, std::uint64_t seed) const;

 private:
  Decoder decoder_;
  std::vector<BlockRun> runs_;
  TensorParallelPlace place_;
  std::map<std::string, const Block*, std::less<>> blocks_;
  std::map<std::string, Weight, std::less<>> weights_;
  std::map<std::string, const Calculate*, std::less<>> actions_;
};

}  // namespace tidemark
