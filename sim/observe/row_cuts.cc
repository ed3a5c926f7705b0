// SPDX-License-Identifier: Apache-2.0
#include "sim/observe/row_cuts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

namespace tidemark {
namespace {

/// A name that a block of a network may have, which also stands in programs.
std::string Word(std::string_view text) {
  std::string word;
  for (const char letter : text) {
    word += std::isalnum(static_cast<unsigned char>(letter)) != 0 ? letter : '_';
  }
  return word;
}

/// The annotations within a forward pass that divide it: of those that lie equally deep, the level with the most, but
/// with no more than rows are wanted.
class ForwardParts {
 public:
  ForwardParts(const Trace& trace, const std::vector<std::optional<std::size_t>>& passes,
               const MeasuredMicrobatch& microbatch, std::size_t most)
      : trace_(trace) {
    std::vector<Nanos> open;  // ends of the annotations that surround the next one
    std::map<std::size_t, std::vector<std::size_t>> levels;
    for (std::size_t i = microbatch.forward_span + 1; i < trace.spans.size(); ++i) {
      const Span& span = trace.spans[i];
      if (passes[i] != microbatch.forward_span || span.begin == span.end) {
        continue;
      }
      std::erase_if(open, [&](Nanos end) { return end <= span.begin; });
      levels[open.size()].push_back(i);
      open.push_back(span.end);
    }
    for (const auto& [depth, level] : levels) {
      if (level.size() > parts_.size() && level.size() <= most) {
        parts_ = level;
      }
    }
  }

  bool divide() const { return parts_.size() > 1; }

  /// 2 p + 1 within part p, 2 p before it; the last number behind all parts.
  std::size_t PlaceOf(std::size_t event) const {
    const Nanos at = trace_.memory[event].issue;
    const auto part =
        std::partition_point(parts_.begin(), parts_.end(), [&](std::size_t i) { return trace_.spans[i].end < at; });
    const auto before = static_cast<std::size_t>(part - parts_.begin()) * 2;
    return part != parts_.end() && trace_.spans[*part].begin <= at ? before + 1 : before;
  }

  std::string NameOf(std::size_t place) const {
    const auto name = [&](std::size_t part) { return Word(trace_.spans[parts_[part]].phase); };
    if (place % 2 == 1) {
      return name(place / 2);
    }
    return place / 2 < parts_.size() ? "before_" + name(place / 2) : "after_" + name(parts_.size() - 1);
  }

 private:
  const Trace& trace_;
  std::vector<std::size_t> parts_;
};

class Cutter {
 public:
  Cutter(const Trace& trace, const MeasuredMicrobatch& microbatch, ForwardParts parts)
      : trace_(trace), microbatch_(microbatch), parts_(std::move(parts)) {}

  std::vector<MeasuredRow> Cut(std::size_t most) {
    CutBackward();
    if (parts_.divide()) {
      JoinWithinParts();
    }
    JoinBySize(most);
    CutForward();
    Name();
    return std::move(rows_);
  }

 private:
  using Part = MeasuredTensor::Part;

  Bytes BytesOf(std::size_t tensor) const {
    return trace_.tensors[trace_.memory[microbatch_.tensors[tensor].born].tensor.index].bytes;
  }

  /// A backward step allocates gradients, and what it read of the forward pass goes when it is done. Rows that come out
  /// here are as short as can be told apart.
  void CutBackward() {
    std::map<std::size_t, std::size_t> tensors;  // by the event that tells where it belongs
    std::vector<std::size_t> held;
    for (std::size_t i = 0; i < microbatch_.tensors.size(); ++i) {
      const MeasuredTensor& tensor = microbatch_.tensors[i];
      if (tensor.part == Part::gradient) {
        tensors[tensor.born] = i;
      } else if (tensor.part == Part::saved && tensor.freed < microbatch_.end) {
        tensors[tensor.freed] = i;
      } else if (tensor.part == Part::saved) {
        held.push_back(i);
      }
    }
    rows_.emplace_back();
    rows_.back().backward_begin = microbatch_.backward;
    for (const auto& [event, tensor] : tensors) {
      const bool is_gradient = microbatch_.tensors[tensor].part == Part::gradient;
      if (is_gradient && !rows_.back().saved.empty()) {
        rows_.emplace_back();
        rows_.back().backward_begin = rows_[rows_.size() - 2].backward_end;
      }
      is_gradient ? AddGradient(tensor) : AddSaved(tensor);
      rows_.back().backward_end = event + 1;
    }
    std::for_each(held.begin(), held.end(), [&](std::size_t tensor) { AddSaved(tensor); });
    rows_.back().backward_end = microbatch_.end;
    std::reverse(rows_.begin(), rows_.end());
  }

  void AddGradient(std::size_t tensor) {
    rows_.back().gradients.push_back(tensor);
    rows_.back().gradient_bytes += BytesOf(tensor);
  }

  void AddSaved(std::size_t tensor) {
    rows_.back().saved.push_back(tensor);
    rows_.back().saved_bytes += BytesOf(tensor);
  }

