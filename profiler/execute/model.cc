// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/normal_cuda.h"
#include "kernels/random_bits.h"
#include "models/job/validate.h"
#include "profiler/capture/heap.h"
#include "profiler/execute/name_hash.h"
#include "profiler/execute/operation.h"
#include "sim/program/layers.h"
#include "sim/program/stages.h"

namespace tidemark {
namespace {

constexpr double kDeviation = 0.02;
const std::string kTable = "embedding.embedding";  ///< what a tied head uses again

bool IsBias(std::string_view name) { return name.ends_with("_bias"); }
bool IsNorm(std::string_view name) { return name.starts_with("norm"); }

/// The loss that balances experts is one of all tokens of a microbatch together, and so no sum that one big batch has.
/// Experts on several ranks get as many rows of each (router_operation.cc): buffers are as large as the program says,
/// and ranks do not tell each other how many they send.
Status CheckExperts(const Job& job) {
  const Experts* experts = ExpertsOf(job.network);
  if (experts == nullptr) {
    return Done{};
  }
  if (experts->balancing_loss) {
    return NotExecuted("a loss that balances experts (network.experts.balancing_loss)");
  }
  if (job.layout.ExpertRanks() == 1) {
    return Done{};
  }
  if (job.layout.ep > 1 && experts->imbalance != 1) {
    return NotExecuted(
        "experts on several ranks of which one gets more tokens than another (network.experts.imbalance)");
  }
  const std::int64_t tokens = job.micro_batch_size * job.sequence_length / job.layout.cp / job.layout.tp;
  if (tokens * experts->per_token % experts->count != 0) {
    return Error{
        ErrorCode::machine_cannot, "",
        fmt::format(
            "experts on several ranks take as many tokens each where they are executed: the {} tokens of a rank's "
            "microbatch (micro_batch_size x sequence_length / layout.cp / layout.tp) x {} (experts.per_token) are no "
            "multiple of {} (experts.count)",
            tokens, experts->per_token, experts->count),
        "choose numbers that are; docs/run.md (\"Experts on several ranks\") says why, and tidemark predict prices "
        "this job"};
  }
  return Done{};
}

/// Experts are laid out over the ranks of a stage (Layout). Where all ranks have the same ones, or parts of them as of
/// all else, what they share is divided as all else.
ExpertPlace ExpertPlaceOf(const Layout& layout, TensorParallelPlace place, std::int64_t shard) {
  if (layout.ep == 1) {
    return {.part = place.rank, .parts = place.size};
  }
  const std::int64_t rank = shard * place.size + place.rank;  // there are no replicas of shards
  const std::int64_t parts = layout.ExpertTp(), ranks = layout.ExpertRanks();
  return {rank / parts % layout.ep, layout.ep, rank % parts, parts, rank / ranks, layout.ExpertGradientRanks()};
}

}  // namespace

Result<Model> Model::Of(const Job& job, TensorParallelPlace place, std::int64_t shard,
                        const std::vector<std::int64_t>& stages) {
  const HeapScope scope(HeapOwner::executor);
  const auto* pair = std::get_if<DualEncoder>(&job.network.shape);
  const auto* decoder = pair != nullptr ? &pair->first : std::get_if<Decoder>(&job.network.shape);
  if (decoder == nullptr) {
    return NotExecuted("networks that are neither a decoder nor a dual encoder");
  }
  if (pair != nullptr && pair->lm_loss) {
    return NotExecuted("language models' losses beside a contrastive one (network.dual_encoder.lm_loss)");
  }
  if (pair != nullptr && pair->shared && decoder->dropout > 0) {
    return NotExecuted("dropout in an encoder that takes both sides of a pair");
  }
  TIDEMARK_TRY(CheckExperts(job));
  if (decoder->kv_heads % place.size != 0) {
    return NotExecuted(fmt::format("{} key and value heads on {} tensor-parallel ranks, some of which would share one",
                                   decoder->kv_heads, place.size));
  }
  Model model;
  model.decoder_ = *decoder;
  if (pair != nullptr) {
    model.pair_ = *pair;
  }
  const Partition partition = PartitionOf(job);
  model.samples_ = partition.micro_batch_size;
  if (TakesChunks(partition.loss)) {
    model.stretches_ = PlanChunks(LocalShape(*decoder, partition), partition).Stretches();
  }
  model.in_chunks_ = job.CachesRepresentations();
  model.place_ = place;
  model.shard_ = shard;
  model.shards_ = job.layout.GradientRanks() / job.axes.shard.replicas;
  if (ExpertsOf(job.network) != nullptr && job.layout.ExpertRanks() > 1) {
    model.expert_place_ = ExpertPlaceOf(job.layout, place, shard);
  }
  TIDEMARK_ASSIGN(const std::vector<StageBlocks> cut, CutIntoBlocks(job));
  model.is_cut_ = cut.size() > 1;
  for (std::size_t stage = 0; stage < cut.size(); ++stage) {
    const auto number = static_cast<std::int64_t>(stage);
    if (stages.empty() || std::find(stages.begin(), stages.end(), number) != stages.end()) {
      model.chunks_.push_back({number, cut[stage], {}, {}});
    }
  }
  for (Chunk& chunk : model.chunks_) {
    model.Index(chunk);
  }
  return model;
}

void Model::Index(Chunk& chunk) {
  for (std::size_t run = 0; run < chunk.blocks.runs.size(); ++run) {
    const Block& block = chunk.blocks.runs[run].block;
    chunk.by_name[block.name] = &block;
    const bool last = run + 1 == chunk.blocks.runs.size();
    for (std::size_t i = 0; i < block.parameters.size(); ++i) {
      const std::string name = block.name + "." + block.parameters[i].name;
      const bool copy = last && chunk.blocks.tied_copy == i;
      chunk.weights[name] = {copy ? kTable : name, &block.parameters[i], chunk.blocks.first_layer[run], copy};
    }
    for (const auto* pass : {&block.forward, &block.backward}) {
      for (const Action& action : *pass) {
        if (const auto* calculate = std::get_if<Calculate>(&action)) {
          actions_[block.name + "." + calculate->name + SuffixOf(block, *calculate)] = calculate;
        }
      }
    }
  }
}

std::string Model::SuffixOf(const Block& block, const Calculate& row) const {
  for (const std::vector<TensorId>& tensors : {row.reads, row.writes}) {
    for (const TensorId tensor : tensors) {
      if (const ChunkStretch* stretch = StretchOf(block.tensors[tensor.index].name)) {
        return stretch->suffix;
      }
    }
  }
  return "";
}

const ChunkStretch* Model::StretchOf(std::string_view tensor) const {
  const auto found = std::find_if(stretches_.begin(), stretches_.end(),
                                  [&](const ChunkStretch& stretch) { return tensor.ends_with(stretch.suffix); });
  return found == stretches_.end() ? nullptr : &*found;
}

const Model::Chunk& Model::ChunkOf(std::string_view name) const {
  const auto stage = StageIn(name);
  const auto found = std::find_if(chunks_.begin(), chunks_.end(), [&](const Chunk& one) { return one.stage == stage; });
  return found == chunks_.end() ? chunks_.front() : *found;
}

const Block* Model::BlockOf(std::string_view name) const {
  const Chunk& chunk = ChunkOf(name);
  const auto found = chunk.by_name.find(name.substr(name.rfind(' ') + 1));
  return found == chunk.by_name.end() ? nullptr : found->second;
}

std::optional<Model::Weight> Model::WeightOf(std::string_view name) const {
  const Chunk& chunk = ChunkOf(name);
  const std::size_t begin = name.rfind(' ') + 1;
  const auto found = chunk.weights.find(name.substr(begin));
  if (found == chunk.weights.end()) {
    return std::nullopt;
  }
  Weight weight = found->second;
  weight.first = FirstOf(name);
  return weight;
}

std::int64_t Model::TrainedOf(std::string_view name) const {
  std::int64_t trained = 0;
  for (const BlockRun& run : ChunkOf(name).blocks.runs) {
    const auto& all = run.block.parameters;
    trained += run.count *
               std::count_if(all.begin(), all.end(), [](const Parameter& one) { return one.trainable && !one.tied; });
  }
  return trained;
}

std::int64_t Model::FirstOf(std::string_view name) const {
  const StageBlocks& stage = ChunkOf(name).blocks;
  const std::size_t begin = name.rfind(' ') + 1;
  const std::string_view layer = LayerBlockOf(name.substr(begin));
  const auto run = std::find_if(stage.runs.begin(), stage.runs.end(),
                                [layer](const BlockRun& one) { return one.block.name == layer; });
  if (run == stage.runs.end()) {
    return 0;
  }
  const bool kept = name.substr(0, begin).ends_with(kKeptPrefix);
  return (kept ? stage.first_gathered : stage.first_layer)[static_cast<std::size_t>(run - stage.runs.begin())];
}

std::optional<Model::Weight> Model::Held(std::string_view name, std::int64_t block) const {
  for (const Chunk& chunk : chunks_) {
    for (const BlockRun& run : chunk.blocks.runs) {
      for (const Parameter& parameter : run.block.parameters) {
        const Weight& weight = chunk.weights.at(run.block.name + "." + parameter.name);
        if (weight.name == name && block >= weight.first && block < weight.first + run.count) {
          return weight;
        }
      }
    }
  }
  return std::nullopt;
}

std::optional<Model::Weight> Model::tied() const {
  for (const Chunk& chunk : chunks_) {
    const BlockRun& outer = chunk.stage == 0 ? chunk.blocks.runs.front() : chunk.blocks.runs.back();
    const std::size_t parameter = chunk.stage == 0 ? 0 : chunk.blocks.tied_copy.value_or(outer.block.parameters.size());
    if (is_cut_ && decoder_.tied_embeddings && parameter < outer.block.parameters.size()) {
      return chunk.weights.at(outer.block.name + "." + outer.block.parameters[parameter].name);
    }
  }
  return std::nullopt;
}

const Model::Weight& Model::Stored(const Block& block, const Parameter& parameter) const {
  const std::string name = parameter.tied ? kTable : block.name + "." + parameter.name;
  for (const Chunk& chunk : chunks_) {
    const auto found = chunk.weights.find(name);
    if (found != chunk.weights.end()) {
      return found->second;
    }
  }
  TIDEMARK_CHECK(false && "a parameter of no block");
}

const Calculate* Model::ActionOf(std::string_view name, std::string_view suffix) const {
  const auto found = suffix.empty() ? actions_.find(name) : actions_.find(std::string(name).append(suffix));
  return found == actions_.end() ? nullptr : found->second;
}

const Block& Model::BlockOfAction(std::string_view name) const {
  for (const Chunk& chunk : chunks_) {
    for (std::size_t end = name.rfind('.'); end != std::string_view::npos; end = name.substr(0, end).rfind('.')) {
      const auto found = chunk.by_name.find(name.substr(0, end));  // a block's name may have a dot: "first.layer"
      if (found != chunk.by_name.end()) {
        return *found->second;
      }
    }
  }
  TIDEMARK_CHECK(false && "an action of no block");
}

std::optional<std::int64_t> Model::ShardOf(std::int64_t ranks) const {
  if (ranks == 1) {
    return 0;
  }
  if (ranks == shards_) {
    return shard_;
  }
  return ranks == expert_place_.shards ? std::optional(expert_place_.shard) : std::nullopt;
}

/// One encoder takes both sides as one batch, unless they come in chunks.
std::int64_t Model::SequencesOf(const Block& block) const {
  if (!pair_) {
    return samples_;
  }
  if (pair_->shared) {
    return samples_ * (in_chunks_ ? 1 : 1 + pair_->targets);
  }
  return samples_ * (block.tower == 1 ? pair_->targets : 1);
}

std::vector<Model::Rows> Model::RowsOf(const Weight& weight) const {
  const Parameter& parameter = *weight.parameter;
  const bool divided = parameter.elements_full > parameter.elements;
  if (!divided) {
    return {{1, parameter.elements, 0, parameter.elements}};
  }
  if (parameter.experts > 0) {
    return RowsOfExperts(parameter);
  }
  const bool by_columns = parameter.name == "wo" || parameter.name.ends_with("down");  // "shared_down" as well
  const bool by_rows = !by_columns;
  const std::int64_t columns = parameter.elements / parameter.rows;
  const std::int64_t full_columns = by_columns ? columns * place_.size : columns;
  std::vector<std::int64_t> groups = {parameter.rows};  // rows that are divided over the ranks by themselves
  if (parameter.name.starts_with("qkv")) {
    const std::int64_t queries = decoder_.heads / place_.size * decoder_.head_size;
    groups = {queries, (parameter.rows - queries) / 2, (parameter.rows - queries) / 2};
  } else if (parameter.name.find("gate_up") != std::string::npos) {
    groups = {parameter.rows / 2, parameter.rows / 2};
  }
  std::vector<Rows> own;
  std::int64_t full_row = 0;
  for (const std::int64_t rows : groups) {
    const std::int64_t row = full_row + (by_rows ? place_.rank * rows : 0);
    own.push_back({rows, columns, row * full_columns + (by_columns ? place_.rank * columns : 0), full_columns});
    full_row += by_rows ? rows * place_.size : rows;
  }
  return own;
}

/// Expert by expert, each [out, in]: parts of one divide the first product's rows, those of a gated unit's halves each
/// by themselves, and the second one's columns.
std::vector<Model::Rows> Model::RowsOfExperts(const Parameter& parameter) const {
  const auto& [group, groups, part, parts, shard, shards] = expert_place_;
  if (parts == 1) {  // whole ones, one behind the other
    return {{1, parameter.elements, group * parameter.elements, parameter.elements}};
  }
  const std::int64_t rows = parameter.rows / parameter.experts, columns = parameter.elements / parameter.rows;
  const bool by_columns = parameter.name == "experts_down";
  const bool is_glu = !by_columns && decoder_.ffn_kind == Decoder::Ffn::glu;
  const std::int64_t pieces = is_glu ? 2 : 1, piece_rows = rows / pieces;
  const std::int64_t stride = by_columns ? columns * parts : columns;
  const std::int64_t of_one = parameter.elements / parameter.experts * parts;  // elements of a whole expert
  std::vector<Rows> own;
  for (std::int64_t expert = group * parameter.experts; expert < (group + 1) * parameter.experts; ++expert) {
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      const std::int64_t row = by_columns ? 0 : piece_rows * (piece * parts + part);
      const std::int64_t first = expert * of_one + row * stride + (by_columns ? part * columns : 0);
      own.push_back({piece_rows, columns, first, stride});
    }
  }
  return own;
}

