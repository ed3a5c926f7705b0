// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/sharding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "sim/lower/stage.h"
#include "sim/program/holding.h"
#include "sim/program/walk.h"
#include "sim/strategies/optimizer.h"

namespace tidemark {
namespace {

/// What a buffer holds numbers for: a parameter, a block, or all that the role stores. Elements of this
/// tensor-parallel rank; `full`: over all of them.
struct Whole {
  std::int64_t stored = 0, trained = 0, full = 0;
  std::int64_t pieces = 0;  ///< parameters, each of which may be padded by itself
  bool of_experts = true;   ///< all of them

  void Add(const Parameter& parameter, std::int64_t times) {
    if (!parameter.tied) {
      pieces += times;
      stored += parameter.elements * times;
      trained += parameter.trainable ? parameter.elements * times : 0;
      full += parameter.elements_full * times;
      of_experts = of_experts && parameter.experts > 0;
    }
  }
};

bool EndsInWord(std::string_view name, std::string_view word) {
  return name.ends_with(word) && (name.size() == word.size() || name[name.size() - word.size() - 1] == ' ');
}

/// "layer.wq" of "gradient of layer.wq".
std::string LastWord(const std::string& name) { return name.substr(name.rfind(' ') + 1); }

/// "bucket 3 of" and "bucket 12 of" are alike.
std::string WithoutNumbers(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit) {
      out += c;
    } else if (out.empty() || out.back() != '#') {
      out += '#';
    }
  }
  return out;
}

class RoleShardings {
 public:
  RoleShardings(const Job& job, const std::vector<Stage>& chunks, const Program& program)
      : job_(job), program_(program) {
    for (const Stage& stage : chunks) {
      for (const StageRun& run : stage.runs) {
        AddBlock(run);
      }
    }
    for (const Group& group : program.groups) {
      shards_ = group.name == "dp" ? group.size : shards_;
      replicas_ = group.name == "replicas" ? group.size : replicas_;
    }
    for (const Buffer& buffer : program.buffers) {
      groups_[GroupOf(buffer)].push_back(&buffer);
    }
    CountMembers();
  }

  std::string Of(const Buffer& buffer) const {
    const bool wire = buffer.category == Category::bucket;
    if (!wire && !HasWhole(buffer.category)) {
      return constants_.contains(LastWord(buffer.name)) ? "whole" : "own";
    }
    const Whole* named = NamedBy(buffer);
    if (wire && named == nullptr) {
      return "own";
    }
    const Whole& whole = named != nullptr ? *named : all_;
    if (const auto text = TextOfBoth(buffer, whole)) {
      return *text;
    }
    const std::optional<std::int64_t> held = HeldParts(buffer.holds);
    const std::optional<std::int64_t> parts = held ? held : PartsOf(buffer, named);
    if (!parts) {
      return wire ? "own" : "part";
    }
    return job_.layout.ep > 1 && IsOfExperts(buffer, whole) ? ExpertsText(*parts) : TextOf(*parts, whole);
  }

 private:
  /// Of a family, how many members the step has: a family of places may be larger than what is put there.
  void CountMembers() {
    std::vector<std::set<std::int64_t>> members(program_.buffers.size());
    ForEachLeaf(program_, [&](std::size_t at, std::span<const std::int64_t> loops) {
      if (const auto* leaf = std::get_if<Alloc>(&program_.nodes[at])) {
        members[leaf->buffer.buffer.index].insert(Resolve(leaf->buffer.index[0], loops));
      }
      return true;
    });
    for (std::size_t i = 0; i < members.size(); ++i) {
      const Buffer& buffer = program_.buffers[i];
      members_[&buffer] = buffer.resident ? buffer.extents[0] : std::ssize(members[i]);
    }
  }

  /// Whether it holds numbers of experts, which are divided over ranks by themselves.
  bool IsOfExperts(const Buffer& buffer, const Whole& whole) const {
    if (buffer.holds.empty()) {
      return whole.of_experts;
    }
    return std::ranges::all_of(buffer.holds, [&](const Holding& holding) { return HoldsExperts(holding); });
  }
  bool HoldsExperts(const Holding& holding) const {
    return std::ranges::all_of(holding.of, [&](const HeldRun& run) {
      const auto parameter = parameters_.find(run.name);
      return parameter != parameters_.end() && parameter->second.of_experts;
    });
  }

