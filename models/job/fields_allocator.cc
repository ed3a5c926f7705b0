// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "models/job/fields.h"

namespace tidemark {
namespace {

/// A size, or null where 0 stands for none.
struct SizeOrNull {
  Bytes low;
  Result<Bytes> Read(const ConfigValue& value) const { return Size{low}.Read(value); }
  std::string Write(Bytes bytes) const { return bytes == Bytes(0) ? "null" : Size{low}.Write(bytes); }
  std::string Example() const { return "256 MiB"; }
};

/// A part of a whole, or null where 0 stands for none.
struct PartOrNull {
  RealNumber range;
  Result<double> Read(const ConfigValue& value) const { return range.Read(value); }
  std::string Write(double part) const { return part == 0 ? "null" : range.Write(part); }
  std::string Example() const { return "0.8"; }
};

/// roundup_power2_divisions as PyTorch writes it (c10/core/AllocatorConfig.cpp): one number for all sizes, or steps by
/// interval, "256:1,512:2,1024:4,>:8", with brackets or without. An interval is named by its first size in MiB; there
/// are 16, below 2 MiB the first. The first one listed counts for all below it, ">" for all above the last one listed,
/// and what is not listed has none.
struct Divisions {
  static constexpr std::size_t kIntervals = 16;
  using ByInterval = std::array<std::int64_t, kIntervals>;

  Result<std::vector<RoundupDivisions>> Read(const ConfigValue& value) const {
    const std::optional<ByInterval> divisions = value.kind == ConfigValue::Kind::list     ? ListOf(value)
                                                : value.kind == ConfigValue::Kind::scalar ? Parse(value.text)
                                                                                          : std::nullopt;
    if (!divisions) {
      return BadInput(
          fmt::format("expected a power of two, or MiB with their powers of two, found {}", Describe(value)),
          fmt::format("for example 4, or \"{}\" as in PYTORCH_CUDA_ALLOC_CONF", Example()));
    }
    std::vector<RoundupDivisions> steps;
    for (std::size_t i = 0; i < kIntervals; ++i) {
      if (i == 0 || (*divisions)[i] != (*divisions)[i - 1]) {
        steps.push_back({i == 0 ? Bytes(0) : Bytes(std::int64_t{1} << (20 + i)), (*divisions)[i]});
      }
    }
    return steps.size() == 1 && steps[0].divisions == 0 ? std::vector<RoundupDivisions>() : steps;
  }

  std::string Write(const std::vector<RoundupDivisions>& steps) const {
    if (steps.empty()) {
      return "null";
    }
    if (steps.size() == 1) {
      return std::to_string(steps[0].divisions);
    }
    std::string text;
    const auto interval = [](Bytes from) { return std::countr_zero(static_cast<std::uint64_t>(from.count())) - 20; };
    const int last = interval(steps.back().from);
    for (int i = interval(steps[1].from) - 1; i <= last; ++i) {
      std::int64_t divisions = 0;
      for (const RoundupDivisions& step : steps) {
        divisions = step.from <= Bytes(std::int64_t{1} << (20 + i)) ? step.divisions : divisions;
      }
      text += fmt::format("{}:{},", std::int64_t{1} << i, divisions);
    }
    return QuoteYaml(fmt::format("{}>:{}", text, steps.back().divisions));
  }

  std::string Example() const { return "256:1,512:2,1024:4,>:8"; }

