// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/recompute.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <variant>
#include <vector>

#include "base/check.h"
#include "sim/lower/lifetime.h"

namespace tidemark {
namespace {

constexpr const char* kSuffix = "_recomputed";

class Repeater {
 public:
  Repeater(const Block& block, const DoneAgain& again)
      : block_(block), again_(again), copies_(block.tensors.size()), uses_(block.tensors.size()) {}

  Block Repeat() && {
    LookAtForward();
    CollectWeights();
    const auto from = block_.backward.begin() + static_cast<std::ptrdiff_t>(Place());
    if (from == block_.backward.end()) {
      return std::move(block_);  // nobody reads what would be done again
    }
    CopyTensors();
    std::for_each(from, block_.backward.end(), [&](Action& action) { Redirect(action); });
    std::vector<Action> repeated;
    for (std::size_t i = again_.begin; i < again_.end; ++i) {
      if (!IsKept(i)) {
        repeated.push_back(Again(block_.forward[i]));
      } else if (const auto* collective = std::get_if<Communicate>(&block_.forward[i]);
                 collective != nullptr && !again_.needed_only) {
        repeated.push_back(TakenFromCache(*collective));
      }
    }
    if (again_.needed_only) {
      DropUnneeded(repeated);
    }
    block_.backward.insert(from, std::make_move_iterator(repeated.begin()), std::make_move_iterator(repeated.end()));
    return std::move(block_);
  }

 private:
  /// By forward actions.
  struct Use {
    bool written_inside = false, read_inside = false;  ///< the stretch, less what is kept of it
    bool written_outside = false, read_outside = false;
  };

  bool InStretch(std::size_t action) const { return action >= again_.begin && action < again_.end && !IsKept(action); }

  bool IsKept(std::size_t action) const { return std::ranges::binary_search(again_.kept, action); }

  void LookAtForward() {
    for (std::size_t i = 0; i < block_.forward.size(); ++i) {
      ForEachTouch(block_.forward[i], [&](TensorId tensor, bool write) {
        Use& use = uses_[tensor.index];
        if (InStretch(i)) {
          (write ? use.written_inside : use.read_inside) = true;
        } else {
          (write ? use.written_outside : use.read_outside) = true;
        }
      });
    }
    for (const Use& use : uses_) {
      TIDEMARK_CHECK(!use.written_inside || !use.written_outside);
    }
  }

  /// Forward actions whose backward pass needs what is done again: those of the stretch, or, where its output is
  /// dropped, those that read it.
  bool IsServed(const Action& forward, std::size_t action) const {
    if (!again_.drops_output) {
      return InStretch(action);
    }
    bool reads = false;
    ForEachTouch(forward, [&](TensorId tensor, bool write) { reads |= !write && uses_[tensor.index].written_inside; });
    return reads && !InStretch(action);
  }

  void CollectWeights() {
    for (std::size_t i = 0; i < block_.forward.size(); ++i) {
      const auto* calculate = std::get_if<Calculate>(&block_.forward[i]);
      if (calculate != nullptr && IsServed(block_.forward[i], i)) {
        weights_.insert(weights_.end(), calculate->parameters.begin(), calculate->parameters.end());
      }
    }
  }

  bool HasWeightOf(const std::vector<ParameterId>& parameters) const {
    return std::find_first_of(parameters.begin(), parameters.end(), weights_.begin(), weights_.end()) !=
           parameters.end();
  }

  /// Whether a backward action reads what is dropped, or is part of the backward pass that needs it.
  bool NeedsStretch(const Action& backward) const {
    bool needs = false;
    ForEachTouch(backward, [&](TensorId tensor, bool write) {
      const Use& use = uses_[tensor.index];
      const bool dropped = use.written_inside && (again_.drops_output || !use.read_outside);
      const bool input = use.read_inside && !use.written_inside && !again_.drops_output;
      needs |= !write && (dropped || input);
    });
    const auto* calculate = std::get_if<Calculate>(&backward);
    return needs || (calculate != nullptr && (HasWeightOf(calculate->parameters) || HasWeightOf(calculate->gradients)));
  }