  /// Joins neighbours of one group; `group` does not decrease from row to row.
  void Join(const std::vector<std::size_t>& group) {
    std::vector<MeasuredRow> joined;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (i == 0 || group[i] != group[i - 1]) {
        joined.push_back(std::move(rows_[i]));
        continue;
      }
      MeasuredRow& into = joined.back();  // in the backward pass it comes second
      into.backward_begin = rows_[i].backward_begin;
      into.saved.insert(into.saved.end(), rows_[i].saved.begin(), rows_[i].saved.end());
      into.gradients.insert(into.gradients.end(), rows_[i].gradients.begin(), rows_[i].gradients.end());
      into.saved_bytes += rows_[i].saved_bytes;
      into.gradient_bytes += rows_[i].gradient_bytes;
    }
    rows_ = std::move(joined);
  }

  /// Whether a saved tensor says where in both passes its row is: not so an input, and what is held beyond.
  bool IsOfBothPasses(std::size_t tensor) const {
    const MeasuredTensor& saved = microbatch_.tensors[tensor];
    return saved.born >= microbatch_.forward && saved.freed < microbatch_.end;
  }

  /// The part of the forward pass in which most of a row's bytes were born; 0 where it has none.
  std::size_t PlaceOf(const MeasuredRow& row) const {
    std::map<std::size_t, Bytes> by_place;
    for (const std::size_t tensor : row.saved) {
      if (IsOfBothPasses(tensor)) {
        by_place[parts_.PlaceOf(microbatch_.tensors[tensor].born)] += BytesOf(tensor);
      }
    }
    const auto most = std::max_element(by_place.begin(), by_place.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == by_place.end() ? 0 : most->first;
  }

  /// No row is of a part before its predecessor's.
  void JoinWithinParts() {
    std::vector<std::size_t> places;
    for (const MeasuredRow& row : rows_) {
      places.push_back(std::max(PlaceOf(row), places.empty() ? 0 : places.back()));
    }
    Join(places);
    places.erase(std::unique(places.begin(), places.end()), places.end());
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      rows_[i].name = parts_.NameOf(places[i]);
    }
  }

  void JoinBySize(std::size_t most) {
    if (rows_.size() <= most) {
      return;
    }
    double total = 0, passed = 0;
    for (const MeasuredRow& row : rows_) {
      total += static_cast<double>((row.saved_bytes + row.gradient_bytes).count());
    }
    std::vector<std::size_t> groups;
    for (const MeasuredRow& row : rows_) {
      const double share = total == 0 ? 0 : passed / total;
      groups.push_back(std::min(most - 1, static_cast<std::size_t>(share * static_cast<double>(most))));
      passed += static_cast<double>((row.saved_bytes + row.gradient_bytes).count());
    }
    Join(groups);
  }

  /// A row's forward pass begins when the first of what it or a later row saves is born.
  void CutForward() {
    std::size_t next = microbatch_.backward;
    for (std::size_t i = rows_.size(); i-- > 0;) {
      MeasuredRow& row = rows_[i];
      row.forward_end = next;
      for (const std::size_t tensor : row.saved) {
        if (IsOfBothPasses(tensor)) {
          next = std::min(next, microbatch_.tensors[tensor].born);
        }
      }
      row.forward_begin = i == 0 ? microbatch_.forward : next;
    }
  }

  /// By annotations, else by what the largest saved tensor says before its dot, as tensors of our own networks do.
  void Name() {
    std::map<std::string, std::size_t> uses;
    for (MeasuredRow& row : rows_) {
      if (row.name.empty()) {
        row.name = NameOfLargest(row);
      }
      ++uses[row.name];
    }
    std::map<std::string, std::size_t> numbers;
    for (MeasuredRow& row : rows_) {
      if (const std::string base = row.name; uses[base] > 1) {
        do {
          row.name = fmt::format("{}_{}", base, ++numbers[base]);
        } while (uses.contains(row.name));
      }
    }
  }

  std::string NameOfLargest(const MeasuredRow& row) const {
    const auto largest = std::max_element(row.saved.begin(), row.saved.end(),
                                          [&](std::size_t a, std::size_t b) { return BytesOf(a) < BytesOf(b); });
    if (largest != row.saved.end()) {
      const TraceTensor& tensor = trace_.tensors[trace_.memory[microbatch_.tensors[*largest].born].tensor.index];
      const std::size_t dot = tensor.name.find('.');
      if (dot != std::string::npos && dot > 0 && tensor.category != Category::unknown) {
        return Word(std::string_view(tensor.name).substr(0, dot));
      }
    }
    return "block";
  }

  const Trace& trace_;
  const MeasuredMicrobatch& microbatch_;
  ForwardParts parts_;
  std::vector<MeasuredRow> rows_;
};

}  // namespace

std::vector<MeasuredRow> CutIntoRows(const Trace& trace, const std::vector<std::optional<std::size_t>>& passes,
                                     const MeasuredMicrobatch& microbatch, std::size_t most) {
  return Cutter(trace, microbatch, ForwardParts(trace, passes, microbatch, most)).Cut(most);
}

}  // namespace tidemark