 private:
  static std::optional<std::int64_t> PowerOfTwo(std::string_view text) {
    std::int64_t number = 0;
    const auto [rest, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool is_power = number > 0 && number <= (1 << 20) && std::has_single_bit(static_cast<std::uint64_t>(number));
    return code == std::errc() && rest == text.data() + text.size() && is_power ? std::optional(number) : std::nullopt;
  }

  static std::optional<ByInterval> ListOf(const ConfigValue& value) {
    std::string text;
    for (const ConfigValue& item : value.items) {
      text += (text.empty() ? "" : ",") + item.text;
    }
    return Parse(text);
  }

  static std::optional<ByInterval> Parse(std::string_view text) {
    std::string plain;
    for (const char letter : text) {
      if (letter != ' ' && letter != '[' && letter != ']') {
        plain += letter;
      }
    }
    ByInterval divisions{};
    if (const auto single = PowerOfTwo(plain)) {
      divisions.fill(*single);
      return divisions;
    }
    int last = -1;
    for (std::string_view rest = plain; !rest.empty();) {
      const std::string_view entry = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
      if (!Add(divisions, last, entry)) {
        return std::nullopt;
      }
    }
    return last < 0 ? std::nullopt : std::optional(divisions);
  }

  /// "512:2" or ">:8", behind the interval `last`, -1 where it is the first.
  static bool Add(ByInterval& divisions, int& last, std::string_view entry) {
    const std::size_t colon = entry.find(':');
    if (colon == std::string_view::npos) {
      return false;
    }
    const auto number =
        entry.substr(colon + 1) == "0" ? std::optional<std::int64_t>(0) : PowerOfTwo(entry.substr(colon + 1));
    if (!number) {
      return false;
    }
    if (entry.substr(0, colon) == ">") {
      std::fill(divisions.begin() + last + 1, divisions.end(), *number);
      return last >= 0;
    }
    const auto from = PowerOfTwo(entry.substr(0, colon));
    if (!from) {
      return false;
    }
    const int interval = std::min<int>(std::countr_zero(static_cast<std::uint64_t>(*from)), kIntervals - 1);
    std::fill(divisions.begin() + (last < 0 ? 0 : interval), divisions.begin() + interval + 1, *number);
    last = interval;
    return true;
  }
};

struct NamedAllocator {
  const char* name;
  AllocatorKind kind;
  const char* summary;
};

constexpr NamedAllocator kAllocators[] = {
    {"exact", AllocatorKind::exact, "every tensor as it is, nothing cached: the least that any allocator needs"},
    {"torch-caching", AllocatorKind::torch_caching,
     "PyTorch's, with the knobs of PYTORCH_CUDA_ALLOC_CONF as allocator.KEY: expandable_segments, max_split_size, "
     "max_non_split_rounding, roundup_power2_divisions, garbage_collection_threshold, large_segment_size; "
     "memory_fraction"},
    {"arena", AllocatorKind::arena,
     "XLA's best fit in one preallocated region (JAX); memory_fraction: how much of the device that may be"},
    {"cuda-async", AllocatorKind::cuda_async,
     "a pool of cudaMallocAsync, as far as its inside is public; release_threshold: what it keeps at the end of a "
     "step"},
};

}  // namespace

std::vector<std::pair<std::string, std::string>> AllocatorSummaries() {
  std::vector<std::pair<std::string, std::string>> summaries;
  for (const NamedAllocator& of : kAllocators) {
    summaries.emplace_back(of.name, of.summary);
  }
  return summaries;
}

std::vector<Field<Job>> AllocatorFields() {
  using J = Job;
  Choice<AllocatorKind> kinds;
  for (const NamedAllocator& of : kAllocators) {
    kinds.choices.emplace_back(of.name, of.kind);
  }
  return {FieldAt<J>(
              "allocator.kind", [](J & j) -> auto& { return j.allocator.kind; }, kinds),
          FieldAt<J>(
              "allocator.expandable_segments", [](J & j) -> auto& { return j.allocator.expandable_segments; }, Truth{}),
          FieldAt<J>(
              "allocator.max_split_size", [](J & j) -> auto& { return j.allocator.max_split; },
              SizeOrNull{Bytes(20 << 20)}),
          FieldAt<J>(
              "allocator.max_non_split_rounding", [](J & j) -> auto& { return j.allocator.max_non_split_rounding; },
              Size{Bytes(20 << 20)}),
          FieldAt<J>(
              "allocator.large_segment_size", [](J & j) -> auto& { return j.allocator.large_segment; },
              Size{Bytes(10 << 20)}),
          FieldAt<J>(
              "allocator.roundup_power2_divisions", [](J & j) -> auto& { return j.allocator.roundup_power2_divisions; },
              Divisions{}),
          FieldAt<J>(
              "allocator.garbage_collection_threshold",
              [](J & j) -> auto& { return j.allocator.garbage_collection_threshold; }, PartOrNull{{0.01, 0.99}}),
          FieldAt<J>(
              "allocator.memory_fraction", [](J & j) -> auto& { return j.allocator.memory_fraction; },
              PartOrNull{{0.01, 1}}),
          FieldAt<J>(
              "allocator.release_threshold", [](J & j) -> auto& { return j.allocator.release_threshold; }, Size{})};
}

}  // namespace tidemark