  /// Of a buffer that holds experts' numbers and others, each divided by themselves.
  std::optional<std::string> TextOfBoth(const Buffer& buffer, const Whole& whole) const {
    std::vector<Holding> experts, others;
    for (const Holding& holding : buffer.holds) {
      (HoldsExperts(holding) ? experts : others).push_back(holding);
    }
    if (job_.layout.ep == 1 || experts.empty() || others.empty()) {
      return std::nullopt;
    }
    const auto of_experts = HeldParts(experts), of_others = HeldParts(others);
    return of_experts && of_others
               ? std::optional(fmt::format("{}; experts {}", TextOf(*of_others, whole), ExpertsText(*of_experts)))
               : std::nullopt;
  }

  /// Buffers that hold the same of different blocks.
  using GroupKey = std::tuple<std::string, Category>;

  static bool HasWhole(Category category) {
    return category == Category::parameter || category == Category::gradient || category == Category::accumulator ||
           category == Category::optimizer;
  }

  void AddBlock(const StageRun& run) {
    Whole block;  // blocks of one name are equal, in whichever chunk of the rank they are
    for (const Parameter& parameter : run.block().parameters) {
      block.Add(parameter, 1);
      all_.Add(parameter, run.count);
      Whole alone;
      alone.Add(parameter, 1);
      parameters_[run.block().name + "." + parameter.name] = alone;
    }
    for (const Constant& constant : run.block().constants) {
      constants_.insert(run.block().name + "." + constant.name);
    }
    blocks_[run.block().name] = block;
  }

  /// The last word of a name tells what it belongs to; nullptr: it does not.
  const Whole* NamedBy(const Buffer& buffer) const {
    const std::string word = LastWord(buffer.name);
    if (const auto parameter = parameters_.find(word); parameter != parameters_.end()) {
      return &parameter->second;
    }
    const auto block = blocks_.find(word);
    return block == blocks_.end() ? nullptr : &block->second;
  }

  bool NamesParameter(const Buffer& buffer) const { return parameters_.contains(LastWord(buffer.name)); }

  GroupKey GroupOf(const Buffer& buffer) const {
    std::string_view what = buffer.name;
    for (const auto& [block, whole] : blocks_) {
      // "moments of layer", or of a stretch of its run: "moments of layer 2"
      std::string_view rest = what;
      while (!rest.empty() && std::isdigit(static_cast<unsigned char>(rest.back())) != 0) {
        rest.remove_suffix(1);
      }
      rest = rest.ends_with(' ') ? rest.substr(0, rest.size() - 1) : what;
      if (EndsInWord(what, block) || EndsInWord(rest, block)) {
        what = rest.ends_with(block) ? rest.substr(0, rest.size() - block.size())
                                     : what.substr(0, what.size() - block.size());
        break;
      }
    }
    return {WithoutNumbers(what), buffer.category};
  }

  /// Numbers that a buffer holds for each of its elements.
  std::int64_t PerElement(const Buffer& buffer) const {
    const bool moments = buffer.category == Category::optimizer && buffer.name.find("moments") != std::string::npos;
    return moments ? std::max<std::int64_t>(1, MomentsOf(job_.optimizer)) : 1;
  }

  /// What a buffer itself says of the numbers that it holds, where all of them are divided alike.
  std::optional<std::int64_t> HeldParts(const std::vector<Holding>& holds) const {
    std::optional<std::int64_t> all;
    for (const Holding& holding : holds) {
      const std::int64_t parts = holding.cut == Cut::none || holding.parts == Parts::all ? 1 : holding.ranks;
      const bool known =
          parts == 1 || parts == shards_ || parts == shards_ * replicas_ || parts == job_.layout.ExpertGradientRanks();
      if ((all && *all != parts) || !known) {
        return std::nullopt;
      }
      all = parts;
    }
    return all;
  }

  /// The fewest parts of `whole` that cannot be larger than `elements`; none where even padding does not explain them.
  std::optional<std::int64_t> Parts(std::int64_t elements, const Whole& whole, Category category) const {
    for (const std::int64_t parts : {std::int64_t{1}, shards_, shards_ * replicas_}) {
      for (const std::int64_t of : {whole.stored, category == Category::parameter ? whole.stored : whole.trained}) {
        const std::int64_t most = std::max(2 * of, of + (whole.pieces + 1) * parts);
        if (of > 0 && elements * parts >= of && (parts == 1 || elements * parts < most)) {
          return parts;
        }
      }
    }
    return std::nullopt;
  }