std::vector<std::int64_t> Model::PlacesOf(const Weight& weight) const {
  std::vector<std::int64_t> places;
  places.reserve(static_cast<std::size_t>(weight.parameter->elements));
  for (const Rows& own : RowsOf(weight)) {
    for (std::int64_t r = 0; r < own.rows; ++r) {
      for (std::int64_t c = 0; c < own.columns; ++c) {
        places.push_back(own.first + r * own.stride + c);
      }
    }
  }
  return places;
}

void Model::Initialise(const Weight& weight, std::int64_t block, std::uint64_t seed, std::int64_t begin,
                       const kernels::Tensor& to, const Queue& queue) const {
  const std::string& name = weight.parameter->name;
  if (IsBias(name) || IsNorm(name)) {
    on::Fill(queue, IsBias(name) ? 0.0 : 1.0, to);
    return;
  }
  const std::uint64_t key =
      kernels::RandomBits(seed ^ HashOf(weight.name) ^ kernels::RandomBits(static_cast<std::uint64_t>(block)));
  std::int64_t at = 0;  // of the rank's part, where the rows begin
  for (const Rows& own : RowsOf(weight)) {
    const std::int64_t count = own.rows * own.columns;
    const std::int64_t from = std::max(begin, at), until = std::min(begin + to.type.elements, at + count);
    if (from < until) {
      on::DrawNormal(queue, {key, kDeviation, own.first, own.columns, own.stride, from - at},
                     kernels::Slice(to, from - begin, until - from));
    }
    at += count;
  }
}

}  // namespace tidemark