  /// The backward action before which the stretch is done again.
  std::size_t Place() const {
    if (again_.begin == 0 && again_.end == block_.forward.size()) {
      return 0;
    }
    const auto first = std::find_if(block_.backward.begin(), block_.backward.end(),
                                    [&](const Action& action) { return NeedsStretch(action); });
    return static_cast<std::size_t>(first - block_.backward.begin());
  }

  void CopyTensors() {
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      if (uses_[i].written_inside) {
        copies_[i] = TensorId{static_cast<std::uint32_t>(block_.tensors.size())};
        Tensor copy = block_.tensors[i];
        copy.name += kSuffix;
        block_.tensors.push_back(std::move(copy));
      }
    }
  }

  void Redirect(std::vector<TensorId>& tensors) const {
    for (TensorId& tensor : tensors) {
      tensor = tensor.index < copies_.size() && copies_[tensor.index].valid() ? copies_[tensor.index] : tensor;
    }
  }

  void Redirect(Action& action) const {
    std::visit(
        [&](auto& leaf) {
          Redirect(leaf.reads);
          Redirect(leaf.writes);
        },
        action);
  }

  Action Again(Action action) const {
    Redirect(action);
    std::visit(
        [](auto& leaf) {
          leaf.name += kSuffix;
          if constexpr (requires { leaf.recompute; }) {
            leaf.recompute = true;
          }
        },
        action);
    return action;
  }

  /// Leaves only actions that write what a later one or the backward pass reads, and waits for collectives among them.
  void DropUnneeded(std::vector<Action>& repeated) const {
    std::vector<bool> read(block_.tensors.size()), awaited(block_.tensors.size());
    const auto mark = [&](const Action& action) {
      ForEachTouch(action, [&](TensorId tensor, bool write) { read[tensor.index] = read[tensor.index] || !write; });
    };
    std::ranges::for_each(block_.backward, mark);
    std::vector<bool> needed(repeated.size());
    for (std::size_t i = repeated.size(); i-- > 0;) {
      ForEachTouch(repeated[i], [&](TensorId tensor, bool write) {
        needed[i] = needed[i] || (write && !std::holds_alternative<Await>(repeated[i]) && read[tensor.index]);
      });
      if (needed[i]) {
        mark(repeated[i]);
      }
    }
    std::vector<Action> left;
    std::vector<bool> made(block_.tensors.size());
    for (std::size_t i = 0; i < repeated.size(); ++i) {
      if (auto* hold = std::get_if<Hold>(&repeated[i])) {  // of what is made at all
        std::erase_if(hold->reads, [&](TensorId tensor) { return !made[tensor.index]; });
        left.push_back(std::move(repeated[i]));
        continue;
      }
      const auto* collective = std::get_if<Communicate>(&repeated[i]);
      bool waits = false;
      ForEachTouch(repeated[i], [&](TensorId tensor, bool write) {
        made[tensor.index] = made[tensor.index] || (needed[i] && write);
        waits = waits || (std::holds_alternative<Await>(repeated[i]) && awaited[tensor.index]);
        awaited[tensor.index] = awaited[tensor.index] || (needed[i] && write && collective != nullptr);
      });
      if (needed[i] || waits) {
        left.push_back(std::move(repeated[i]));
      }
    }
    repeated = std::move(left);
  }

  /// A kept collective is not sent again, but waited for again (wait_tensor is on no list); until then it keeps what it
  /// read.
  Action TakenFromCache(const Communicate& collective) const {
    Await await{collective.name + kSuffix, collective.reads, {}, collective.among};
    await.reads.insert(await.reads.end(), collective.writes.begin(), collective.writes.end());
    Redirect(await.reads);
    return await;
  }