  /// All buffers of a group together against all that the role has: every member of their families, else one of each,
  /// since places may be taken in turn.
  std::optional<std::int64_t> PartsOfGroup(const Buffer& buffer) const {
    std::int64_t all = 0, one_of_each = 0;
    for (const Buffer* other : groups_.at(GroupOf(buffer))) {
      const std::int64_t elements = other->elements / PerElement(*other);
      all += elements * members_.at(other);
      one_of_each += elements;
    }
    const auto parts = Parts(all, all_, buffer.category);
    return parts ? parts : Parts(one_of_each, all_, buffer.category);
  }

  /// Each buffer of a group against its own block, where all come to the same.
  std::optional<std::int64_t> PartsOfBlocks(const Buffer& buffer) const {
    std::optional<std::int64_t> all;
    for (const Buffer* other : groups_.at(GroupOf(buffer))) {
      const Whole* named = NamedBy(*other);
      const auto parts =
          named == nullptr ? std::nullopt : Parts(other->elements / PerElement(*other), *named, other->category);
      if (!parts || (all && *all != *parts)) {
        return std::nullopt;
      }
      all = parts;
    }
    return all;
  }

  /// A rank that owns a stretch of what all ranks hold may own some blocks whole and others not at all: state of the
  /// optimizer, and what is numbered, counts as a group first.
  std::optional<std::int64_t> PartsOf(const Buffer& buffer, const Whole* named) const {
    if (NamesParameter(buffer)) {
      return Parts(buffer.elements / PerElement(buffer), *named, buffer.category);
    }
    const bool stretch = named == nullptr || buffer.category == Category::optimizer ||
                         std::get<0>(GroupOf(buffer)).find('#') != std::string::npos;
    const auto first = stretch ? PartsOfGroup(buffer) : PartsOfBlocks(buffer);
    if (first) {
      return first;
    }
    const auto second = stretch ? PartsOfBlocks(buffer) : PartsOfGroup(buffer);
    const bool one_parameter = std::any_of(parameters_.begin(), parameters_.end(), [&](const auto& parameter) {
      return parameter.second.stored == buffer.elements;
    });
    return !second && one_parameter ? std::optional<std::int64_t>(1) : second;
  }

  std::string TextOf(std::int64_t parts, const Whole& whole) const {
    std::vector<std::string> cuts;
    const std::int64_t tp = job_.layout.tp;
    if (tp > 1 && 2 * whole.full > (tp + 1) * whole.stored) {
      cuts.push_back(fmt::format("1/{} over tp", tp));
    }
    if (parts > 1) {
      cuts.push_back(fmt::format("1/{} over dp", shards_));
    }
    if (parts > shards_) {
      cuts.push_back(fmt::format("1/{} over replicas", replicas_));
    }
    return cuts.empty() ? "whole" : fmt::format("{}", fmt::join(cuts, ", "));
  }

  std::string ExpertsText(std::int64_t parts) const {
    std::vector<std::string> cuts;
    const std::pair<const char*, std::int64_t> axes[] = {
        {"ep", job_.layout.ep}, {"etp", job_.layout.ExpertTp()}, {"edp", parts}};
    for (const auto& [axis, size] : axes) {
      if (size > 1) {
        cuts.push_back(fmt::format("1/{} over {}", size, axis));
      }
    }
    return fmt::format("{}", fmt::join(cuts, ", "));
  }

  const Job& job_;
  const Program& program_;
  std::map<std::string, Whole> blocks_, parameters_;  ///< by name
  std::set<std::string> constants_;                   ///< which nobody divides
  Whole all_;
  std::int64_t shards_ = 1, replicas_ = 1;
  std::map<GroupKey, std::vector<const Buffer*>> groups_;
  std::map<const Buffer*, std::int64_t> members_;
};

}  // namespace

std::vector<std::vector<std::string>> ShardingsOf(const Job& job, const StepProgram& step) {
  const Result<std::vector<Stage>> stages = CutIntoStages(job);
  TIDEMARK_CHECK(stages.ok());
  const std::vector<std::vector<Stage>> ranks = DealOut(job, *stages);
  TIDEMARK_CHECK(ranks.size() == step.roles.size());
  std::vector<std::vector<std::string>> all;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RoleShardings role(job, ranks[i], step.roles[i]);
    std::vector<std::string>& shardings = all.emplace_back();
    for (const Buffer& buffer : step.roles[i].buffers) {
      shardings.push_back(role.Of(buffer));
    }
  }
  return all;
}

}  // namespace tidemark
