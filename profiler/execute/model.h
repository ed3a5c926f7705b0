// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"
#include "models/job/cut.h"
#include "models/job/job.h"
#include "models/network/block.h"
#include "models/network/loss_in_chunks.h"

namespace tidemark {

/// Where on its tensor-parallel group a rank stands.
struct TensorParallelPlace {
  std::int64_t rank = 0, size = 1;
};

/// Which experts of each layer a rank has (Layout): those of one of `groups` equal groups, of each of them one of
/// `parts`; and which of the `shards` ranks it is that have the same ones, where these are others than those that share
/// all else (layout.ep).
struct ExpertPlace {
  std::int64_t group = 0, groups = 1;
  std::int64_t part = 0, parts = 1;
  std::int64_t shard = 0, shards = 1;

  std::int64_t rank() const { return group * parts + part; }
  std::int64_t ranks() const { return groups * parts; }
};

/// The network as it is executed: the tables of operators, and which numbers of the whole model each parameter of this
/// rank holds. A step's sizes come from here and from the kernels, never from the program.
class Model {
 public:
  /// `shard`: which of the parts this rank has, where data-parallel ranks divide the model's state. `stages`: those of
  /// a pipeline that the rank holds; none: all of them. Refuses networks that the executor has no arithmetic for.
  static Result<Model> Of(const Job& job, TensorParallelPlace place, std::int64_t shard = 0,
                          const std::vector<std::int64_t>& stages = {});

  /// One parameter of a block; equal blocks have one each.
  struct Weight {
    std::string name;  ///< "layer.wq"; of a copy that of what it is a copy of
    const Parameter* parameter = nullptr;
    std::int64_t first = 0;  ///< the model's number of this rank's first such block
    bool is_copy = false;    ///< of a tied embedding, on the last stage of a pipeline
  };

  /// The block that a name ends in ("master weights of layer", "stage 2 moments of layer"), nullptr: none.
  const Block* BlockOf(std::string_view name) const;
  /// The parameter, or the one of another block that it is a second use of.
  const Weight& Stored(const Block& block, const Parameter& parameter) const;
  /// "layer.wq" of "gradient of layer.wq".
  std::optional<Weight> WeightOf(std::string_view name) const;
  /// The parameter of this name in the model's block of this number; nothing: it is another rank's.
  std::optional<Weight> Held(std::string_view name, std::int64_t block) const;
  /// The embedding that the first and the last stage of a pipeline hold a copy of.
  std::optional<Weight> tied() const;
  /// The operator's row in its block's tables ("layer.wq.forward"), of several with one name that whose tensors have
  /// names with this ChunkStretch::suffix; nullptr: none.
  const Calculate* ActionOf(std::string_view name, std::string_view suffix) const;
  /// The chunks of the loss that a tensor of this name is of; nullptr: of all tokens.
  const ChunkStretch* StretchOf(std::string_view tensor) const;
  /// The model's number of the first of this rank's blocks like the one that a name belongs to: 2 of "layer.wq.forward"
  /// where stages before have two layers, 0 of "head.norm". Layers of another kind count as well: 3 of "layer.q" behind
  /// three of "dense.layer".
  std::int64_t FirstOf(std::string_view name) const;
  const Block& BlockOfAction(std::string_view name) const;
  /// Trained parameters of the stage that a name tells, those of equal blocks one by one; what is used twice counts
  /// once.
  std::int64_t TrainedOf(std::string_view name) const;
  /// The decoder, or the first encoder of a pair.
  const Decoder& decoder() const { return decoder_; }
  /// The one that a block belongs to.
  const Decoder& DecoderOf(const Block& block) const { return pair_ && block.tower == 1 ? pair_->second : decoder_; }
  const std::optional<DualEncoder>& pair() const { return pair_; }
  /// Samples, or pairs of them, of a microbatch or chunk; and sequences that a block takes in one pass over it.
  std::int64_t samples() const { return samples_; }
  std::int64_t SequencesOf(const Block& block) const;
  TensorParallelPlace place() const { return place_; }
  std::int64_t shard() const { return shard_; }
  /// Into how many parts the job's ranks with the same weights can divide the model's state.
  std::int64_t shards() const { return shards_; }
  const ExpertPlace& expert_place() const { return expert_place_; }
  /// Which of so many parts of state this rank has: of all it is 0, else those of shards() or, of experts, of
  /// ExpertPlace. Nothing: it is divided between other ranks.
  std::optional<std::int64_t> ShardOf(std::int64_t ranks) const;

  /// Which element of the whole model's parameter each element of this rank's part is.
  std::vector<std::int64_t> PlacesOf(const Weight& weight) const;
  /// Gives a stretch of this rank's part, from its element `begin` on, the values before the first step, the same
  /// numbers however the parameter is divided: norms 1, biases 0, all else normal with deviation 0.02 (GPT-2's).
  /// `block` counts equal blocks of the model.
  void Initialise(const Weight& weight, std::int64_t block, std::uint64_t seed, std::int64_t begin,
                  const kernels::Tensor& to, const kernels::Queue& queue) const;

 private:
  /// One stage of the pipeline, by name.
  struct Chunk {
    std::int64_t stage = 0;
    StageBlocks blocks;
    std::map<std::string, const Block*, std::less<>> by_name;
    std::map<std::string, Weight, std::less<>> weights;
  };
  /// Rows of a parameter that a rank has, `stride` places apart in the whole, from place `first` on.
  struct Rows {
    std::int64_t rows = 0, columns = 0, first = 0, stride = 0;
  };
  /// One behind the other in this rank's part.
  std::vector<Rows> RowsOf(const Weight& weight) const;
  std::vector<Rows> RowsOfExperts(const Parameter& parameter) const;
  void Index(Chunk& chunk);
  /// ChunkStretch::suffix of what an action touches.
  std::string SuffixOf(const Block& block, const Calculate& row) const;
  const Chunk& ChunkOf(std::string_view name) const;

  Decoder decoder_;
  std::optional<DualEncoder> pair_;
  std::int64_t samples_ = 1;
  bool in_chunks_ = false;
  TensorParallelPlace place_;
  std::int64_t shard_ = 0, shards_ = 1;
  ExpertPlace expert_place_;
  bool is_cut_ = false;  ///< there is more than one stage
  std::vector<Chunk> chunks_;
  std::vector<ChunkStretch> stretches_;  ///< of a loss in chunks
  std::map<std::string, const Calculate*, std::less<>> actions_;
};

}  // namespace tidemark