  Block block_;
  DoneAgain again_;
  std::vector<TensorId> copies_;
  std::vector<Use> uses_;
  std::vector<ParameterId> weights_;  ///< of the forward actions that are served
};

bool Selects(const Recompute& recompute, LayerPart::Kind kind) {
  switch (kind) {
    case LayerPart::Kind::norm:
      return recompute.norm;
    case LayerPart::Kind::attention:
      return recompute.attention;
    case LayerPart::Kind::feed_forward:
      return recompute.feed_forward;
    case LayerPart::Kind::activation:
      return recompute.activation && !recompute.feed_forward;  // which holds it
    case LayerPart::Kind::latent_heads:
      return recompute.latent_heads;
  }
  TIDEMARK_CHECK(false && "unknown part");
}

/// Last part first: what is done again of a part may read what an earlier one drops.
Block SelectedAgain(Block block, const Recompute& recompute) {
  std::vector<LayerPart> parts = block.parts;
  std::sort(parts.begin(), parts.end(), [](const LayerPart& a, const LayerPart& b) { return a.begin > b.begin; });
  for (const LayerPart& part : parts) {
    if (Selects(recompute, part.kind)) {
      using enum LayerPart::Kind;
      const bool drops_output = part.kind == norm || part.kind == activation || part.kind == latent_heads;
      block = DoAgain(block, {part.begin, part.end, drops_output, {}, recompute.needed_only});
    }
  }
  return block;
}

/// The weight of a matrix product without a bias; null for every other action. With a bias it is another operation, and
/// so is a product of several experts.
const Parameter* ProductsWeight(const Block& block, const Action& action) {
  const auto* calculate = std::get_if<Calculate>(&action);
  if (calculate == nullptr || !std::holds_alternative<Gemm>(calculate->op) || calculate->parameters.empty()) {
    return nullptr;
  }
  const Parameter& weight = block.parameters[calculate->parameters.front().index];
  if (weight.experts > 0) {
    return nullptr;
  }
  const bool has_bias =
      std::ranges::find(block.parameters, weight.name + "_bias", &Parameter::name) != block.parameters.end();
  return has_bias ? nullptr : &weight;
}

bool IsOnTheList(const Action& action, bool communicates_again) {
  const auto* calculate = std::get_if<Calculate>(&action);
  const auto* collective = std::get_if<Communicate>(&action);
  const bool is_listed = collective != nullptr && (collective->kind == CollectiveKind::reduce_scatter ||
                                                   collective->kind == CollectiveKind::all_to_all);
  return (calculate != nullptr && std::holds_alternative<Attention>(calculate->op)) ||
         (is_listed && !communicates_again);
}

/// Forward actions whose outputs are kept per operation, less what another one writes to later: a tensor-parallel sum,
/// a bias behind it. A product in two parts, of own rows and of others', is one.
std::vector<std::size_t> KeptPerOperation(const Block& block, bool communicates_again) {
  std::vector<int> writers(block.tensors.size());
  std::vector<const Parameter*> written_by(block.tensors.size());
  for (const Action& action : block.forward) {
    const Parameter* weight = ProductsWeight(block, action);
    ForEachTouch(action, [&](TensorId tensor, bool write) {
      const bool again = weight != nullptr && written_by[tensor.index] == weight;
      writers[tensor.index] += write && !again ? 1 : 0;
      written_by[tensor.index] = write ? weight : written_by[tensor.index];
    });
  }
  std::vector<std::size_t> kept;
  const Parameter* last = nullptr;
  bool odd = false;  // the number of products so far
  for (std::size_t i = 0; i < block.forward.size(); ++i) {
    const Parameter* weight = ProductsWeight(block, block.forward[i]);
    if (weight != nullptr && weight != last) {
      odd = !odd;
      last = weight;
    }
    bool rewritten = false;
    ForEachTouch(block.forward[i],
                 [&](TensorId tensor, bool write) { rewritten = rewritten || (write && writers[tensor.index] > 1); });
    if (!rewritten && (IsOnTheList(block.forward[i], communicates_again) || (weight != nullptr && odd))) {
      kept.push_back(i);
    }
  }
  return kept;
}

}  // namespace

Block DoAgain(const Block& block, const DoneAgain& again) { return Repeater(block, again).Repeat(); }

Block Recomputed(const Block& block, const Recompute& recompute) {
  if (block.parts.empty()) {
    return block;
  }
  switch (recompute.policy) {
    case Recompute::Policy::none:
      return block;
    case Recompute::Policy::selective:
      return SelectedAgain(block, recompute);
    case Recompute::Policy::full:
    case Recompute::Policy::every_n:
      return DoAgain(block, {0, block.forward.size(), false, {}, recompute.needed_only});
    case Recompute::Policy::per_op:
      return DoAgain(block, {0, block.forward.size(), false, KeptPerOperation(block, recompute.collectives),
                             recompute.needed_only});
  }
  TIDEMARK_CHECK(false && "unknown policy");
}

}  // namespace tidemark
